// How a group's operations move: whoever waits drives all of them, else the progress thread does; and how a waiter waits. One file, since
// small calls go through all of it.
#include <thread>

#include "wirewise/comm/futex.h"
#include "wirewise/comm/group.h"
#include "wirewise/comm/phase.h"
#include "wirewise/comm/spin.h"

namespace wirewise::comm {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kSpins = 300;
constexpr auto kYieldTime = 150us;
constexpr auto kSleep = 20ms;
constexpr auto kHelpAfter = 10ms;

/// Tells this rank's own threads: also those that are about to sleep (Group::sleep) on news of another thread.
void ring_own(RankCell& cell) noexcept {
  cell.doorbell.fetch_add(1);
  if (cell.sleepers.load() != 0) futex_wake_all(cell.doorbell);
}

/// How a waiter passes the time while nothing moves: it spins, then yields, then sleeps on its rank's bell, and at last has the progress
/// thread help the other groups.
class Patience {
 public:
  Patience(RankCell& cell, Engine& engine, int spins) : cell_(cell), engine_(engine), first_(spins), spins_(spins) {}
  ~Patience() {
    rise();
    if (helped_) engine_.end_help();
  }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  /// It is past spinning: time to look whether something is wrong.
  [[nodiscard]] bool worn() const noexcept { return spins_ > kSpins; }

  /// Something moved.
  void renew() noexcept {
    spins_ = first_;
    idle_since_ = {};
    rise();
  }

  /// Nothing moved since `bell` was read.
  void pass(std::uint32_t bell) {
    if (spins_ < kSpins) {
      ++spins_;
      return relax();
    }
    ++spins_;
    const auto now = Clock::now();
    if (idle_since_ == Clock::time_point{}) idle_since_ = now;
    if (now - idle_since_ < kYieldTime) return std::this_thread::yield();
    if (!helped_ && now - idle_since_ > kHelpAfter) {
      helped_ = true;
      engine_.begin_help();
    }
    if (sleeper_) futex_wait(cell_.doorbell, bell, kSleep);
    // Counted before the last look: whoever moves something from here on rings.
    if (!sleeper_) cell_.sleepers.fetch_add(1);
    sleeper_ = true;
  }

 private:
  void rise() noexcept {
    if (sleeper_) cell_.sleepers.fetch_sub(1);
    sleeper_ = false;
  }

  RankCell& cell_;
  Engine& engine_;
  int first_;
  int spins_;
  Clock::time_point idle_since_{};
  bool helped_ = false;
  bool sleeper_ = false;  // counted among them
};

}  // namespace

// --- driving

void Group::adopt() {
  const std::lock_guard lock(issue_mutex_);
  for (const auto& operation : fresh_) {
    if (operation->may_stage()) stage_queue_.push_back(operation.get());
    active_.push_back(operation);
  }
  active_count_.store(active_.size(), std::memory_order_relaxed);
  fresh_.clear();
  post_ready();
}

void Group::settle(const std::shared_ptr<Work::State>& operation, Passed& passed) {
  if (operation->settled || !operation->reached(Level::kComplete)) return;
  operation->settled = true;
  passed.finished.push_back(operation);
}

void Group::retire(std::size_t index) {
  const std::shared_ptr<Work::State> operation = active_[index];
  phase("retired");
  operation->release();
  active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(index));
  active_count_.store(active_.size(), std::memory_order_relaxed);
  {
    const std::lock_guard lock(issue_mutex_);
    if (operation->background) --background_;
    if (operation->collective()) finish_sequence(operation->fingerprint.sequence);
    post_ready();
  }
  ring_peers();  // they may wait for a slot
}

void Group::retire_complete() {
  if (active_count_.load(std::memory_order_relaxed) == 0) return;
  const std::unique_lock lock(drive_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (std::size_t i = 0; i < active_.size();) {
    if (active_[i]->settled && active_[i]->retired()) {
      retire(i);
    } else {
      ++i;
    }
  }
}

void Group::drive(Passed& passed, const Work::State* until, Level level, bool yield_to_waiters) {
  look_for_failure(passed);
  adopt();
  try {
    for (std::size_t i = 0; i < active_.size();) {
      const std::shared_ptr<Work::State> operation = active_[i];
      bool moved = true;
      while (moved) {
        const bool had_output = operation->reached(Level::kOutput);
        operation->record_driven();
        moved = operation->step();
        if (moved) phase("stepped");
        passed.moved = passed.moved || moved;
        settle(operation, passed);
        if (!had_output && operation->reached(Level::kOutput)) ring_own(control_.rank(rank()));
        if (until != nullptr && until->reached(level)) return;
        if (yield_to_waiters && waiters_.load() > 0) return;
        if (control_.header().failure.load() == 2) return look_for_failure(passed);
      }
      if (operation->retired()) {
        retire(i);
        passed.moved = true;
      } else {
        ++i;
      }
    }
  } catch (const Error& error) {
    fail_all(passed, error);
  } catch (const std::exception& error) {
    fail_all(passed, Error(ErrorKind::kFailed, options_.name + ": " + error.what() + "."));
  }
}

void Group::finish(Passed& passed) noexcept {
  if (passed.finished.empty()) return;
  ring_own(control_.rank(rank()));
  for (const auto& operation : passed.finished) operation->run_callbacks();
}

EngineClient::Drive Group::drive_in_background(bool everything) {
  {
    const std::lock_guard lock(issue_mutex_);
    // A rank that waits for nothing hears of failures here, so that its record is written too.
    const bool untold = control_.header().failure.load() == 2 && link_.flight && !flight_told_.load();
    const bool idle = background_ == 0 && !everything;
    if (idle || waiters_.load() == 0) control_.rank(rank()).background.store(idle ? 0 : 1);
    if (idle && !untold) return Drive::kNothing;
  }
  // A waiter drives all of this group, and tells when it leaves.
  if (waiters_.load() > 0) return Drive::kWaiting;
  Passed passed;
  bool pending = false;
  {
    const std::unique_lock lock(drive_mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return Drive::kWaiting;
    drive(passed, nullptr, Level::kComplete, true);
    if (!passed.moved) check_health(passed);
    pending = !active_.empty();
  }
  hand_over();
  finish(passed);
  return passed.moved ? Drive::kMoved : pending ? Drive::kWaiting : Drive::kNothing;
}

void Group::progress() { static_cast<void>(look_once()); }

bool Group::look_once() {
  Passed passed;
  {
    const std::unique_lock lock(drive_mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    drive(passed, nullptr, Level::kComplete, false);
    if (!passed.moved) check_health(passed);
  }
  hand_over();
  finish(passed);
  return passed.moved;
}

void Group::hand_over() noexcept {
  if (waiters_.load() > 0) ring_own(control_.rank(rank()));
}

// --- waiting

bool Group::test(Work::State& operation) {
  if (!operation.reached(Level::kComplete)) progress();
  if (!operation.reached(Level::kComplete)) return false;
  operation.rethrow();
  return true;
}

void Group::wait(Work::State& operation, Level level) {
  if (operation.reached(level)) return operation.rethrow();
  waiters_.fetch_add(1);
  RankCell& cell = control_.rank(rank());
  if (cell.background.load(std::memory_order_relaxed) != 0) cell.background.store(0);
  {
    Patience patience(cell, context().engine, spin_ ? 0 : kSpins);
    while (!operation.reached(level)) {
      const std::uint32_t bell = cell.doorbell.load();
      Passed passed;
      {
        const std::unique_lock lock(drive_mutex_, std::try_to_lock);
        if (lock.owns_lock()) {
          drive(passed, &operation, level, false);
          if (!passed.moved && patience.worn()) check_health(passed);
        }
      }
      finish(passed);
      if (!passed.moved && patience.worn()) be_overseen();
      if (operation.reached(level)) break;
      if (passed.moved) {
        patience.renew();
      } else {
        patience.pass(bell);
      }
    }
  }
  waiters_.fetch_sub(1);
  bool left = false;
  {
    const std::lock_guard lock(issue_mutex_);
    left = background_ > 0;
  }
  if (left) context().engine.notify_soon();
  hand_over();
  operation.rethrow();
}

void Group::be_overseen() {
  const auto error = overseen_.look();
  if (!error) return;
  Passed passed;
  {
    const std::lock_guard lock(drive_mutex_);
    fail_all(passed, *error);
  }
  finish(passed);
}

void Group::sleep(std::uint32_t bell, std::chrono::nanoseconds most) noexcept {
  RankCell& cell = control_.rank(rank());
  cell.sleepers.fetch_add(1);
  // One more look: bells ring only for those who are counted.
  if (!look_once()) futex_wait(cell.doorbell, bell, most);
  cell.sleepers.fetch_sub(1);
}

}  // namespace wirewise::comm
