// Looks after ranks of several hosts while they meet, before connections tell of deaths: each watches the processes of its own host, and
// who finds that something went wrong leaves that in the store, where all others look.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/cards.h"
#include "wirewise/comm/link.h"
#include "wirewise/comm/overseer.h"
#include "wirewise/comm/store.h"

namespace wirewise::comm {

class MeetingWatch final : public Overseer {
 public:
  MeetingWatch(std::shared_ptr<Store> store, const Cards& cards)
      : store_(std::move(store)), name_(cards.name), self_(cards.who(cards.rank)), key_(std::to_string(cards.generation)) {}

  /// From here on watches the ranks of this host, `members`, whose link is `link`.
  void watch(const Link& link, const Cards& cards, const std::vector<int>& members);
  /// From here on connections tell of deaths, and the store may go: it is only asked for a first cause.
  void connected() noexcept { connected_ = true; }
  /// Throws what another rank has left, or PeerLost naming a rank of this host that has ended. To be called often: it looks some times a
  /// second.
  void look_after() override;
  [[nodiscard]] std::optional<Error> verdict(const Error& found) override;
  /// Why a step of the meeting ended with `found`: what others tell of, a death on this host, or else `found`.
  [[nodiscard]] Error first_cause(const Error& found) noexcept;
  /// Leaves this rank's error for the others, unless an earlier one is there. A store that is lost tells them itself.
  void leave(const Error& error) noexcept;

 private:
  [[nodiscard]] std::optional<Error> left_by_others();

  std::shared_ptr<Store> store_;
  std::string name_;
  std::string self_;
  std::string key_;
  bool connected_ = false;
  std::shared_ptr<Liveness> liveness_;
  std::vector<std::string> neighbours_;  // by place on this host
  std::chrono::steady_clock::time_point next_look_{};
  std::optional<std::chrono::steady_clock::time_point> ended_;  // when a rank of this host was first seen to have
};

}  // namespace wirewise::comm
