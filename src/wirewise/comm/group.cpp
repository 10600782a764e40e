#include "wirewise/comm/group.h"

#include <algorithm>
#include <bit>
#include <thread>

#include "wirewise/comm/futex.h"
#include "wirewise/comm/phase.h"
#include "wirewise/comm/small_operation.h"

namespace wirewise::comm {
namespace {

/// Wakes the threads of a rank that sleep on its bell. What they wait for was stored in one order with all (memory_order_seq_cst), and they
/// look once more between counting themselves and sleeping: so none is missed, and nobody's bell is touched in vain.
void ring_waiters(RankCell& cell) noexcept {
  if (cell.sleepers.load() == 0) return;
  cell.doorbell.fetch_add(1);
  futex_wake_all(cell.doorbell);
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

void Group::serve(const std::vector<RankIdentity>& identities, const std::vector<int>& members) {
  link_.inner = true;
  if (link_.flight) link_.flight->close(flight_id_);
  link_.flight.reset();  // the communicator across hosts records its own calls
  for (std::size_t p = 0; p < members.size(); ++p) link_.identities[p] = identities[static_cast<std::size_t>(members[p])];
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

/// Operations that are not complete fail, and all later ones.
void Group::fail_open(Passed& passed) noexcept {
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
    fail_open(passed);
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
  const auto left = [control = control_, mappings = link_.mappings](int r) { return control.rank(r).departed.load() != 0; };
  try {
    context().free_when(once_all_left(link_, left), std::move(blocks));
  } catch (...) {
    // The blocks stay until the process ends.
  }
}

}  // namespace wirewise::comm
