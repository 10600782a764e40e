// Networks for tests: ranks in forked processes that tell each other their addresses through shared memory, and waits with a deadline.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "wirewise/comm/network.h"
#include "wirewise/comm/ucx_network.h"

namespace wirewise::testing {

using namespace std::chrono_literals;

/// Memory that forked processes share: made before the fork, gone with the last of them.
template <class T>
class Shared {
 public:
  Shared() {
    void* const memory = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
    value_ = new (memory) T();
  }
  ~Shared() { ::munmap(value_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T& operator*() const { return *value_; }
  T* operator->() const { return value_; }

 private:
  T* value_ = nullptr;
};

/// Waits (without sleeping blindly for long) until `ready` holds; false when it never does within the time.
template <class Ready>
bool eventually(const Ready& ready, std::chrono::milliseconds most = 20s) {
  const auto end = std::chrono::steady_clock::now() + most;
  while (!ready()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

/// Where up to eight ranks leave a text each, and count themselves at barriers.
struct Board {
  struct Slot {
    std::atomic<std::size_t> length{0};  // plus one
    char text[8192];
  };
  Slot slots[8];
  std::atomic<int> arrived{0};

  void put(int rank, const std::string& text) {
    if (text.size() > sizeof slots[0].text) throw std::runtime_error("text too long for the board");
    std::memcpy(slots[rank].text, text.data(), text.size());
    slots[rank].length = text.size() + 1;
  }
  std::string get(int rank) {
    if (!eventually([&] { return slots[rank].length != 0; })) throw std::runtime_error("rank " + std::to_string(rank) + " left nothing");
    return {slots[rank].text, slots[rank].length - 1};
  }
  /// The n-th barrier of `ranks`.
  void barrier(int n, int ranks) {
    ++arrived;
    if (!eventually([&] { return arrived >= n * ranks; })) throw std::runtime_error("a rank is missing at the barrier");
  }
};

inline comm::NetworkInterface loopback() { return {"lo", "127.0.0.1", "a test names it", {}, false}; }

inline std::unique_ptr<comm::Network> join_network(Board& board, int rank, int ranks, const comm::NetworkInterface& interface) {
  const auto end = comm::make_ucx_end(interface);
  board.put(rank, end->address());
  std::vector<std::string> addresses;
  for (int other = 0; other < ranks; ++other) addresses.push_back(board.get(other));
  return end->connect(rank, addresses);
}

/// Waits for a transfer, asleep on the network in between. Throws what it fails with, or when it isn't done in time.
inline void finish(comm::Network& network, comm::Transfer& transfer, std::chrono::milliseconds most = 20s) {
  const auto end = std::chrono::steady_clock::now() + most;
  while (!transfer.done()) {
    if (network.progress()) continue;
    if (transfer.done()) return;
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error("the transfer isn't done within its time");
    network.sleep(100ms);
  }
}

/// Bytes that depend on their place and on a seed.
inline std::vector<unsigned char> pattern(std::size_t bytes, unsigned seed) {
  std::vector<unsigned char> data(bytes);
  std::uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (auto& byte : data) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<unsigned char>(state >> 56);
  }
  return data;
}

}  // namespace wirewise::testing
