// One start of several processes, the ranks of this host or the launchers of several hosts, watched to the end of the last.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "wirewise/base/units.h"
#include "wirewise/cli/rank_exit.h"
#include "wirewise/cli/rank_process.h"
#include "wirewise/cli/signal_source.h"

namespace wirewise {

class Round {
 public:
  /// `grace`: from the request to end to SIGKILL, once another has failed. `orders`: a descriptor over which a launcher on another host
  /// passes what it is asked for (see launch_orders.h); its end is an order to end. -1: none.
  Round(const std::vector<RankStart>& starts, const SignalSource& signals, Seconds grace, int orders);
  /// Returns when all have ended.
  void run();

  /// In order of time.
  [[nodiscard]] const std::vector<RankExit>& exits() const noexcept { return exits_; }
  /// A signal to stop came, and was passed on.
  [[nodiscard]] bool stop_requested() const noexcept { return !forwarded_.empty(); }
  enum class CalledOff { kNo, kByOrder, kByLoss };
  /// Whether the launcher that started this one asked for the end, or was lost.
  [[nodiscard]] CalledOff called_off() const noexcept { return called_off_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kRunning, kWaiting, kTerminated };

  void wait();
  void take_orders();
  void answer(int number);
  void signal_all(int number) const;
  void reap();
  void keep_deadlines();
  void end_all();

  const SignalSource& signals_;
  Seconds grace_;
  int orders_;
  CalledOff called_off_ = CalledOff::kNo;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  std::vector<RankExit> exits_;
  std::set<int> forwarded_;
  Phase phase_ = Phase::kRunning;
  std::optional<Clock::time_point> deadline_;
};

}  // namespace wirewise
