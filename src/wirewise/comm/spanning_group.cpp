#include "wirewise/comm/spanning_group.h"

#include <pthread.h>

#include <algorithm>
#include <new>

#include "wirewise/comm/phase.h"
#include "wirewise/comm/spanning_operation.h"
#include "wirewise/comm/signals_blocked.h"

namespace wirewise::comm {
namespace {

using namespace std::chrono_literals;

constexpr int kSpins = 200;
constexpr auto kYieldTime = 100us;
constexpr auto kNetworkSleep = 5ms;
constexpr auto kLocalSleep = 1ms;
constexpr auto kSleepForBoth = 200us;  // the network's descriptor doesn't tell of the host's bell

}  // namespace

SpanningGroup::SpanningGroup(HostMap hosts, int rank, std::vector<RankIdentity> identities, std::unique_ptr<LocalCommunicator> local,
                             Wires wires, FlightTicket flight, CommunicatorOptions options)
    : hosts_(std::move(hosts)),
      rank_(rank),
      identities_(std::move(identities)),
      local_(std::move(local)),
      wires_(std::move(wires)),
      flight_(std::move(flight)),
      options_(std::move(options)),
      rails_(hosts_.rails(rank)) {
  const Group& group = *local_->group();
  spin_ = group.link().own_core;
  const auto places = static_cast<std::size_t>(group.size());
  std::uint64_t offset = 0;
  if (group.rank() == 0) {
    board_block_ = group.context().arena.allocate(places * sizeof(Entered));
    for (std::size_t p = 0; p < places; ++p) ::new (static_cast<Entered*>(board_block_) + p) Entered{};
    offset = static_cast<std::uint64_t>(static_cast<std::byte*>(board_block_) - group.context().arena.base());
  }
  CallOptions call;
  call.label = "start of " + options_.name;
  call.progress = CallOptions::Progress::kOnWait;
  local_->broadcast({&offset, DType::kInt64}, 1, 0, call).wait();
  board_ = reinterpret_cast<Entered*>(group.at(0, offset));
}

SpanningGroup::~SpanningGroup() { close(); }

std::string SpanningGroup::name_of_rank(int r) const {
  const RankIdentity& identity = identities_[static_cast<std::size_t>(r)];
  return "rank " + std::to_string(r) + " (" + identity.host + ", pid " + std::to_string(identity.pid) + ")";
}

Error SpanningGroup::mismatch(int a, const Fingerprint& first, int b, const Fingerprint& second) const {
  if (a > b) return mismatch(b, second, a, first);
  return Error(ErrorKind::kMismatch,
               "ranks disagree: " + name_of_rank(a) + " called " + describe_call(first, options_.name) + ", " + name_of_rank(b) + " called " +
                   describe_call(second, options_.name) + ".",
               "Make all ranks call the same operations in one order, with equal types, counts, root and reduction.");
}

// --- issuing

Work SpanningGroup::issue(std::shared_ptr<SpanningOperation> operation) {
  {
    const std::lock_guard lock(issue_mutex_);
    if (failure_) throw *failure_;
    if (operation->collective()) {
      operation->fingerprint.sequence = next_sequence_++;
      board_[place()].calls.store(next_sequence_);
    }
    fresh_.push_back(operation);
    if (flight_.recorder) operation->record_in(*flight_.recorder, flight_id_);
    if (operation->background) background_.fetch_add(1);
  }
  phase("issued");
  if (operation->background) {
    const std::lock_guard lock(thread_mutex_);
    if (!thread_.joinable()) {
      const SignalsBlocked blocked;
      thread_ = std::thread([this] { run_in_background(); });
    }
    thread_wanted_.notify_all();
  }
  return Work(std::move(operation));
}

void SpanningGroup::count_from_here() {
  const std::lock_guard lock(issue_mutex_);
  next_sequence_ = 0;
  board_[place()].calls.store(0);
  if (!flight_.recorder) return;
  std::vector<FlightMember> members;
  for (int r = 0; r < size(); ++r) {
    const RankIdentity& identity = identities_[static_cast<std::size_t>(r)];
    members.push_back({flight_.job_rank(r), identity.host, identity.pid});
  }
  flight_id_ = flight_.recorder->add(options_.name, rank_, std::move(members));
  if (!options_.flight_dir.empty()) flight_.recorder->set_folder(options_.flight_dir);
}

// --- driving

bool SpanningGroup::advance(Passed& passed, const std::shared_ptr<SpanningOperation>& operation) {
  operation->record_driven();
  const bool moved = operation->step();
  if (moved) phase("stepped");
  passed.moved = passed.moved || moved;
  if (!operation->reached(Level::kComplete)) return false;
  passed.finished.push_back(operation);
  return true;
}

void SpanningGroup::drive(Passed& passed) {
  try {
    if (const auto failure = local_group()->recorded_failure()) return fail_all(passed, *failure);
    {
      const std::lock_guard lock(issue_mutex_);
      for (auto& operation : fresh_) {
        if (operation->collective()) {
          collectives_.push_back(std::move(operation));
        } else {
          messages_.push_back(std::move(operation));
        }
      }
      fresh_.clear();
    }
    if (collectives_.empty() && messages_.empty()) return;
    passed.moved = network().progress() || passed.moved;
    while (!collectives_.empty() && advance(passed, collectives_.front())) collectives_.pop_front();
    std::erase_if(messages_, [&](const auto& operation) { return advance(passed, operation); });
    on_network_ = (!collectives_.empty() && collectives_.front()->on_network()) ||
                  std::any_of(messages_.begin(), messages_.end(), [](const auto& operation) { return operation->on_network(); });
    on_host_ = !collectives_.empty() && collectives_.front()->on_host();
  } catch (const Error& error) {
    fail_all(passed, error);
  } catch (const std::exception& error) {
    fail_all(passed, Error(ErrorKind::kFailed, options_.name + ": " + error.what() + "."));
  }
}

void SpanningGroup::finish(Passed& passed) noexcept {
  for (const auto& operation : passed.finished) {
    if (operation->background) background_.fetch_sub(1);
    operation->run_callbacks();
  }
  if (passed.finished.empty()) return;
  { const std::lock_guard lock(thread_mutex_); }
  passed_.notify_all();
}

void SpanningGroup::progress() {
  Passed passed;
  {
    const std::unique_lock lock(drive_mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    drive(passed);
    if (!passed.moved) check_health(passed);
  }
  finish(passed);
}

bool SpanningGroup::test(SpanningOperation& operation) {
  if (!operation.reached(Level::kComplete)) progress();
  if (!operation.reached(Level::kComplete)) return false;
  operation.rethrow();
  return true;
}

void SpanningGroup::idle(int& spins, Clock::time_point& since, std::uint32_t bell) {
  if (spin_ && ++spins < kSpins) return;
  const auto now = Clock::now();
  if (since == Clock::time_point{}) since = now;
  if (now - since < kYieldTime) {
    std::this_thread::yield();
  } else if (on_network_) {
    network().sleep(on_host_ ? std::chrono::nanoseconds(kSleepForBoth) : std::chrono::nanoseconds(kNetworkSleep));
  } else {
    local_group()->sleep(bell, kLocalSleep);
  }
}

void SpanningGroup::wait(SpanningOperation& operation, Level level) {
  if (operation.reached(level)) return operation.rethrow();
  waiters_.fetch_add(1);
  int spins = 0;
  Clock::time_point since{};
  while (!operation.reached(level)) {
    const std::uint32_t bell = local_group()->bell();
    Passed passed;
    bool mine = false;
    {
      const std::unique_lock lock(drive_mutex_, std::try_to_lock);
      mine = lock.owns_lock();
      if (mine) {
        drive(passed);
        if (!passed.moved) check_health(passed);
      }
    }
    finish(passed);
    if (!passed.moved) be_overseen();
    if (operation.reached(level)) break;
    if (passed.moved) {
      spins = 0;
      since = {};
    } else if (mine) {
      idle(spins, since, bell);
    } else {
      std::unique_lock lock(thread_mutex_);
      passed_.wait_for(lock, 1ms);
    }
  }
  waiters_.fetch_sub(1);
  if (background_ > 0) {
    { const std::lock_guard lock(thread_mutex_); }
    thread_wanted_.notify_all();
  }
  operation.rethrow();
}

void SpanningGroup::be_overseen() {
  const auto error = overseen_.look();
  if (!error) return;
  Passed passed;
  {
    const std::lock_guard lock(drive_mutex_);
    fail_all(passed, *error);
  }
  finish(passed);
}

void SpanningGroup::run_in_background() {
  pthread_setname_np(pthread_self(), "wirewise-span");
  int spins = kSpins;
  Clock::time_point since{};
  for (;;) {
    {
      std::unique_lock lock(thread_mutex_);
      thread_wanted_.wait(lock, [this] { return stop_ || (background_ > 0 && waiters_ == 0); });
      if (stop_) return;
    }
    const std::uint32_t bell = local_group()->bell();
    Passed passed;
    {
      const std::lock_guard lock(drive_mutex_);
      drive(passed);
      if (!passed.moved) check_health(passed);
    }
    finish(passed);
    if (passed.moved) {
      since = {};
    } else {
      idle(spins, since, bell);
    }
  }
}

// --- ending

void SpanningGroup::close() noexcept {
  {
    const std::lock_guard lock(issue_mutex_);
    if (closed_) return;
    closed_ = true;
  }
  {
    const std::lock_guard lock(thread_mutex_);
    stop_ = true;
  }
  thread_wanted_.notify_all();
  if (wires_.network) wires_.network->wake();
  if (thread_.joinable()) thread_.join();
  Passed passed;
  try {
    const std::lock_guard lock(drive_mutex_);
    drive(passed);
    const Error closed(ErrorKind::kAborted, options_.name + ": " + name_of_rank(rank_) + " has closed its communicator.",
                       "Wait for operations before the communicator ends.");
    if (const SpanningOperation* const open = oldest_open()) {
      fail_all(passed, Error(ErrorKind::kAborted,
                             name_of_rank(rank_) + " closed its communicator with " + describe_call(open->fingerprint, options_.name) + " in flight.",
                             closed.remedy()));
    }
    const std::lock_guard issue_lock(issue_mutex_);
    if (!failure_) failure_ = closed;
  } catch (...) {
    collectives_.clear();
    messages_.clear();
  }
  finish(passed);
  if (flight_.recorder) flight_.recorder->close(flight_id_);
  if (wires_.channels) wires_.channels->tell(kAnyPeer, "bye");
  wires_.network.reset();
  wires_.channels.reset();
  for (void* const block : kept_) local_group()->keep_until_closed(block);
  if (board_block_ != nullptr) local_group()->keep_until_closed(board_block_);
  local_.reset();
}

}  // namespace wirewise::comm
