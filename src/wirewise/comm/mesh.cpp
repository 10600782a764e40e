#include "wirewise/comm/mesh.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "wirewise/base/cgroup.h"
#include "wirewise/base/error.h"
#include "wirewise/comm/control.h"
#include "wirewise/comm/cores.h"

namespace wirewise::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// The first message on a connection, with the sender's arena beside it.
struct Hello {
  char magic[8] = {'w', 'i', 'r', 'e', 'w', 'i', 's', '1'};
  char cookie[32] = {};
  std::int32_t rank = -1;
  std::int32_t pad = 0;
  ArenaId arena;
  std::uint64_t arena_bytes = 0;
  std::uint64_t control = 0;  // of rank 0
};

sockaddr_un address_of(const std::string& name, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // a leading zero: the abstract namespace, no file
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

[[noreturn]] void fail_system(const std::string& what) {
  throw Error(ErrorKind::kFailed, "rendezvous: " + what + ": " + std::strerror(errno) + ".",
              "Raise the limit on open files (ulimit -n), and run the ranks in one network namespace.");
}

int remaining_ms(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000));
}

bool send_hello(int socket, const Hello& hello, int file) {
  iovec data{const_cast<Hello*>(&hello), sizeof hello};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &file, sizeof file);
  ssize_t sent = 0;
  do sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof hello);
}

/// Empty when the peer closed, sent something else, or nothing until the deadline.
std::optional<std::pair<Hello, UniqueFd>> receive_hello(int socket, Clock::time_point deadline) {
  for (;;) {
    pollfd wait{socket, POLLIN, 0};
    const int ready = ::poll(&wait, 1, remaining_ms(deadline));
    if (ready > 0) break;
    if (ready < 0 && errno != EINTR) return std::nullopt;
    if (Clock::now() >= deadline) return std::nullopt;
  }
  Hello hello;
  iovec data{&hello, sizeof hello};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  UniqueFd file;
  if (got >= 0) {
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= header->cmsg_len; at += sizeof(int)) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + at, sizeof fd);
        file.reset(fd);
      }
    }
  }
  const Hello expected;
  if (got != static_cast<ssize_t>(sizeof hello) || std::memcmp(hello.magic, expected.magic, sizeof hello.magic) != 0 || !file.valid()) {
    return std::nullopt;
  }
  return std::pair{hello, std::move(file)};
}

struct Credentials {
  long pid = 0;
  uid_t uid = 0;
};
Credentials credentials_of(int socket) {
  ucred found{};
  socklen_t length = sizeof found;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &found, &length) != 0) fail_system("can't tell who a peer is");
  return {found.pid, found.uid};
}

UniqueFd process_handle(long pid) {
#if defined(SYS_pidfd_open)
  if (pid > 0) return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
#endif
  (void)pid;
  return {};
}

/// One host's meeting: the state that its steps share. Ranks here are places in `members`.
class Meeting {
 public:
  Meeting(const Cards& cards, const std::vector<int>& members, UniqueFd listener)
      : cards_(cards), members_(members), size_(static_cast<int>(members.size())), listener_(std::move(listener)) {
    rank_ = static_cast<int>(std::find(members.begin(), members.end(), cards.rank) - members.begin());
    link_.rank = rank_;
    link_.size = size_;
    link_.context = ProcessContext::get(size_);
    peers_.resize(members.size());
    files_.resize(members.size());
    hellos_.resize(members.size());
  }

  Link run() {
    for (int r = 0; r < size_; ++r) {
      if (card(r).user != cards_.own().user) refuse_user(r, card(r).user);
    }
    make_control();
    try {
      join();
      map_arenas();
    } catch (...) {
      if (control_ != nullptr) link_.context->arena.free(control_);
      throw;
    }
    for (int r = 0; r < size_; ++r) link_.liveness_ranks.push_back(r);
    link_.liveness = std::make_shared<Mesh>(std::move(peers_));
    return std::move(link_);
  }

 private:
  [[nodiscard]] const Card& card(int r) const noexcept { return cards_.of(members_[static_cast<std::size_t>(r)]); }

  void make_control() {
    if (rank_ != 0) return;
    Arena& arena = link_.context->arena;
    control_ = arena.allocate(Control::bytes(size_));
    Control(static_cast<std::byte*>(control_), size_).construct();
    link_.control = static_cast<std::uint64_t>(static_cast<std::byte*>(control_) - arena.base());
  }

  [[nodiscard]] Hello hello_to(int r) const {
    Hello hello;
    std::memcpy(hello.cookie, card(r).cookie.data(), sizeof hello.cookie);
    hello.rank = rank_;
    hello.arena = link_.context->arena.id();
    hello.arena_bytes = link_.context->arena.size();
    hello.control = link_.control;
    return hello;
  }

  /// Cards tell it to both sides in time; the kernel's word is what counts.
  void check_user(int socket, int r) const {
    const auto user = static_cast<long>(credentials_of(socket).uid);
    if (user != cards_.own().user) refuse_user(r, user);
  }

  [[noreturn]] void refuse_user(int r, long user) const {
    throw Error(ErrorKind::kFailed,
                "rendezvous: " + cards_.who(members_[static_cast<std::size_t>(r)]) + " runs as user " + std::to_string(user) + ", this rank as user " + std::to_string(cards_.own().user) + ".",
                "Run all ranks as one user.");
  }

  void keep(int r, UniqueFd socket, Hello hello, UniqueFd file) {
    const auto i = static_cast<std::size_t>(r);
    peers_[i].process = process_handle(credentials_of(socket.get()).pid);
    peers_[i].socket = std::move(socket);
    hellos_[i] = hello;
    files_[i] = std::move(file);
  }

  [[noreturn]] void lost(int r) const {
    throw Error(Clock::now() >= cards_.deadline ? ErrorKind::kTimeout : ErrorKind::kPeerLost,
                "rendezvous: " + cards_.who(members_[static_cast<std::size_t>(r)]) + " came to " + cards_.name + ", but did not join" + (Clock::now() >= cards_.deadline ? " in time." : "; it has gone."),
                "Look at that rank's own output for its reason.");
  }

  void join() {
    const int arena = link_.context->arena.descriptor();
    // To lower ranks: they listen already, so connecting and sending wait for nobody.
    std::vector<UniqueFd> sockets(static_cast<std::size_t>(rank_));
    for (int r = 0; r < rank_; ++r) {
      UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      if (!socket.valid()) fail_system("can't open a socket");
      socklen_t length = 0;
      const sockaddr_un address = address_of(card(r).socket, length);
      int failed = 0;
      do failed = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length);
      while (failed != 0 && errno == EINTR);
      if (failed != 0) {
        if (errno == ECONNREFUSED) lost(r);
        fail_system("can't reach " + cards_.who(members_[static_cast<std::size_t>(r)]));
      }
      check_user(socket.get(), r);
      if (!send_hello(socket.get(), hello_to(r), arena)) lost(r);
      sockets[static_cast<std::size_t>(r)] = std::move(socket);
    }
    for (int missing = size_ - 1 - rank_; missing > 0;) {
      if (accept_one()) --missing;
    }
    for (int r = 0; r < rank_; ++r) {
      auto& socket = sockets[static_cast<std::size_t>(r)];
      auto answer = receive_hello(socket.get(), cards_.deadline);
      if (!answer || std::memcmp(answer->first.cookie, cards_.own().cookie.data(), sizeof answer->first.cookie) != 0) lost(r);
      keep(r, std::move(socket), answer->first, std::move(answer->second));
    }
    if (rank_ != 0) link_.control = hellos_[0].control;
  }

  /// Takes one connection. False for one that is no rank's: it is closed and forgotten.
  bool accept_one() {
    UniqueFd socket;
    for (;;) {
      pollfd wait{listener_.get(), POLLIN, 0};
      ::poll(&wait, 1, std::min(remaining_ms(cards_.deadline), 100));
      socket.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (socket.valid()) break;
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) fail_system("can't accept a peer");
      for (int r = rank_ + 1; r < size_; ++r) {
        if (peers_[static_cast<std::size_t>(r)].socket.valid()) continue;
        if (Clock::now() >= cards_.deadline || gone(r)) lost(r);
      }
    }
    auto hello = receive_hello(socket.get(), std::min(cards_.deadline, Clock::now() + std::chrono::seconds(1)));
    if (!hello || std::memcmp(hello->first.cookie, cards_.own().cookie.data(), sizeof hello->first.cookie) != 0) return false;
    const int r = hello->first.rank;
    if (r <= rank_ || r >= size_ || peers_[static_cast<std::size_t>(r)].socket.valid()) return false;
    check_user(socket.get(), r);
    if (!send_hello(socket.get(), hello_to(r), link_.context->arena.descriptor())) lost(r);
    keep(r, std::move(socket), hello->first, std::move(hello->second));
    return true;
  }

  /// A rank that has shown its card and ended: a process that nobody has waited for yet, or none any more, nor a socket that takes calls.
  /// (A process of another PID namespace can't be seen, but its socket can.)
  [[nodiscard]] bool gone(int r) const {
    const long pid = card(r).pid;
    std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
    const std::string text((std::istreambuf_iterator<char>(status)), {});
    const std::size_t end = text.rfind(')');
    if (end != std::string::npos) return end + 2 < text.size() && text[end + 2] == 'Z';
    const UniqueFd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    socklen_t length = 0;
    const sockaddr_un address = address_of(card(r).socket, length);
    return probe.valid() && ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 && errno == ECONNREFUSED;
  }

  void map_arenas() {
    // Hosts may be parts of one machine.
    std::vector<std::vector<int>> cpus;
    for (const Card& other : cards_.all) {
      if (other.machine == cards_.own().machine) cpus.push_back(other.cpus);
    }
    link_.own_core = cores_suffice(cpus, cgroup_limits().cpus);
    for (int r = 0; r < size_; ++r) {
      const auto i = static_cast<std::size_t>(r);
      link_.identities.push_back({card(r).host, card(r).pid, members_[i]});
      if (r == rank_) {
        link_.bases.push_back(link_.context->arena.base());
        continue;
      }
      auto mapping = link_.context->map_peer(hellos_[i].arena, hellos_[i].arena_bytes, files_[i]);
      link_.bases.push_back(mapping->base());
      link_.mappings.push_back(std::move(mapping));
    }
  }

  const Cards& cards_;
  const std::vector<int>& members_;
  int rank_ = 0;
  int size_ = 0;
  Link link_;
  UniqueFd listener_;
  std::vector<Mesh::Peer> peers_;
  std::vector<Hello> hellos_;
  std::vector<UniqueFd> files_;
  void* control_ = nullptr;
};

}  // namespace

std::vector<int> Mesh::dead() {
  std::vector<pollfd> fds;
  std::vector<int> ranks;
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    for (const UniqueFd* const fd : {&peers_[r].socket, &peers_[r].process}) {
      if (!fd->valid()) continue;
      fds.push_back({fd->get(), POLLIN, 0});
      ranks.push_back(static_cast<int>(r));
    }
  }
  std::vector<int> gone;
  if (fds.empty() || ::poll(fds.data(), fds.size(), 0) <= 0) return gone;
  for (std::size_t i = 0; i < fds.size(); ++i) {
    // Nothing is ever sent after the meeting: a readable socket is a closed one, a readable pidfd an ended process.
    if (fds[i].revents != 0 && (gone.empty() || gone.back() != ranks[i])) gone.push_back(ranks[i]);
  }
  return gone;
}

UniqueFd listen_for_peers(const Card& own) {
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) fail_system("can't open a socket");
  socklen_t length = 0;
  const sockaddr_un address = address_of(own.socket, length);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 || ::listen(listener.get(), own.size + 8) != 0) {
    fail_system("can't listen on a Unix socket");
  }
  return listener;
}

Link join_host(const Cards& cards, const std::vector<int>& members, UniqueFd listener) {
  return Meeting(cards, members, std::move(listener)).run();
}

}  // namespace wirewise::comm
