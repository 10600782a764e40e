// How a communicator across hosts finds out that something went wrong, and how hosts tell each other.
//
// What goes over the channels: "fail <kind>\n<sentence>\n<remedy>" a failure; "bye" the sender has closed its communicator;
// "who <call>" which ranks of your host are missing in it; "missing <call>\n<absent>\n<silent>\n<waiting>" the answer.
#include <algorithm>
#include <charconv>
#include <thread>

#include "wirewise/comm/spanning_group.h"
#include "wirewise/comm/spanning_operation.h"

namespace wirewise::comm {
namespace {

using namespace std::chrono_literals;

constexpr auto kHealthInterval = 20ms;
constexpr auto kDeathGrace = 100ms;   // what a peer sent before it died may be on its way
constexpr auto kLeaveGrace = 1s;      // the same where it left in order
constexpr auto kSilence = 200ms;      // a rank that looks after its operations shows it more often
constexpr auto kAnswerTime = 500ms;   // how long a deadline waits for what other hosts say

std::string in_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string message_of(const Error& error) {
  return "fail " + std::to_string(static_cast<int>(error.kind())) + "\n" + in_one_line(error.sentence()) + "\n" + in_one_line(error.remedy());
}

std::optional<Error> error_of(std::string_view message) {
  const std::size_t first = message.find('\n');
  const std::size_t second = first == message.npos ? first : message.find('\n', first + 1);
  if (second == message.npos || !message.starts_with("fail ")) return std::nullopt;
  int kind = 0;
  std::from_chars(message.data() + 5, message.data() + first, kind);
  if (kind < 0 || kind > static_cast<int>(ErrorKind::kAborted)) kind = static_cast<int>(ErrorKind::kFailed);
  return Error(static_cast<ErrorKind>(kind), std::string(message.substr(first + 1, second - first - 1)), std::string(message.substr(second + 1)));
}

std::optional<std::uint64_t> number_after(std::string_view message, std::string_view word) {
  if (!message.starts_with(word)) return std::nullopt;
  std::uint64_t number = 0;
  const auto [end, problem] = std::from_chars(message.data() + word.size(), message.data() + message.size(), number);
  return problem == std::errc{} ? std::optional(number) : std::nullopt;
}

std::string seconds(std::chrono::milliseconds time) {
  return time.count() % 1000 == 0 ? std::to_string(time.count() / 1000) + " s" : std::to_string(time.count()) + " ms";
}

void append(std::string& list, const std::string& what) { list += (list.empty() ? "" : ", ") + what; }

}  // namespace

const SpanningOperation* SpanningGroup::oldest_open() const {
  if (!collectives_.empty()) return collectives_.front().get();
  return messages_.empty() ? nullptr : messages_.front().get();
}

void SpanningGroup::fail_all(Passed& passed, const Error& found) {
  local_group()->record_failure(found);
  const Error error = local_group()->recorded_failure().value_or(found);
  bool first = false;
  {
    const std::lock_guard lock(issue_mutex_);
    if (!failure_) {
      failure_ = error;
      if (wires_.channels) wires_.channels->tell(kAnyPeer, message_of(error));
      first = true;
    }
    for (auto& operation : fresh_) messages_.push_back(std::move(operation));
    fresh_.clear();
  }
  if (first) record_flight(error);
  const auto shared = std::make_shared<const Error>(error.kind(), error.sentence(), error.remedy());
  messages_.insert(messages_.end(), collectives_.begin(), collectives_.end());
  collectives_.clear();
  for (const auto& operation : messages_) {
    operation->let_go();
    if (!operation->reached(Level::kComplete)) operation->fail(shared);
    passed.finished.push_back(operation);
  }
  passed.moved = passed.moved || !messages_.empty();
  messages_.clear();
  on_network_ = false;
}

void SpanningGroup::record_flight(const Error& error) noexcept {
  if (!flight_.recorder) return;
  try {
    FlightFailure failure;
    failure.communicator = flight_id_;
    if (const SpanningOperation* const open = oldest_open()) {
      failure.call = open->fingerprint;
      for (const Missing& missing : open->missing()) failure.missing.push_back({missing.rank, missing.arrived});
    }
    flight_.recorder->failed(failure, error);
  } catch (...) {
    // No memory for the record: the error itself counts.
  }
}

void SpanningGroup::abort(const std::string& reason) noexcept {
  try {
    const Error error(ErrorKind::kAborted, options_.name + " was aborted by " + name_of_rank(rank_) + ": " + reason);
    local_group()->record_failure(error);
    if (wires_.channels) wires_.channels->tell(kAnyPeer, message_of(local_group()->recorded_failure().value_or(error)));
    if (wires_.network) wires_.network->wake();
  } catch (...) {
    local_->abort("out of memory");
  }
}

void SpanningGroup::Stragglers::add(const Stragglers& others) {
  for (const auto list : {&Stragglers::absent, &Stragglers::silent, &Stragglers::waiting}) {
    if (!(others.*list).empty()) append(this->*list, others.*list);
  }
}

std::string SpanningGroup::Stragglers::describe() const {
  if (!absent.empty()) return absent + " did not arrive";
  if (!silent.empty()) return silent + " did not answer";
  if (!waiting.empty()) return waiting + " did not arrive";
  return {};
}

SpanningGroup::Stragglers SpanningGroup::stragglers_here(std::uint64_t sequence) const {
  Stragglers found;
  const auto now = Clock::now().time_since_epoch();
  for (int p = 0; p < hosts_.members_count(host()); ++p) {
    const std::string name = name_of_rank(hosts_.members(host())[static_cast<std::size_t>(p)]);
    const bool looks = now - Clock::duration(board_[p].driven.load()) <= kSilence;
    const bool entered = board_[p].calls.load() > sequence;
    if (!entered) append(looks ? found.waiting : found.absent, name);
    if (entered && !looks) append(found.silent, name);
  }
  return found;
}

void SpanningGroup::hear(Passed& passed) {
  for (const auto& [sender, message] : wires_.channels->heard()) {
    if (const auto error = error_of(message)) return fail_all(passed, *error);
    if (message == "bye") departed_.insert(sender);
    if (const auto sequence = number_after(message, "who ")) {
      const Stragglers here = stragglers_here(*sequence);
      wires_.channels->tell(sender, "missing " + std::to_string(*sequence) + "\n" + here.absent + "\n" + here.silent + "\n" + here.waiting);
    }
    if (const auto sequence = number_after(message, "missing ")) {
      if (!question_ || question_->sequence != *sequence) continue;
      std::vector<std::string> lists;
      for (std::size_t at = message.find('\n'); at != message.npos && lists.size() < 3;) {
        const std::size_t end = message.find('\n', at + 1);
        lists.push_back(message.substr(at + 1, end == message.npos ? end : end - at - 1));
        at = end;
      }
      if (lists.size() == 3) question_->answers[sender] = {lists[0], lists[1], lists[2]};
    }
  }
}

bool SpanningGroup::overdue(int r, Clock::time_point now, Clock::duration grace) {
  return now - missed_since_.try_emplace(r, now).first->second >= grace;
}

bool SpanningGroup::find_deaths(Passed& passed, Clock::time_point now, const std::string& during) {
  const char* const advice = "Look at that rank's own output and the kernel log; start again from the last checkpoint.";
  for (const int p : dead_ranks(local_group()->link())) {
    const int r = hosts_.members(host())[static_cast<std::size_t>(p)];
    if (local_group()->control().rank(p).departed.load() != 0) {
      departed_.insert(r);
    } else if (overdue(r, now, kDeathGrace)) {
      fail_all(passed, Error(ErrorKind::kPeerLost, name_of_rank(r) + " died during " + during + ".", advice));
      return true;
    }
  }
  std::vector<int> gone = wires_.channels->dead();
  gone.insert(gone.end(), lost_.begin(), lost_.end());
  for (const int r : gone) {
    if (!departed_.contains(r) && overdue(r, now, kDeathGrace)) {
      fail_all(passed, Error(ErrorKind::kPeerLost, name_of_rank(r) + " died, or its host can't be reached, during " + during + ".", advice));
      return true;
    }
  }
  return false;
}

void SpanningGroup::look_at_peers(Passed& passed, Clock::time_point now) {
  const SpanningOperation* const open = oldest_open();
  if (open == nullptr || find_deaths(passed, now, describe_call(open->fingerprint, options_.name))) return;
  const auto awaited = open->missing();
  for (const int r : departed_) {
    const bool needed = std::any_of(awaited.begin(), awaited.end(), [r](const Missing& missing) { return missing.rank == r; });
    if (!needed || !overdue(r, now, kLeaveGrace)) continue;
    const auto error = overseen_.judge(Error(ErrorKind::kPeerLost,
                                             name_of_rank(r) + " has left " + options_.name + ", but " + name_of_rank(rank_) + " waits for it in " +
                                                 describe_call(open->fingerprint, options_.name) + ".",
                                             "Look at that rank's own output for its reason."));
    if (error) fail_all(passed, *error);
    return;
  }
}

/// Asks the other hosts who is missing in a collective; nullopt while answers are awaited.
std::optional<SpanningGroup::Stragglers> SpanningGroup::ask(std::uint64_t sequence, Clock::time_point now) {
  const bool first = !question_ || question_->sequence != sequence;
  if (first || (!question_->again && now - question_->asked > kSilence)) {
    question_ = Question{sequence, now, !first, {}};
    wires_.channels->tell(kAnyPeer, "who " + std::to_string(sequence));
  }
  if (!question_->again || (question_->answers.size() < rails_.size() && now - question_->asked < kAnswerTime)) return std::nullopt;
  Stragglers all = stragglers_here(sequence);
  std::set<int> told;  // several rails of one host say the same
  for (const int r : rails_) {
    const auto answer = question_->answers.find(r);
    if (answer == question_->answers.end()) {
      append(all.silent, name_of_rank(r));
    } else if (told.insert(hosts_.host_of(r)).second) {
      all.add(answer->second);
    }
  }
  return all;
}

/// Empty while answers are awaited.
std::optional<std::string> SpanningGroup::who_is_missing(const SpanningOperation& operation, Clock::time_point now) {
  std::string absent;
  std::string late;
  if (operation.collective()) {
    const auto stragglers = ask(operation.fingerprint.sequence, now);
    if (!stragglers) return std::nullopt;
    if (std::string names = stragglers->describe(); !names.empty()) return names;
  }
  for (const Missing& missing : operation.missing()) append(missing.arrived ? late : absent, name_of_rank(missing.rank));
  if (!absent.empty()) return absent + " did not arrive";
  if (!late.empty()) return late + " did not finish";
  return "this rank did not get to run it";
}

void SpanningGroup::look_at_deadlines(Passed& passed, Clock::time_point now) {
  const auto overdue = [&](const std::shared_ptr<SpanningOperation>& operation) {
    if (now < operation->deadline) return false;
    const auto missing = who_is_missing(*operation, now);
    if (!missing) return true;
    const auto error = overseen_.judge(
        Error(ErrorKind::kTimeout,
              describe_call(operation->fingerprint, options_.name) + " timed out after " + seconds(operation->timeout) + ": " + *missing + ".",
              "See what those ranks do, or raise the timeout."));
    if (error) fail_all(passed, *error);
    return true;
  };
  // Later collectives only wait for the first.
  if (!collectives_.empty() && overdue(std::shared_ptr(collectives_.front()))) return;
  for (const auto& operation : std::vector(messages_)) {
    if (overdue(operation)) return;
  }
}

void SpanningGroup::look_after(const std::string& doing) {
  Passed passed;
  {
    const std::lock_guard lock(drive_mutex_);
    if (const auto failure = local_group()->recorded_failure()) {
      fail_all(passed, *failure);
    } else {
      const auto now = Clock::now();
      board_[place()].driven.store(now.time_since_epoch().count());
      hear(passed);
      find_deaths(passed, now, doing);
    }
  }
  finish(passed);
  const std::lock_guard lock(issue_mutex_);
  if (failure_) throw *failure_;
}

std::optional<Error> SpanningGroup::blame(const Error& found, const std::string& doing) {
  // Where another thread drives: next time. Who asks may hold locks that it will want.
  const std::unique_lock lock(drive_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return std::nullopt;
  std::uint64_t calls = 0;
  {
    const std::lock_guard issue_lock(issue_mutex_);
    if (failure_) return failure_;
    calls = next_sequence_;
  }
  if (const auto recorded = local_group()->recorded_failure()) return recorded;
  if (found.kind() != ErrorKind::kTimeout) return found;
  const auto all = ask(calls == 0 ? 0 : calls - 1, Clock::now());
  if (!all) return std::nullopt;
  // All look after it: nobody is to blame but whom `found` names.
  if (all->absent.empty() && all->silent.empty()) return found;
  local_group()->record_failure(Error(ErrorKind::kTimeout,
                                      doing + " (after call " + std::to_string(calls) + " of " + options_.name + ") timed out: " + all->describe() + ".",
                                      "See what those ranks do, or raise the timeout."));
  const auto first = local_group()->recorded_failure();  // another rank may be writing one
  if (first) wires_.channels->tell(kAnyPeer, message_of(*first));
  return first;
}

Error SpanningGroup::first_cause(const Error& found, const std::string& doing) noexcept {
  try {
    if (found.kind() == ErrorKind::kTimeout) {
      while (!blame(found, doing)) {
        std::this_thread::sleep_for(kHealthInterval / 4);
        look_after(doing);
      }
    }
    for (const auto end = Clock::now() + 2 * kDeathGrace; Clock::now() < end; std::this_thread::sleep_for(kHealthInterval / 4)) look_after(doing);
    Passed passed;
    {
      const std::lock_guard lock(drive_mutex_);
      fail_all(passed, found);
    }
    finish(passed);
    look_after(doing);
  } catch (const Error& first) {
    return first;
  } catch (...) {
    // No memory for the search: what was found counts.
  }
  return found;
}

void SpanningGroup::check_health(Passed& passed) {
  const auto now = Clock::now();
  if (now < next_health_check_) return;
  next_health_check_ = now + kHealthInterval;
  board_[place()].driven.store(now.time_since_epoch().count());
  hear(passed);
  look_at_peers(passed, now);
  look_at_deadlines(passed, now);
}

}  // namespace wirewise::comm
