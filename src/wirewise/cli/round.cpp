#include "wirewise/cli/round.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "wirewise/base/error.h"
#include "wirewise/cli/launch_orders.h"

namespace wirewise {
namespace {

/// After an exit 75 the true cause may still be dying, writing its core: it gets this long before the others are ended.
constexpr std::chrono::seconds kSettle{1};
/// Ranks that leave by themselves after saving do so together; one that doesn't follow is ended.
constexpr std::chrono::seconds kFollow{30};

}  // namespace

Round::Round(const std::vector<RankStart>& starts, const SignalSource& signals, Seconds grace, int orders)
    : signals_(signals), grace_(grace), orders_(orders) {
  for (const RankStart& start : starts) ranks_.push_back(std::make_unique<RankProcess>(start));
}

void Round::run() {
  while (exits_.size() < ranks_.size()) {
    wait();
    while (const auto number = signals_.next()) answer(*number);
    reap();
    keep_deadlines();
  }
}

void Round::wait() {
  std::vector<pollfd> polled{{signals_.fd(), POLLIN, 0}, {orders_, POLLIN, 0}};  // a negative descriptor is not looked at
  const std::size_t before = polled.size();
  std::vector<RankStream*> streams;
  for (const auto& rank : ranks_) {
    for (RankStream& stream : rank->streams()) {
      if (stream.fd() < 0) continue;
      polled.push_back({stream.fd(), POLLIN, 0});
      streams.push_back(&stream);
    }
  }
  int timeout = -1;
  if (deadline_)
    timeout =
        static_cast<int>(std::max<long long>(0, std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now()).count()));
  if (poll(polled.data(), polled.size(), timeout) < 0) {
    if (errno == EINTR) return;
    throw Error(ErrorKind::kFailed, fmt::format("the ranks can't be watched ({}).", std::strerror(errno)));
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (polled[i + before].revents != 0) streams[i]->forward();
  }
  if (orders_ >= 0 && polled[1].revents != 0) take_orders();
}

void Round::take_orders() {
  std::array<char, 64> letters;
  const ssize_t count = read(orders_, letters.data(), letters.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (count <= 0) {
    orders_ = -1;
    if (called_off_ == CalledOff::kNo) {
      called_off_ = CalledOff::kByLoss;
      end_all();
    }
    return;
  }
  for (ssize_t i = 0; i < count; ++i) {
    const char letter = letters[static_cast<std::size_t>(i)];
    if (const auto number = signal_of(letter)) answer(*number);
    if (letter == kEndOrder && called_off_ == CalledOff::kNo) {
      called_off_ = CalledOff::kByOrder;
      end_all();
    }
  }
}

void Round::answer(int number) {
  if (number == SIGCHLD) return;
  const int passed = number == SIGHUP ? SIGTERM : number;
  if (forwarded_.insert(passed).second) {
    signal_all(passed);
  } else if (number == SIGINT) {  // a person who asks twice means now
    signal_all(SIGKILL);
  }
}

void Round::signal_all(int number) const {
  for (const auto& rank : ranks_) rank->signal(number);
}

void Round::reap() {
  for (const auto& rank : ranks_) {
    RankExit exit;
    if (!rank->reap(exit.signalled, exit.value)) continue;
    exit.rank = rank->rank();
    exit.pid = rank->pid();
    exit.told_to_end = phase_ >= Phase::kTerminated;
    exit.stop_forwarded = stop_requested();
    exit.last_lines = rank->last_lines();
    exits_.push_back(exit);
  }
}

/// Asks all to end; those that don't within the grace are killed.
void Round::end_all() {
  if (phase_ == Phase::kTerminated) return;
  phase_ = Phase::kTerminated;
  for (const auto& rank : ranks_) rank->end();
  deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(grace_));
}

/// Once one has failed, the others have until a deadline; then comes the next harsher request.
void Round::keep_deadlines() {
  if (exits_.size() == ranks_.size()) return;
  if (phase_ == Phase::kTerminated) {
    if (!deadline_ || Clock::now() < *deadline_) return;
    signal_all(SIGKILL);
    deadline_.reset();
    return;
  }
  const RankExit* cause = first_cause(exits_);
  if (cause == nullptr) return;
  const ExitClass kind = classify(*cause);
  std::optional<Clock::duration> patience;
  if (kind == ExitClass::kFailed) patience = Clock::duration::zero();
  if (kind == ExitClass::kRetry) patience = kSettle;
  if (kind == ExitClass::kStopped && !stop_requested()) patience = kFollow;
  if (!patience) return;
  const auto until = Clock::now() + *patience;
  if (!deadline_ || until < *deadline_) deadline_ = until;
  phase_ = Phase::kWaiting;
  if (Clock::now() >= *deadline_) end_all();
}

}  // namespace wirewise
