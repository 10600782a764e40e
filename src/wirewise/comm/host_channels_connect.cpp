// Making the connections: one loop that accepts, connects and shakes hands with all peers at once. Both sides prove themselves: who
// connects shows the cookie of whom it means, and is shown its own. Whoever else connects is a stranger: it gets a second and no answer.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <system_error>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/comm/host_channels.h"
#include "wirewise/comm/host_channels_state.h"
#include "wirewise/comm/listener.h"

namespace wirewise::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kStrangersTime = std::chrono::seconds(1);
constexpr std::size_t kMostStrangers = 512;
constexpr milliseconds kFirstRetry{5};
constexpr milliseconds kLastRetry{500};
constexpr milliseconds kBetweenLooks{20};
constexpr milliseconds kBetweenProbes{500};
constexpr milliseconds kRefusedLongEnough{1000};
constexpr std::size_t kCookie = 32;

/// Both greetings: magic, sender's rank, receiver's rank, the receiver's cookie.
constexpr std::size_t kGreeting = 8 + 4 + 4 + kCookie;
constexpr std::string_view kMagic = "wwchan01";

std::string system_message(int error) { return std::generic_category().message(error); }

std::string greeting(int from, int to, const std::string& cookie) {
  std::string text(kMagic);
  for (const int rank : {from, to}) {
    for (unsigned i = 0; i < 4; ++i) text.push_back(static_cast<char>(static_cast<std::uint32_t>(rank) >> (8 * i)));
  }
  text += cookie;
  text.resize(kGreeting);
  return text;
}

int rank_in(const std::string& text, std::size_t at) {
  std::uint32_t value = 0;
  for (unsigned i = 0; i < 4; ++i) value |= static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + i])) << (8 * i);
  return static_cast<int>(value);
}

/// The sender's rank when the greeting is one for `me`; -1 otherwise.
int greeted_by(const std::string& text, int me, const std::string& cookie) {
  if (text.size() != kGreeting || cookie.size() != kCookie || !text.starts_with(kMagic) || rank_in(text, 12) != me) return -1;
  return CRYPTO_memcmp(text.data() + 16, cookie.data(), kCookie) == 0 ? rank_in(text, 8) : -1;
}

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress socket_address(const std::string& address, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    throw bad_input("'" + printable(address) + "' is not a numeric address.");
  }
  SocketAddress result;
  std::memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
  result.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return result;
}

/// What reading or writing a part of a greeting came to.
enum class Step { kWait, kDone, kClosed };

Step read_greeting(int socket, std::string& text) {
  while (text.size() < kGreeting) {
    std::array<char, kGreeting> block;
    const ssize_t got = ::recv(socket, block.data(), kGreeting - text.size(), MSG_DONTWAIT);
    if (got > 0) {
      text.append(block.data(), static_cast<std::size_t>(got));
    } else if (got == 0) {
      return Step::kClosed;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return Step::kWait;
    } else if (errno != EINTR) {
      return Step::kClosed;
    }
  }
  return Step::kDone;
}

Step write_rest(int socket, std::string& rest) {
  while (!rest.empty()) {
    const ssize_t put = ::send(socket, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put >= 0) {
      rest.erase(0, static_cast<std::size_t>(put));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return Step::kWait;
    } else if (errno != EINTR) {
      return Step::kClosed;
    }
  }
  return Step::kDone;
}

/// A peer of this rank on the way to being connected.
struct Peer {
  int rank = -1;
  ChannelAddress where;
  UniqueFd socket;  // an attempt (of a lower rank), or the connection
  bool established = false;
  bool connecting = false;  // of an attempt: the system isn't done yet
  std::string out;          // of the greeting
  std::string in;
  Clock::time_point again;  // when to try next
  milliseconds pause = kFirstRetry;
  std::string last;  // what the last attempt came to
  // Of a higher rank, which is to connect by itself: a connection that says nothing, and ends when nobody listens there any more.
  UniqueFd probe;
  bool probed = false;  // it stands
  Clock::time_point next_probe;
  std::optional<Clock::time_point> refused;  // since when nobody does
};

/// Somebody who connected and hasn't proven anything yet; or who has, with the answer still to be sent.
struct Stranger {
  UniqueFd socket;
  std::string in;
  Clock::time_point until;
};

class Meeting {
 public:
  Meeting(HostChannels::Listening& listening, int rank, const std::vector<std::pair<int, ChannelAddress>>& peers,
          const Acquaintance& known)
      : listening_(listening), rank_(rank), known_(known), random_(std::random_device{}()) {
    for (const auto& [peer, where] : peers) {
      Peer entry;
      entry.rank = peer;
      entry.where = where;
      entry.next_probe = Clock::now() + kBetweenProbes;
      peers_.push_back(std::move(entry));
    }
  }

  std::vector<HostChannel> run(Clock::time_point deadline) {
    while (!all_in()) {
      if (known_.look_after) known_.look_after();
      if (Clock::now() >= deadline) throw missing();
      for (Peer& peer : peers_) {
        if (peer.rank < rank_ && !peer.socket.valid() && Clock::now() >= peer.again) attempt(peer);
        if (peer.rank > rank_ && !peer.established && !peer.probe.valid() && Clock::now() >= peer.next_probe) probe(peer);
      }
      wait(deadline);
    }
    std::vector<HostChannel> channels;
    for (Peer& peer : peers_) {
      HostChannel channel;
      channel.rank = peer.rank;
      channel.socket = std::move(peer.socket);
      channels.push_back(std::move(channel));
    }
    return channels;
  }

 private:
  [[nodiscard]] bool all_in() const {
    return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.established; });
  }

  [[nodiscard]] std::string name(const Peer& peer) const {
    return known_.name(peer.rank) + " at " + to_string(Endpoint{peer.where.address, peer.where.port});
  }

  [[nodiscard]] Error missing() const {
    constexpr std::size_t kNamed = 8;
    std::vector<std::string> parts;
    std::size_t count = 0;
    for (const Peer& peer : peers_) {
      if (peer.established) continue;
      if (++count > kNamed) continue;
      parts.push_back(name(peer) + (peer.rank > rank_ ? " didn't connect" : peer.last.empty() ? " didn't answer" : ": " + peer.last));
    }
    if (count > kNamed) parts.push_back(std::to_string(count - kNamed) + " more");
    return Error(ErrorKind::kTimeout,
                 known_.name(rank_) + " isn't connected with all ranks on other hosts: " + join(parts, "; ") + ".",
                 "See whether they started and what they said, that no firewall is between, and that all hosts chose interfaces of one "
                 "network (WIREWISE_NET).");
  }

  void fail(Peer& peer, const std::string& why) {
    peer.last = why;
    peer.socket.reset();
    peer.connecting = false;
    peer.in.clear();
    const auto half = static_cast<unsigned>(peer.pause.count()) / 2 + 1;
    peer.again = Clock::now() + peer.pause / 2 + milliseconds(random_() % (2 * half));  // ranks that fail together don't knock together
    peer.pause = std::min(peer.pause * 2, kLastRetry);
  }

  /// Begins to connect with a peer: 0, or what the system says against it.
  int begin(UniqueFd& socket, const Peer& peer) const {
    const SocketAddress target = socket_address(peer.where.address, peer.where.port);
    socket.reset(::socket(target.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) return errno;
    set_channel_options(socket.get());
    // From the chosen interface, also where the routes would say another.
    const SocketAddress own = socket_address(listening_.where.address, 0);
    if (own.storage.ss_family == target.storage.ss_family) {
      const int on = 1;
      ::setsockopt(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
      if (::bind(socket.get(), own.get(), own.length) != 0) return errno;
    }
    const bool begun = ::connect(socket.get(), target.get(), target.length) == 0 || errno == EINPROGRESS || errno == EINTR;
    return begun ? 0 : errno;
  }

  static int outcome(const UniqueFd& socket) {
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
  }

  /// A rank listens from before its address is known until it is connected with all: where nobody does for long, it has ended.
  void note(Peer& peer, int error) const {
    if (error != ECONNREFUSED) return peer.refused.reset();
    const auto now = Clock::now();
    if (!peer.refused) peer.refused = now;
    if (now - *peer.refused < kRefusedLongEnough) return;
    throw Error(ErrorKind::kPeerLost, name(peer) + " takes no connections any more: it has ended, or a firewall refuses them.",
                "Look at that rank's own output and the kernel log.");
  }

  void attempt(Peer& peer) {
    peer.out = greeting(rank_, peer.rank, peer.where.cookie);
    peer.in.clear();
    peer.connecting = true;
    if (const int error = begin(peer.socket, peer); error != 0) fail(peer, error);
  }

  void fail(Peer& peer, int error) {
    note(peer, error);
    fail(peer, system_message(error));
  }

  void probe(Peer& peer) const {
    peer.probed = false;
    if (const int error = begin(peer.probe, peer); error != 0) end_probe(peer, error);
  }

  void go_on_probing(Peer& peer) const {
    const int error = peer.probed ? ECONNRESET : outcome(peer.probe);
    if (error != 0 || peer.established) return end_probe(peer, error);
    peer.probed = true;
    peer.refused.reset();
  }

  /// It was refused, or has been sent away as a stranger is, or that process ended: the next one tells.
  void end_probe(Peer& peer, int error) const {
    peer.probe.reset();
    peer.next_probe = Clock::now() + kBetweenProbes;
    if (!peer.established && !peer.probed) note(peer, error);
  }

  void go_on(Peer& peer) {
    if (peer.connecting) {
      if (const int error = outcome(peer.socket); error != 0) return fail(peer, error);
      peer.connecting = false;
      peer.refused.reset();
    }
    const Step wrote = write_rest(peer.socket.get(), peer.out);
    if (wrote == Step::kClosed) return fail(peer, "it closed the connection");
    if (wrote == Step::kWait) return;
    const Step read = read_greeting(peer.socket.get(), peer.in);
    if (read == Step::kClosed) return fail(peer, "it closed the connection");
    if (read == Step::kWait) return;
    if (greeted_by(peer.in, rank_, listening_.where.cookie) != peer.rank) return fail(peer, "something else answers there");
    peer.established = true;
  }

  void accept_all() {
    for (;;) {
      const int fd = ::accept4(listening_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        // No descriptor is left: make room, and look again soon.
        if ((errno == EMFILE || errno == ENFILE) && !strangers_.empty()) strangers_.pop_front();
        if (errno != EAGAIN && errno != EWOULDBLOCK) accept_again_ = Clock::now() + kFirstRetry;
        return;
      }
      set_channel_options(fd);
      if (strangers_.size() >= kMostStrangers) strangers_.pop_front();
      strangers_.push_back({UniqueFd(fd), {}, Clock::now() + kStrangersTime});
      if (hear(strangers_.back())) strangers_.pop_back();
    }
  }

  /// True when it needs to be kept no longer: it is a peer now, or was sent away.
  bool hear(Stranger& stranger) {
    const Step read = read_greeting(stranger.socket.get(), stranger.in);
    if (read == Step::kWait) return Clock::now() >= stranger.until;
    if (read == Step::kClosed) return true;
    const int from = greeted_by(stranger.in, rank_, listening_.where.cookie);
    for (Peer& peer : peers_) {
      if (peer.rank != from || from <= rank_) continue;
      // 48 bytes fit into the buffer of a fresh connection.
      std::string answer = greeting(rank_, from, peer.where.cookie);
      if (write_rest(stranger.socket.get(), answer) != Step::kDone) return true;
      peer.socket = std::move(stranger.socket);  // a second connection of one rank replaces the first: that one it gave up
      peer.established = true;
    }
    return true;
  }

  void wait(Clock::time_point deadline) {
    std::vector<pollfd> polls;
    auto until = deadline;
    const bool accepting = Clock::now() >= accept_again_;
    if (!accepting) until = std::min(until, accept_again_);
    polls.push_back({accepting ? listening_.socket.get() : -1, POLLIN, 0});
    for (const Peer& peer : peers_) {
      const short events = peer.established ? POLLRDHUP : (peer.connecting || !peer.out.empty()) ? POLLOUT : POLLIN;
      polls.push_back({peer.socket.get(), events, 0});
      if (peer.rank < rank_ && !peer.socket.valid()) until = std::min(until, peer.again);
    }
    for (const Peer& peer : peers_) {
      polls.push_back({peer.probe.get(), static_cast<short>(peer.probed ? POLLIN | POLLRDHUP : POLLOUT), 0});
      if (peer.rank > rank_ && !peer.established && !peer.probe.valid()) until = std::min(until, peer.next_probe);
    }
    const std::size_t strangers = strangers_.size();
    for (const Stranger& stranger : strangers_) {
      polls.push_back({stranger.socket.get(), POLLIN, 0});
      until = std::min(until, stranger.until);
    }
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    const milliseconds most = known_.look_after ? kBetweenLooks : milliseconds(1000);
    if (::poll(polls.data(), polls.size(), static_cast<int>(std::clamp(left, milliseconds(0), most).count())) < 0 && errno != EINTR) {
      throw Error(ErrorKind::kFailed, "Waiting for ranks on other hosts failed: " + system_message(errno) + ".",
                  "Raise the limit on open files (ulimit -n).");
    }
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      Peer& peer = peers_[i];
      const short events = polls[1 + i].revents;
      if (events == 0) continue;
      if (peer.established) {
        throw Error(ErrorKind::kPeerLost,
                    name(peer) + " closed its connection while " + known_.name(rank_) + " was still waiting for others.");
      }
      go_on(peer);
    }
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (polls[1 + peers_.size() + i].revents != 0) go_on_probing(peers_[i]);
    }
    std::deque<Stranger> kept;
    for (std::size_t i = 0; i < strangers; ++i) {
      Stranger& stranger = strangers_[i];
      if (!hear(stranger)) kept.push_back(std::move(stranger));
    }
    strangers_ = std::move(kept);
    if (polls[0].revents != 0) accept_all();
  }

  HostChannels::Listening& listening_;
  int rank_;
  const Acquaintance& known_;
  std::minstd_rand random_;
  std::vector<Peer> peers_;
  std::deque<Stranger> strangers_;  // oldest first
  Clock::time_point accept_again_{};
};

std::string new_cookie() {
  std::array<unsigned char, kCookie / 2> bytes{};
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t got = ::getrandom(bytes.data() + at, bytes.size() - at, 0);
    if (got > 0) at += static_cast<std::size_t>(got);
    if (got < 0 && errno != EINTR) throw Error(ErrorKind::kFailed, "The system gives no random numbers: " + system_message(errno) + ".");
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace

std::unique_ptr<HostChannels::Listening> HostChannels::listen(const std::string& address) {
  const SocketAddress target = socket_address(address, 0);
  auto listening = std::make_unique<Listening>();
  listening->socket.reset(::socket(target.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (!listening->socket.valid() || ::bind(listening->socket.get(), target.get(), target.length) != 0 ||
      ::listen(listening->socket.get(), SOMAXCONN) != 0 ||
      ::getsockname(listening->socket.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    const int error = errno;
    throw Error(ErrorKind::kFailed, "No port of " + printable(address) + " can be listened on: " + system_message(error) + ".",
                "Name an interface that is up with WIREWISE_NET.");
  }
  const in_port_t port = bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                                     : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port;
  listening->where = {address, ntohs(port), new_cookie()};
  return listening;
}

ChannelAddress HostChannels::address_of(const Listening& listening) { return listening.where; }

std::shared_ptr<HostChannels> HostChannels::connect(std::unique_ptr<Listening> listening, int rank,
                                                    const std::vector<std::pair<int, ChannelAddress>>& peers,
                                                    Clock::time_point deadline, const Acquaintance& known) {
  auto state = std::make_unique<State>();
  state->channels = Meeting(*listening, rank, peers, known).run(deadline);
  return std::make_shared<HostChannels>(std::move(state));
}

}  // namespace wirewise::comm
