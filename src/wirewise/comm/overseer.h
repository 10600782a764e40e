// What waits inside of something larger: while a communicator is split, ranks wait in operations of their host's group and of the new part,
// where one that doesn't come can't be told from one that waits itself. The communicator that is split can tell: all its ranks still
// look after it meanwhile, but for one that is stopped.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "wirewise/base/error.h"

namespace wirewise::comm {

class Overseer {
 public:
  virtual ~Overseer() = default;
  /// Called by who waits, with no lock held. What it throws ends the wait.
  virtual void look_after() = 0;
  /// The error of a wait that ends with `found`: its deadline has passed, or a rank has left. nullopt while others are still being
  /// asked. Never waits: the caller may hold its group's locks.
  [[nodiscard]] virtual std::optional<Error> verdict(const Error& found) = 0;
};

/// A group's side: whether it has an overseer, and when that was asked last.
class Overseen {
 public:
  /// Null: nobody any more.
  void oversee(std::shared_ptr<Overseer> overseer);
  /// Lets the overseer look, some times a second. Returns what it threw.
  [[nodiscard]] std::optional<Error> look();
  /// The overseer's verdict, or `found` where there is none.
  [[nodiscard]] std::optional<Error> judge(const Error& found) const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Overseer> overseer_;
  std::chrono::steady_clock::time_point next_look_{};
  std::atomic<bool> any_{false};  // the mutex is for those who have one
};

/// Sets a group's overseer for as long as it lives.
class WhileOverseen {
 public:
  WhileOverseen(Overseen& group, std::shared_ptr<Overseer> overseer) : group_(group) { group_.oversee(std::move(overseer)); }
  ~WhileOverseen() { group_.oversee(nullptr); }
  WhileOverseen(const WhileOverseen&) = delete;
  WhileOverseen& operator=(const WhileOverseen&) = delete;

 private:
  Overseen& group_;
};

}  // namespace wirewise::comm
