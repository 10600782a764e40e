// What ranks of different hosts tell each other beside their operations: that they live, what failed, who has entered a call.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "wirewise/comm/link.h"

namespace wirewise::comm {

class Channels : public Liveness {
 public:
  /// Sends a message (up to 64 KiB) to one rank, or to all with kAnyPeer. Never blocks. From any thread.
  virtual void tell(int peer, std::string_view message) noexcept = 0;
  /// Messages that came since the last call, with their senders. Never blocks.
  [[nodiscard]] virtual std::vector<std::pair<int, std::string>> heard() = 0;
};

/// What is known of ranks before they are connected.
struct Acquaintance {
  std::vector<std::string> names;   // by rank, for errors; empty: ranks are named by their numbers
  std::function<void()> look_after;  // called every few milliseconds while waiting for them; what it throws ends that. May be empty

  [[nodiscard]] std::string name(int r) const {
    return static_cast<std::size_t>(r) < names.size() ? names[static_cast<std::size_t>(r)] : "rank " + std::to_string(r);
  }
};

}  // namespace wirewise::comm
