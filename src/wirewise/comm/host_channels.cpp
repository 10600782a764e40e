// Messages over connections that stand; host_channels_connect.cpp makes them.
#include "wirewise/comm/host_channels.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "wirewise/base/log.h"
#include "wirewise/comm/host_channels_state.h"
#include "wirewise/comm/network.h"

namespace wirewise::comm {
namespace {

constexpr std::size_t kMostMessage = std::size_t{64} << 10;
constexpr std::size_t kMostUnsent = std::size_t{64} << 20;  // of one peer that takes nothing in
constexpr std::size_t kMostReadAtOnce = std::size_t{4} << 20;
constexpr std::size_t kHeader = 4;

// A host that vanished answers nothing: 2 s of silence, then 5 questions a second apart.
constexpr int kIdleSeconds = 2;
constexpr int kIntervalSeconds = 1;
constexpr int kQuestions = 5;
constexpr unsigned kUnansweredMs = (kIdleSeconds + kIntervalSeconds * kQuestions) * 1000;

void append_frame(std::string& out, std::string_view message) {
  const auto length = static_cast<std::uint32_t>(message.size());
  for (unsigned i = 0; i < kHeader; ++i) out.push_back(static_cast<char>(length >> (8 * i)));
  out.append(message);
}

void flush(HostChannel& channel) {
  while (!channel.dead && channel.out_at < channel.out.size()) {
    const ssize_t sent = ::send(channel.socket.get(), channel.out.data() + channel.out_at, channel.out.size() - channel.out_at,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      channel.out_at += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      // What the peer sent before it died may still be unread: the read that comes next finds both that and the death.
      channel.out.clear();
      channel.out_at = 0;
      return;
    }
  }
  if (channel.out_at == channel.out.size()) {
    channel.out.clear();
    channel.out_at = 0;
  } else if (channel.out_at > (std::size_t{1} << 20)) {
    channel.out.erase(0, channel.out_at);
    channel.out_at = 0;
  }
}

/// Takes whole messages out of what came. A length that no rank sends ends the channel.
void take_messages(HostChannel& channel, std::vector<std::pair<int, std::string>>& heard) {
  std::size_t at = 0;
  while (channel.in.size() - at >= kHeader) {
    std::uint32_t length = 0;
    for (unsigned i = 0; i < kHeader; ++i)
      length |= static_cast<std::uint32_t>(static_cast<unsigned char>(channel.in[at + i])) << (8 * i);
    if (length > kMostMessage) {
      channel.dead = true;
      break;
    }
    if (channel.in.size() - at - kHeader < length) break;
    heard.emplace_back(channel.rank, channel.in.substr(at + kHeader, length));
    at += kHeader + length;
  }
  channel.in.erase(0, at);
}

void receive(HostChannel& channel, std::vector<std::pair<int, std::string>>& heard) {
  std::array<char, 65536> block;
  for (std::size_t total = 0; !channel.dead && total < kMostReadAtOnce;) {
    const ssize_t got = ::recv(channel.socket.get(), block.data(), block.size(), MSG_DONTWAIT);
    if (got > 0) {
      total += static_cast<std::size_t>(got);
      channel.in.append(block.data(), static_cast<std::size_t>(got));
      take_messages(channel, heard);
    } else if (got == 0) {
      channel.dead = true;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      channel.dead = true;
    }
  }
}

/// Moves what can be moved without waiting.
void pump(HostChannels::State& state) {
  std::vector<pollfd> polls;
  std::vector<HostChannel*> channels;
  for (HostChannel& channel : state.channels) {
    if (channel.dead) continue;
    const bool unsent = !channel.out.empty();
    polls.push_back({channel.socket.get(), static_cast<short>(POLLIN | (unsent ? POLLOUT : 0)), 0});
    channels.push_back(&channel);
  }
  if (polls.empty()) return;
  int ready = 0;
  do ready = ::poll(polls.data(), polls.size(), 0);
  while (ready < 0 && errno == EINTR);
  for (std::size_t i = 0; ready > 0 && i < polls.size(); ++i) {
    HostChannel& channel = *channels[i];
    if ((polls[i].revents & POLLOUT) != 0) flush(channel);
    if ((polls[i].revents & ~POLLOUT) != 0) receive(channel, state.heard);
    if (channel.dead) channel.socket.reset();
  }
}

}  // namespace

void set_channel_options(int socket) noexcept {
  const auto set = [socket](int level, int name, int value) { ::setsockopt(socket, level, name, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kIntervalSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kQuestions);
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnansweredMs, sizeof kUnansweredMs);  // the same for bytes under way
}

HostChannels::HostChannels(std::unique_ptr<State> state) : state_(std::move(state)) {}

HostChannels::~HostChannels() {
  const std::lock_guard lock(state_->mutex);
  for (HostChannel& channel : state_->channels) {
    if (channel.dead) continue;
    flush(channel);
    // Closing on unread bytes would reset the connection, and the peer might lose what it hasn't taken in yet.
    ::shutdown(channel.socket.get(), SHUT_WR);
    receive(channel, state_->heard);
  }
}

std::vector<int> HostChannels::dead() {
  const std::lock_guard lock(state_->mutex);
  pump(*state_);
  std::vector<int> ranks;
  for (const HostChannel& channel : state_->channels) {
    if (channel.dead) ranks.push_back(channel.rank);
  }
  return ranks;
}

void HostChannels::tell(int peer, std::string_view message) noexcept {
  const std::lock_guard lock(state_->mutex);
  try {
    if (message.size() > kMostMessage) {
      log_warn("A message of " + std::to_string(message.size()) + " bytes to other hosts is cut to the " + std::to_string(kMostMessage) +
               " that fit.");
      message = message.substr(0, kMostMessage);
    }
    for (HostChannel& channel : state_->channels) {
      if (channel.dead || (peer != kAnyPeer && channel.rank != peer)) continue;
      if (channel.out.size() - channel.out_at > kMostUnsent) {
        if (!channel.overfull) log_warn("Rank " + std::to_string(channel.rank) + " takes no messages in: later ones to it are dropped.");
        channel.overfull = true;
        continue;
      }
      append_frame(channel.out, message);
      flush(channel);
    }
    pump(*state_);
  } catch (const std::bad_alloc&) {
    log_warn("No memory is left for a message to other hosts.");
  }
}

std::vector<std::pair<int, std::string>> HostChannels::heard() {
  const std::lock_guard lock(state_->mutex);
  pump(*state_);
  return std::exchange(state_->heard, {});
}

}  // namespace wirewise::comm
