#include "wirewise/comm/host_channels_strangers.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "wirewise/comm/host_channels_greeting.h"
#include "wirewise/comm/host_channels_state.h"

namespace wirewise::comm {
namespace {

constexpr auto kStrangersTime = std::chrono::seconds(1);
constexpr auto kNextAccept = std::chrono::milliseconds(5);
constexpr std::size_t kMostStrangers = 512;

}  // namespace

Strangers::Strangers(int listening, int rank, std::string cookie) : listening_(listening), rank_(rank), cookie_(std::move(cookie)) {}

void Strangers::watch(std::vector<pollfd>& polls, Clock::time_point& until) const {
  const bool accepting = Clock::now() >= accept_again_;
  if (!accepting) until = std::min(until, accept_again_);
  polls.push_back({accepting ? listening_ : -1, POLLIN, 0});
  for (const Stranger& stranger : strangers_) {
    polls.push_back({stranger.socket.get(), POLLIN, 0});
    until = std::min(until, stranger.until);
  }
}

std::vector<Strangers::Proven> Strangers::go_on(bool came) {
  std::vector<Proven> proven;
  std::deque<Stranger> kept;
  for (Stranger& stranger : strangers_) {
    if (!hear(stranger, proven)) kept.push_back(std::move(stranger));
  }
  strangers_ = std::move(kept);
  if (came) accept_all(proven);
  return proven;
}

void Strangers::accept_all(std::vector<Proven>& proven) {
  for (;;) {
    const int fd = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // No descriptor is left: make room, and look again soon.
      if ((errno == EMFILE || errno == ENFILE) && !strangers_.empty()) strangers_.pop_front();
      if (errno != EAGAIN && errno != EWOULDBLOCK) accept_again_ = Clock::now() + kNextAccept;
      return;
    }
    set_channel_options(fd);
    if (strangers_.size() >= kMostStrangers) strangers_.pop_front();
    strangers_.push_back({UniqueFd(fd), {}, Clock::now() + kStrangersTime});
    if (hear(strangers_.back(), proven)) strangers_.pop_back();
  }
}

/// True when it needs to be kept no longer: it has proven itself, or is sent away.
bool Strangers::hear(Stranger& stranger, std::vector<Proven>& proven) const {
  const Step read = read_greeting(stranger.socket.get(), stranger.in);
  if (read == Step::kWait) return Clock::now() >= stranger.until;
  if (read == Step::kClosed) return true;
  const int from = greeted_by(stranger.in, rank_, cookie_);
  if (from >= 0) proven.push_back({from, std::move(stranger.socket)});
  return true;
}

}  // namespace wirewise::comm
