// Making the connections: one loop that accepts, connects and shakes hands with all peers at once. Both sides prove themselves: who
// connects shows the cookie of whom it means, and is shown its own. Whoever else connects stays a stranger.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <random>
#include <system_error>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/comm/host_channels.h"
#include "wirewise/comm/host_channels_greeting.h"
#include "wirewise/comm/host_channels_state.h"
#include "wirewise/comm/host_channels_strangers.h"
#include "wirewise/comm/listener.h"
#include "wirewise/comm/numeric_address.h"

namespace wirewise::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirstRetry{5};
constexpr milliseconds kLastRetry{500};
constexpr milliseconds kBetweenLooks{20};
constexpr milliseconds kBetweenProbes{500};
constexpr milliseconds kRefusedLongEnough{1000};

std::string system_message(int error) { return std::generic_category().message(error); }

/// Begins to connect, from an address of this host: 0, or what the system says against it.
int begin_connecting(UniqueFd& socket, const ChannelAddress& to, const std::string& from) {
  const SocketAddress target = socket_address(to.address, to.port);
  socket.reset(::socket(target.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return errno;
  set_channel_options(socket.get());
  // From the chosen interface, also where the routes would say another.
  const SocketAddress own = socket_address(from, 0);
  if (own.family() == target.family()) {
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (::bind(socket.get(), own.get(), own.length) != 0) return errno;
  }
  const bool begun = ::connect(socket.get(), target.get(), target.length) == 0 || errno == EINPROGRESS || errno == EINTR;
  return begun ? 0 : errno;
}

/// What beginning to connect came to.
int outcome(const UniqueFd& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
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

class Meeting {
 public:
  Meeting(HostChannels::Listening& listening, int rank, const std::vector<std::pair<int, ChannelAddress>>& peers,
          const Acquaintance& known)
      : own_(listening.where), rank_(rank), known_(known), random_(std::random_device{}()),
        strangers_(listening.socket.get(), rank, listening.where.cookie) {
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
    if (const int error = begin_connecting(peer.socket, peer.where, own_.address); error != 0) fail(peer, error);
  }

  void fail(Peer& peer, int error) {
    note(peer, error);
    fail(peer, system_message(error));
  }

  void probe(Peer& peer) const {
    peer.probed = false;
    if (const int error = begin_connecting(peer.probe, peer.where, own_.address); error != 0) end_probe(peer, error);
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

  void go_on_with(Peer& peer) {
    if (peer.established) {
      throw Error(ErrorKind::kPeerLost,
                  name(peer) + " closed its connection while " + known_.name(rank_) + " was still waiting for others.");
    }
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
    if (greeted_by(peer.in, rank_, own_.cookie) != peer.rank) return fail(peer, "something else answers there");
    peer.established = true;
  }

  /// A rank that connected and has shown this rank's cookie is shown its own. Whoever isn't waited for gets no answer.
  void welcome(Strangers::Proven proven) {
    for (Peer& peer : peers_) {
      if (peer.rank != proven.rank || peer.rank <= rank_) continue;
      // 48 bytes fit into the buffer of a fresh connection.
      std::string answer = greeting(rank_, peer.rank, peer.where.cookie);
      if (write_rest(proven.socket.get(), answer) != Step::kDone) return;
      peer.socket = std::move(proven.socket);  // a second connection of one rank replaces the first: that one it gave up
      peer.established = true;
      return;
    }
  }

  /// Sleeps until something moves or is due, and goes on with whatever moved.
  void wait(Clock::time_point deadline) {
    auto until = deadline;
    std::vector<pollfd> polls = watched(until);
    poll_all(polls, until);
    const std::size_t peers = peers_.size();
    for (std::size_t i = 0; i < peers; ++i) {
      if (polls[i].revents != 0) go_on_with(peers_[i]);
    }
    for (std::size_t i = 0; i < peers; ++i) {
      if (polls[peers + i].revents != 0) go_on_probing(peers_[i]);
    }
    for (Strangers::Proven& proven : strangers_.go_on(polls[2 * peers + Strangers::kListening].revents != 0)) welcome(std::move(proven));
  }

  /// The peers' connections, their probes, and strangers; `until` becomes no later than when something is due.
  [[nodiscard]] std::vector<pollfd> watched(Clock::time_point& until) const {
    std::vector<pollfd> polls;
    for (const Peer& peer : peers_) {
      const short events = peer.established ? POLLRDHUP : (peer.connecting || !peer.out.empty()) ? POLLOUT : POLLIN;
      polls.push_back({peer.socket.get(), events, 0});
      if (peer.rank < rank_ && !peer.socket.valid()) until = std::min(until, peer.again);
    }
    for (const Peer& peer : peers_) {
      polls.push_back({peer.probe.get(), static_cast<short>(peer.probed ? POLLIN | POLLRDHUP : POLLOUT), 0});
      if (peer.rank > rank_ && !peer.established && !peer.probe.valid()) until = std::min(until, peer.next_probe);
    }
    strangers_.watch(polls, until);
    return polls;
  }

  void poll_all(std::vector<pollfd>& polls, Clock::time_point until) const {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    const milliseconds most = known_.look_after ? kBetweenLooks : milliseconds(1000);
    if (::poll(polls.data(), polls.size(), static_cast<int>(std::clamp(left, milliseconds(0), most).count())) < 0 && errno != EINTR) {
      throw Error(ErrorKind::kFailed, "Waiting for ranks on other hosts failed: " + system_message(errno) + ".",
                  "Raise the limit on open files (ulimit -n).");
    }
  }

  ChannelAddress own_;
  int rank_;
  const Acquaintance& known_;
  std::minstd_rand random_;
  std::vector<Peer> peers_;
  Strangers strangers_;
};

}  // namespace

std::unique_ptr<HostChannels::Listening> HostChannels::listen(const std::string& address) {
  const SocketAddress target = socket_address(address, 0);
  auto listening = std::make_unique<Listening>();
  listening->socket.reset(::socket(target.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
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
