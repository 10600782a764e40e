// How a group finds out that something went wrong, and what it says: the first failure of any rank is written to control memory, and all
// ranks report that one.
#include <algorithm>
#include <cstring>
#include <thread>

#include "wirewise/comm/futex.h"
#include "wirewise/comm/group.h"
#include "wirewise/comm/names.h"

namespace wirewise::comm {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kHealthInterval = 20ms;

std::string seconds(std::chrono::milliseconds time) {
  const auto whole = time.count() / 1000;
  return time.count() % 1000 == 0 ? std::to_string(whole) + " s" : std::to_string(time.count()) + " ms";
}

template <std::size_t kSize>
void copy_text(char (&target)[kSize], const std::string& text) noexcept {
  const std::size_t length = std::min(text.size(), kSize - 1);
  std::memcpy(target, text.data(), length);
  target[length] = 0;
}

}  // namespace

std::string Group::name_of_rank(int r) const {
  const RankIdentity& identity = link_.identities[static_cast<std::size_t>(r)];
  return "rank " + std::to_string(identity.number) + " (" + identity.host + ", pid " + std::to_string(identity.pid) + ")";
}

std::string Group::describe(const Fingerprint& print) const { return link_.inner ? print.label : describe_call(print, options_.name); }

std::string describe_call(const Fingerprint& print, const std::string& communicator) {
  std::string text = name_of(print.operation);
  if (print.operation != Operation::kBarrier) {
    text += " of " + std::to_string(print.count) + " " + std::string(wirewise::name_of(print.in));
    if (print.out != print.in) text += " to " + std::string(wirewise::name_of(print.out));
    if (print.parts > 1) text += " in " + std::to_string(print.parts) + " parts";
  }
  if (reduces(print.operation) && print.reduction != Reduction::kSum) text += ", " + std::string(name_of(print.reduction));
  if (print.accumulate) text += ", accumulated";
  if (is_message(print.operation)) {
    text += print.operation == Operation::kSend ? " to " : " from ";
    text += (print.root == kAnySource ? "any rank" : "rank " + std::to_string(print.root)) + " with tag " + std::to_string(static_cast<std::int64_t>(print.hash));
    text += " (" + communicator;
  } else {
    if (print.root >= 0) text += ", root " + std::to_string(print.root);
    text += " (call " + std::to_string(print.sequence) + " of " + communicator;
  }
  if (print.label[0] != 0) text += ", '" + std::string(print.label) + "'";
  return text + ")";
}

Error Group::mismatch(int a, const Fingerprint& first, int b, const Fingerprint& second) const {
  if (a > b) return mismatch(b, second, a, first);
  return Error(ErrorKind::kMismatch,
               "ranks disagree: " + name_of_rank(a) + " called " + describe(first) + ", " + name_of_rank(b) + " called " + describe(second) + ".",
               "Make all ranks call the same operations in one order, with equal types, counts, root and reduction.");
}

void Group::record_failure(const Error& error) noexcept {
  ControlHeader& header = control_.header();
  std::uint32_t none = 0;
  if (!header.failure.compare_exchange_strong(none, 1)) return;
  header.failure_kind = static_cast<std::uint32_t>(error.kind());
  copy_text(header.failure_sentence, error.sentence());
  copy_text(header.failure_remedy, error.remedy());
  header.failure.store(2);
  for (int r = 0; r < size(); ++r) {
    ring(r);
    ring_engine(link_.arena_header(r));  // of a rank that waits for nothing too
  }
}

std::optional<Error> Group::recorded_failure() const {
  const ControlHeader& header = control_.header();
  if (header.failure.load() != 2) return std::nullopt;
  return Error(static_cast<ErrorKind>(header.failure_kind), header.failure_sentence, header.failure_remedy);
}

void Group::look_for_failure(Passed& passed) {
  if (control_.header().failure.load() != 2) return;
  if (const auto error = recorded_failure()) fail_all(passed, *error);
}

void Group::fail_all(Passed& passed, const Error& found) {
  record_failure(found);
  // Another rank may be writing an earlier cause; should it have died over that, ours stands.
  const auto limit = Clock::now() + 100ms;
  while (control_.header().failure.load() != 2 && Clock::now() < limit) std::this_thread::yield();
  const Error error = recorded_failure().value_or(found);
  {
    const std::lock_guard lock(issue_mutex_);
    if (!failure_) failure_ = error;
    active_.insert(active_.end(), fresh_.begin(), fresh_.end());
    fresh_.clear();
    unposted_.clear();
    background_ = 0;
  }
  for (const auto& operation : active_) {
    if (!operation->reached(Level::kComplete)) operation->record_failure();
  }
  // Before callers hear of it: they may end the process.
  record_flight(error);
  const auto shared = std::make_shared<const Error>(error.kind(), error.sentence(), error.remedy());
  for (const auto& operation : active_) {
    if (!operation->reached(Level::kComplete)) operation->fail(shared);
    settle(operation, passed);
    operation->release();
  }
  passed.moved = passed.moved || !active_.empty();
  active_.clear();
  stage_queue_.clear();
}

void Group::begin_record() {
  if (!link_.flight) return;
  std::vector<FlightMember> members;
  for (std::size_t r = 0; r < link_.identities.size(); ++r) {
    members.push_back({r < link_.job_ranks.size() ? link_.job_ranks[r] : -1, link_.identities[r].host, link_.identities[r].pid});
  }
  flight_id_ = link_.flight->add(options_.name, rank(), std::move(members));
  if (!options_.flight_dir.empty()) link_.flight->set_folder(options_.flight_dir);
  // Somebody wants records: the progress thread then hears of failures even while this rank is stuck elsewhere.
  if (size() > 1 && !link_.flight->folder().empty()) context().engine.notify();
}

std::uint64_t Group::entered_by(int r) const noexcept {
  std::uint64_t most = 0;
  for (std::uint64_t slot = 0; slot < kSlots; ++slot) most = std::max(most, control_.call(slot, r).issued.load(std::memory_order_acquire));
  return most;
}

void Group::record_flight(const Error& error) noexcept {
  if (!link_.flight || flight_told_.exchange(true)) return;
  try {
    FlightFailure failure;
    failure.communicator = flight_id_;
    for (const auto& operation : active_) {
      if (operation->reached(Level::kComplete)) continue;
      failure.call = operation->fingerprint;
      for (const Missing& missing : operation->missing()) failure.missing.push_back({missing.rank, missing.arrived});
      break;
    }
    for (int r = 0; r < size(); ++r) failure.entered.push_back(entered_by(r));
    link_.flight->failed(failure, error);
  } catch (...) {
    // No memory for the record: the error itself counts.
  }
}

std::string Group::describe_missing(const Work::State& operation) const {
  std::string absent;
  std::string late;
  for (const Missing& missing : operation.missing()) {
    std::string& list = missing.arrived ? late : absent;
    list += (list.empty() ? "" : ", ") + name_of_rank(missing.rank);
  }
  // Where some are absent, the others only wait for them.
  if (!absent.empty()) return absent + " did not arrive";
  if (!late.empty()) return late + " did not finish";
  return "this rank did not get to run it";
}

void Group::check_health(Passed& passed) {
  const auto now = Clock::now();
  if (now < next_health_check_) return;
  next_health_check_ = now + kHealthInterval;
  const auto open = [this] {
    return std::find_if(active_.begin(), active_.end(), [](const auto& op) { return !op->reached(Level::kComplete); });
  };
  if (open() == active_.end()) return;

  std::vector<int> lost;
  std::vector<int> left;
  const std::vector<int> dead = dead_ranks(link_);
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    if (control_.rank(r).departed.load() != 0) {
      left.push_back(r);
    } else if (std::binary_search(dead.begin(), dead.end(), r)) {
      lost.push_back(r);
    }
  }
  if (!lost.empty() || !left.empty()) {
    // They may have finished their part before they went.
    drive(passed, nullptr, Level::kComplete, false);
    const auto first = open();
    if (first == active_.end()) return;
    if (!lost.empty()) {
      return fail_all(passed, Error(ErrorKind::kPeerLost, name_of_rank(lost.front()) + " died during " + describe((*first)->fingerprint) + ".",
                                    "Look at that rank's own output and the kernel log; start again from the last checkpoint."));
    }
    for (const auto& operation : active_) {
      if (operation->reached(Level::kComplete)) continue;
      for (const Missing& missing : operation->missing()) {
        if (std::find(left.begin(), left.end(), missing.rank) == left.end()) continue;
        const auto error = overseen_.judge(Error(ErrorKind::kPeerLost,
                                                 name_of_rank(missing.rank) + " has left " + options_.name + ", but " + name_of_rank(rank()) +
                                                     " waits for it in " + describe(operation->fingerprint) + ".",
                                                 "Look at that rank's own output for its reason."));
        if (error) fail_all(passed, *error);
        return;
      }
    }
  }
  for (const auto& operation : active_) {
    if (operation->reached(Level::kComplete) || now < operation->deadline) continue;
    const auto error = overseen_.judge(Error(ErrorKind::kTimeout,
                                             describe(operation->fingerprint) + " timed out after " + seconds(operation->timeout) + ": " +
                                                 describe_missing(*operation) + ".",
                                             "See what those ranks do, or set a longer timeout for the call."));
    if (error) fail_all(passed, *error);
    return;
  }
}

}  // namespace wirewise::comm
