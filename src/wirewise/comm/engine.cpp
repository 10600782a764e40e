#include "wirewise/comm/engine.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "wirewise/comm/futex.h"
#include "wirewise/comm/signals_blocked.h"

namespace wirewise::comm {
namespace {

using namespace std::chrono_literals;

enum Sleep : std::uint32_t { kAwake, kAsleep, kNapping };
constexpr auto kNap = 1ms;
constexpr int kNaps = 100;  // after the last activity

}  // namespace

void ring_engine(ArenaHeader& header) noexcept {
  header.doorbell.fetch_add(1);
  if (header.asleep.load() != 0) futex_wake_all(header.doorbell);
}

Engine::~Engine() {
  stop_.store(true);
  ring_engine(header_);
  if (thread_.joinable()) thread_.join();
}

void Engine::add(EngineClient* client) {
  const std::lock_guard lock(mutex_);
  clients_.push_back(client);
}

void Engine::remove(EngineClient* client) noexcept {
  std::unique_lock lock(mutex_);
  std::erase(clients_, client);
  if (std::this_thread::get_id() == thread_id_) return;
  left_.wait(lock, [&] { return current_ != client; });
}

void Engine::notify() {
  if (!started_.load()) {
    const std::lock_guard lock(mutex_);
    if (!started_.load()) {
      const SignalsBlocked blocked;
      thread_ = std::thread([this] { run(); });
      thread_id_ = thread_.get_id();
      started_.store(true);
    }
  }
  ring_engine(header_);
}

void Engine::notify_soon() {
  if (!started_.load() || header_.asleep.load() != kNapping) notify();
}

void Engine::begin_help() {
  help_.fetch_add(1);
  notify();
}

/// One round over all communicators. True while any has operations to look after.
bool Engine::pass(bool& moved) {
  bool pending = false;
  std::vector<EngineClient*> seen;
  for (;;) {
    EngineClient* client = nullptr;
    {
      const std::lock_guard lock(mutex_);
      for (EngineClient* const candidate : clients_) {
        if (std::find(seen.begin(), seen.end(), candidate) == seen.end()) {
          client = candidate;
          break;
        }
      }
      current_ = client;
    }
    if (client == nullptr) return pending;
    seen.push_back(client);
    const EngineClient::Drive result = client->drive_in_background(help_.load() > 0);
    {
      const std::lock_guard lock(mutex_);
      current_ = nullptr;
    }
    left_.notify_all();
    pending = pending || result != EngineClient::Drive::kNothing;
    moved = moved || result == EngineClient::Drive::kMoved;
  }
}

void Engine::run() {
  pthread_setname_np(pthread_self(), "wirewise-comm");
  int naps = 0;
  while (!stop_.load()) {
    const std::uint32_t bell = header_.doorbell.load();
    bool moved = false;
    const bool pending = pass(moved);
    if (moved || stop_.load()) {
      naps = kNaps;
      continue;
    }
    // Bounded while operations are pending: deadlines and the life of peers are looked after.
    const std::chrono::nanoseconds most = naps > 0 ? kNap : pending ? 50ms : 10s;
    header_.asleep.store(naps > 0 ? kNapping : kAsleep);
    futex_wait(header_.doorbell, bell, most);
    header_.asleep.store(kAwake);
    naps = header_.doorbell.load() != bell ? kNaps : std::max(naps - 1, 0);
  }
}

}  // namespace wirewise::comm
