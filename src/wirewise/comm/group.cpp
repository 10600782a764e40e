#include "wirewise/comm/group.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>

#include "wirewise/comm/futex.h"
#include "wirewise/comm/phase.h"
#include "wirewise/comm/small_operation.h"
#include "wirewise/comm/spin.h"

namespace wirewise::comm {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int kSpins = 300;
constexpr auto kYieldTime = 150us;
constexpr auto kSleep = 20ms;
constexpr auto kHelpAfter = 10ms;

/// Wakes the threads of a rank that sleep on its bell. What they wait for was stored in one order with all (memory_order_seq_cst), and they
/// look once more between counting themselves and sleeping: so none is missed, and nobody's bell is touched in vain.
void ring_waiters(RankCell& cell) noexcept {
  if (cell.sleepers.load() == 0) return;
  cell.doorbell.fetch_add(1);
  futex_wake_all(cell.doorbell);
}

/// Tells this rank's own threads: also those that are about to sleep (Group::sleep) on news of another thread.
void ring_own(RankCell& cell) noexcept {
  cell.doorbell.fetch_add(1);
  if (cell.sleepers.load() != 0) futex_wake_all(cell.doorbell);
}

}  // namespace

Group::Group(Link link, CommunicatorOptions options)
    : link_(std::move(link)), control_(at(link_.control_owner, link_.control), link_.size), options_(std::move(options)), peer_memory_(link_, control_),
      mailboxes_(link_.size) {
  spin_ = link_.own_core;
  known_finished_.resize(static_cast<std::size_t>(link_.size));
  context().collect();
  begin_record();
  context().engine.add(this);
}

Group::~Group() {
  close();
  // The progress thread can't end itself: another lets go of the context.
  if (context().engine.on_thread()) std::thread([last = std::move(link_.context)] {}).detach();
}

// --- issuing

bool Group::all_finished(std::uint64_t sequence) noexcept {
  for (int r = 0; r < size(); ++r) {
    auto& known = known_finished_[static_cast<std::size_t>(r)];
    if (known > sequence) continue;
    known = r == rank() ? finished_ : control_.rank(r).finished.load(std::memory_order_acquire);
    if (known <= sequence) return false;
  }
  return true;
}

bool Group::slot_free(std::uint64_t sequence) noexcept { return sequence < kSlots || all_finished(sequence - kSlots); }

void Group::finish_sequence(std::uint64_t sequence) noexcept {
  if (sequence > finished_) {
    finished_mask_ |= std::uint64_t{1} << (sequence - finished_ - 1);
    return;
  }
  const int more = std::countr_one(finished_mask_);
  finished_ += 1 + static_cast<std::uint64_t>(more);
  finished_mask_ = more >= 63 ? 0 : finished_mask_ >> (more + 1);
  control_.rank(rank()).finished.store(finished_, std::memory_order_release);
}

std::uint64_t Group::take_lane(std::uint64_t sequence) {
  if (lane_memory_ == nullptr) lane_memory_ = context().arena.allocate(kLanes * kSmallBytes);
  const auto lanes = static_cast<std::uint64_t>(static_cast<std::byte*>(lane_memory_) - context().arena.base());
  const std::size_t lane = lane_turn_ % kLanes;
  if (lane_users_[lane] > 0 && !all_finished(lane_users_[lane] - 1)) return 0;
  lane_users_[lane] = sequence + 1;
  ++lane_turn_;
  return lanes + lane * kSmallBytes;
}

void Group::post_ready() {
  if (control_.header().failure.load() != 0) return;  // whatever waits fails with the next look
  while (!unposted_.empty() && slot_free(unposted_.front()->fingerprint.sequence) && unposted_.front()->post()) {
    unposted_.pop_front();
  }
}

std::uint64_t Group::stage_offset() {
  const std::lock_guard lock(issue_mutex_);
  if (stage_ == nullptr) stage_ = context().arena.allocate(kStageBytes);
  return static_cast<std::uint64_t>(static_cast<std::byte*>(stage_) - context().arena.base());
}

Work Group::issue(std::shared_ptr<Work::State> operation) {
  {
    const std::lock_guard lock(issue_mutex_);
    if (failure_) throw *failure_;
    if (operation->collective()) {
      operation->fingerprint.sequence = next_sequence_++;
      unposted_.push_back(operation);
    }
    fresh_.push_back(operation);
    if (operation->background) ++background_;
    if (link_.flight) operation->record_in(*link_.flight, flight_id_);
    phase("issued");
    post_ready();
  }
  phase("posted");
  if (operation->background && waiters_.load() == 0) context().engine.notify();
  return Work(std::move(operation));
}

Work Group::issue_announced(std::shared_ptr<Work::State> operation) {
  std::optional<Error> failure;
  {
    const std::lock_guard lock(issue_mutex_);
    // Peers have seen the call, so it is in the record whatever comes of it.
    if (link_.flight) operation->record_in(*link_.flight, flight_id_);
    failure = failure_;
    if (!failure) {
      fresh_.push_back(operation);
      if (operation->background) ++background_;
    }
  }
  if (failure) {
    operation->record_failure();
    if (link_.flight) link_.flight->dump_again();  // the progress thread may have written the record without it
    throw *failure;
  }
  phase("posted");
  ring_peers();
  if (operation->background && waiters_.load() == 0) context().engine.notify_soon();
  return Work(std::move(operation));
}

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
  int spins = spin_ ? 0 : kSpins;
  Clock::time_point idle_since{};
  bool helped = false;
  bool counted = false;  // among the sleepers
  while (!operation.reached(level)) {
    const std::uint32_t bell = cell.doorbell.load();
    Passed passed;
    {
      const std::unique_lock lock(drive_mutex_, std::try_to_lock);
      if (lock.owns_lock()) {
        drive(passed, &operation, level, false);
        if (!passed.moved && spins > kSpins) check_health(passed);
      }
    }
    finish(passed);
    if (!passed.moved && spins > kSpins) be_overseen();
    if (operation.reached(level)) break;
    if (passed.moved) {
      spins = spin_ ? 0 : kSpins;
      idle_since = {};
    } else if (spins < kSpins) {
      ++spins;
      relax();
    } else {
      ++spins;
      const auto now = Clock::now();
      if (idle_since == Clock::time_point{}) idle_since = now;
      if (now - idle_since < kYieldTime) {
        std::this_thread::yield();
        continue;
      }
      if (!helped && now - idle_since > kHelpAfter) {
        helped = true;
        context().engine.begin_help();
      }
      if (counted) futex_wait(cell.doorbell, bell, kSleep);
      // Counted before the last look: whoever moves something from here on rings.
      if (!counted) cell.sleepers.fetch_add(1);
      counted = true;
      continue;
    }
    if (counted) cell.sleepers.fetch_sub(1);
    counted = false;
  }
  if (counted) cell.sleepers.fetch_sub(1);
  if (helped) context().engine.end_help();
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

void Group::serve(const std::vector<RankIdentity>& identities, const std::vector<int>& members) {
  link_.inner = true;
  if (link_.flight) link_.flight->close(flight_id_);
  link_.flight.reset();  // the communicator across hosts records its own calls
  for (std::size_t p = 0; p < members.size(); ++p) link_.identities[p] = identities[static_cast<std::size_t>(members[p])];
}

// --- for operations

void Group::ring(int r) noexcept {
  phase("ring");
  RankCell& cell = control_.rank(r);
  ring_waiters(cell);
  if (cell.background.load() != 0) ring_engine(link_.arena_header(r));
}

void Group::ring_peers() noexcept {
  for (int r = 0; r < size(); ++r) {
    if (r != rank()) ring(r);
  }
}

void Group::leave_stage(const Work::State* operation) noexcept { std::erase(stage_queue_, operation); }

// --- ending

void Group::abort(const std::string& reason) noexcept {
  try {
    record_failure(Error(ErrorKind::kAborted, options_.name + " was aborted by " + name_of_rank(rank()) + ": " + reason));
  } catch (...) {
    // No memory for the text: the fact alone.
    std::uint32_t none = 0;
    ControlHeader& header = control_.header();
    if (header.failure.compare_exchange_strong(none, 1)) {
      header.failure_kind = static_cast<std::uint32_t>(ErrorKind::kAborted);
      header.failure.store(2);
    }
  }
}

void Group::close() noexcept {
  {
    const std::lock_guard lock(issue_mutex_);
    if (closed_) return;
    closed_ = true;
  }
  context().engine.remove(this);
  Passed passed;
  std::vector<void*> blocks;
  {
    const std::lock_guard lock(drive_mutex_);
    try {
      drive(passed, nullptr, Level::kComplete, false);
      const Error closed(ErrorKind::kAborted, options_.name + ": " + name_of_rank(rank()) + " has closed its communicator.",
                         "Wait for operations before the communicator ends.");
      const auto open = std::find_if(active_.begin(), active_.end(), [](const auto& op) { return !op->reached(Level::kComplete); });
      if (open != active_.end()) {
        fail_all(passed, Error(ErrorKind::kAborted, name_of_rank(rank()) + " closed its communicator with " +
                                                        describe((*open)->fingerprint) + " in flight.", closed.remedy()));
      }
      for (const auto& operation : active_) operation->release();
      active_.clear();
      const std::lock_guard issue_lock(issue_mutex_);
      if (!failure_) failure_ = closed;
    } catch (...) {
      active_.clear();
    }
    blocks = std::move(kept_);
    kept_.clear();
    {
      const std::lock_guard issue_lock(issue_mutex_);
      if (stage_ != nullptr) blocks.push_back(stage_);
      if (lane_memory_ != nullptr) blocks.push_back(lane_memory_);
    }
    if (link_.control_owner == rank()) blocks.push_back(at(rank(), link_.control));
  }
  finish(passed);
  if (link_.flight) link_.flight->close(flight_id_);
  control_.rank(rank()).departed.store(1);
  control_.rank(rank()).background.store(0);
  ring_peers();
  // Peers may still read this rank's cells and staged data.
  const auto unused = [control = control_, size = size(), mappings = link_.mappings, liveness = link_.liveness,
                       numbers = link_.liveness_ranks] {
    const std::vector<int> dead = liveness ? liveness->dead() : std::vector<int>{};
    for (int r = 0; r < size; ++r) {
      if (control.rank(r).departed.load() != 0) continue;
      if (std::find(dead.begin(), dead.end(), liveness ? numbers[static_cast<std::size_t>(r)] : -1) == dead.end()) return false;
    }
    return true;
  };
  try {
    context().free_when(unused, std::move(blocks));
  } catch (...) {
    // The blocks stay until the process ends.
  }
}

}  // namespace wirewise::comm
