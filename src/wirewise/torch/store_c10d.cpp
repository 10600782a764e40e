// Every failure of a c10d store becomes one of two errors: the key didn't come in time, or the store can't be reached.
#include "wirewise/torch/store_c10d.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/listener.h"

namespace wirewise {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A waiting get() asks again after an eighth of the time it has waited, within these bounds. It never waits inside the store:
// TCPStore would hold its one connection meanwhile, and logs a warning for each wait that runs out.
constexpr auto kShortestPause = std::chrono::microseconds(200);
constexpr auto kLongestPause = std::chrono::microseconds(50'000);

template <typename Call>
auto reaching_store(const std::string& where, const std::string& doing, Call call) {
  try {
    return call();
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kStore, "Lost " + where + " while " + doing + ": " + first_line(error) + ".",
                "The process that holds it (rank 0, or torchrun's agent) has probably ended: look at its last lines.");
  }
}

/// Where a store is, through the prefixes that process groups put before their keys; empty for those that are in no place to name.
std::string place_of(c10d::Store* store) {
  while (auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(store)) store = prefixed->getUnderlyingStore().get();
  if (const auto* const tcp = dynamic_cast<c10d::TCPStore*>(store)) return to_string(Endpoint{tcp->getHost(), tcp->getPort()});
  if (const auto* const file = dynamic_cast<c10d::FileStore*>(store)) return file->getPath();
  return {};
}

std::string named(const std::string& name, const std::string& place) { return place.empty() ? name : name + " at " + place; }

}  // namespace

std::string first_line(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = c10_error != nullptr ? c10_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

C10dStore::C10dStore(c10::intrusive_ptr<c10d::Store> store, const std::string& name)
    : store_(std::move(store)), where_(named(name, place_of(store_.get()))) {}

void C10dStore::set(const std::string& key, const std::string& value) {
  reaching_store(where_, "setting '" + key + "'", [&] { store_->set(key, value); });
}

std::string C10dStore::get(const std::string& key, milliseconds timeout) {
  const std::string doing = "waiting for '" + key + "'";
  const auto start = Clock::now();
  const std::vector<std::string> keys{key};
  while (!reaching_store(where_, doing, [&] { return store_->check(keys); })) {
    const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
    if (waited >= timeout) {
      throw Error(ErrorKind::kTimeout,
                  "Nobody set '" + key + "' in " + where_ + " within " + std::to_string(timeout.count()) + " ms.",
                  "The rank that should have set it is late or gone.");
    }
    std::this_thread::sleep_for(std::clamp(waited / 8, kShortestPause, kLongestPause));
  }
  return reaching_store(where_, doing, [&] { return store_->get_to_str(key); });
}

std::int64_t C10dStore::add(const std::string& key, std::int64_t amount) {
  return reaching_store(where_, "adding to '" + key + "'", [&] { return store_->add(key, amount); });
}

}  // namespace wirewise
