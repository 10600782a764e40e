#include "wirewise/comm/tcp_store.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/comm/numeric_address.h"
#include "wirewise/comm/signals_blocked.h"

namespace wirewise {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kGreeting[8] = {'w', 'w', 's', 't', 'o', 'r', 'e', '1'};  // said by both sides first
constexpr std::uint32_t kMostBytes = 64U << 20;                            // of a key or a value
constexpr milliseconds kAnswerTime{60'000};
// A waiting get() asks again after an eighth of the time it has waited, within these bounds.
constexpr auto kShortestPause = std::chrono::microseconds(200);
constexpr auto kLongestPause = std::chrono::microseconds(50'000);

enum class Verb : std::uint32_t { kSet, kGet, kAdd };

/// As they travel, key and value behind the one, the value behind the other. All hosts of a run have one byte order.
struct RequestHead {
  Verb verb = Verb::kGet;
  std::uint32_t key_bytes = 0;
  std::uint32_t value_bytes = 0;
  std::uint32_t unused = 0;
  std::int64_t amount = 0;
};
struct ReplyHead {
  std::uint32_t found = 0;
  std::uint32_t value_bytes = 0;
  std::int64_t sum = 0;
};

template <typename Head>
std::string bytes_of(const Head& head) {
  return std::string(reinterpret_cast<const char*>(&head), sizeof head);
}

/// Polls one descriptor. False when the time is over.
bool ready(int fd, short events, Clock::time_point end) {
  for (;;) {
    const auto left = std::max(milliseconds(0), std::chrono::ceil<milliseconds>(end - Clock::now()));
    pollfd one{fd, events, 0};
    const int count = ::poll(&one, 1, static_cast<int>(left.count()));
    if (count > 0) return true;
    if (count == 0 || errno != EINTR) return false;
  }
}

/// Empty when all of it was moved by `end`, else why not.
std::string send_all(int fd, const std::string& data, Clock::time_point end) {
  for (std::size_t at = 0; at < data.size();) {
    const ssize_t sent = ::send(fd, data.data() + at, data.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      at += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      if (!ready(fd, POLLOUT, end)) return "it takes nothing any more";
    } else if (errno != EINTR) {
      return std::strerror(errno);
    }
  }
  return {};
}

std::string receive_all(int fd, char* data, std::size_t bytes, Clock::time_point end) {
  for (std::size_t at = 0; at < bytes;) {
    const ssize_t got = ::recv(fd, data + at, bytes - at, MSG_DONTWAIT);
    if (got > 0) {
      at += static_cast<std::size_t>(got);
    } else if (got == 0) {
      return "the connection was closed";
    } else if (errno == EAGAIN) {
      if (!ready(fd, POLLIN, end)) return "it does not answer";
    } else if (errno != EINTR) {
      return std::strerror(errno);
    }
  }
  return {};
}

comm::UniqueFd connect_to(const std::string& address, std::uint16_t port) {
  const comm::SocketAddress target = comm::socket_address(address, port);
  comm::UniqueFd socket(::socket(target.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!socket.valid() || ::connect(socket.get(), target.get(), target.length) != 0) {
    throw Error(ErrorKind::kStore, "Can't reach the store at " + to_string(Endpoint{address, port}) + ": " + std::strerror(errno) + ".",
                "See whether rank 0 started and what it said.");
  }
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

}  // namespace

struct TcpStore::Request {
  Verb verb = Verb::kGet;
  std::string key;
  std::string value;
  std::int64_t amount = 0;
};

struct TcpStore::Reply {
  bool found = false;
  std::string value;
  std::int64_t sum = 0;
};

/// Keys and values, and the thread that answers whoever connects.
class TcpStore::Server {
 public:
  explicit Server(int listening) : listening_(listening), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!bell_.valid()) throw Error(ErrorKind::kStore, std::string("store: no descriptor is left: ") + std::strerror(errno) + ".", "Raise ulimit -n.");
    ::fcntl(listening_.get(), F_SETFL, ::fcntl(listening_.get(), F_GETFL) | O_NONBLOCK);
    const comm::SignalsBlocked none;
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    const std::uint64_t one = 1;
    (void)!::write(bell_.get(), &one, sizeof one);
    thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Reply answer(const Request& request) {
    const std::lock_guard lock(mutex_);
    Reply reply;
    switch (request.verb) {
      case Verb::kSet: values_[request.key] = request.value; break;
      case Verb::kGet:
        if (const auto value = values_.find(request.key); value != values_.end()) {
          reply.found = true;
          reply.value = value->second;
        }
        break;
      case Verb::kAdd: {
        std::string& value = values_[request.key];
        reply.sum = static_cast<std::int64_t>(parse_integer(value).value_or(0)) + request.amount;
        value = std::to_string(reply.sum);
        break;
      }
    }
    return reply;
  }

 private:
  struct Client {
    comm::UniqueFd socket;
    std::string in;
    std::string out;
    bool greeted = false;
  };

  void serve() {
    std::vector<pollfd> polled;
    for (;;) {
      polled.assign({{bell_.get(), POLLIN, 0}, {listening_.get(), POLLIN, 0}});
      for (const Client& client : clients_) polled.push_back({client.socket.get(), static_cast<short>(client.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
      if (::poll(polled.data(), polled.size(), -1) < 0) continue;
      if (polled[0].revents != 0) return;
      auto client = clients_.begin();
      for (std::size_t i = 2; i < polled.size(); ++i) {
        const auto here = client++;
        if (polled[i].revents != 0 && !serve(*here)) clients_.erase(here);
      }
      if (polled[1].revents != 0) accept_all();
    }
  }

  void accept_all() {
    for (;;) {
      comm::UniqueFd socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.valid()) return;
      const int on = 1;
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      clients_.push_back({std::move(socket), {}, {}, false});
    }
  }

  /// False when the client has gone or is none of ours.
  bool serve(Client& client) {
    for (;;) {
      char block[16384];
      const ssize_t got = ::recv(client.socket.get(), block, sizeof block, 0);
      if (got == 0) return false;
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        if (errno != EAGAIN) return false;
        break;
      }
      client.in.append(block, static_cast<std::size_t>(got));
      if (!take_requests(client)) return false;
    }
    return flush(client);
  }

  bool take_requests(Client& client) {
    std::size_t at = 0;
    if (!client.greeted) {
      const std::size_t bytes = std::min(client.in.size(), sizeof kGreeting);
      if (std::memcmp(client.in.data(), kGreeting, bytes) != 0) return false;
      if (bytes < sizeof kGreeting) return true;
      client.greeted = true;
      client.out.append(kGreeting, sizeof kGreeting);
      at = sizeof kGreeting;
    }
    for (RequestHead head; client.in.size() - at >= sizeof head;) {
      std::memcpy(&head, client.in.data() + at, sizeof head);
      if (head.verb > Verb::kAdd || head.key_bytes > kMostBytes || head.value_bytes > kMostBytes) return false;
      if (client.in.size() - at - sizeof head < std::size_t{head.key_bytes} + head.value_bytes) break;
      at += sizeof head;
      const Reply reply = answer({head.verb, client.in.substr(at, head.key_bytes), client.in.substr(at + head.key_bytes, head.value_bytes), head.amount});
      at += std::size_t{head.key_bytes} + head.value_bytes;
      client.out += bytes_of(ReplyHead{reply.found ? 1U : 0U, static_cast<std::uint32_t>(reply.value.size()), reply.sum}) + reply.value;
    }
    client.in.erase(0, at);
    return true;
  }

  static bool flush(Client& client) {
    while (!client.out.empty()) {
      const ssize_t sent = ::send(client.socket.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return errno == EAGAIN;
      client.out.erase(0, static_cast<std::size_t>(sent));
    }
    return true;
  }

  comm::UniqueFd listening_;
  comm::UniqueFd bell_;
  std::mutex mutex_;  // of values_: the holder asks too
  std::unordered_map<std::string, std::string> values_;
  std::list<Client> clients_;  // the thread's
  std::thread thread_;
};

TcpStore::TcpStore(const std::string& address, Listener&& listener) : where_(to_string(Endpoint{address, listener.port()})) {
  server_ = std::make_unique<Server>(listener.release());
}

TcpStore::TcpStore(const std::string& address, std::uint16_t port, milliseconds timeout)
    : where_(to_string(Endpoint{address, port})), socket_(connect_to(address, port)) {
  const auto end = Clock::now() + timeout;
  char greeting[sizeof kGreeting] = {};
  std::string wrong = send_all(socket_.get(), std::string(kGreeting, sizeof kGreeting), end);
  if (wrong.empty()) wrong = receive_all(socket_.get(), greeting, sizeof greeting, end);
  if (wrong.empty() && std::memcmp(greeting, kGreeting, sizeof greeting) != 0) wrong = "it answers something else";
  if (!wrong.empty()) {
    throw Error(ErrorKind::kStore, "What listens at " + where_ + " is no store of this kind: " + wrong + ".",
                "Another program may hold the port: choose another. All ranks need the same build of wirewise.");
  }
}

TcpStore::~TcpStore() = default;

std::string TcpStore::where() const { return "the store at " + where_; }

TcpStore::Reply TcpStore::ask(const Request& request, const std::string& doing) {
  if (request.key.size() > kMostBytes || request.value.size() > kMostBytes) throw bad_input("store: '" + request.key.substr(0, 64) + "' is too large to be kept.");
  if (server_) return server_->answer(request);
  const std::lock_guard lock(mutex_);
  const auto end = Clock::now() + kAnswerTime;
  const RequestHead head{request.verb, static_cast<std::uint32_t>(request.key.size()), static_cast<std::uint32_t>(request.value.size()), 0, request.amount};
  ReplyHead answer;
  Reply reply;
  std::string wrong = "it was lost before";
  if (socket_.valid()) {
    wrong = send_all(socket_.get(), bytes_of(head) + request.key + request.value, end);
    if (wrong.empty()) wrong = receive_all(socket_.get(), reinterpret_cast<char*>(&answer), sizeof answer, end);
    if (wrong.empty()) {
      reply = {answer.found != 0, std::string(std::min(answer.value_bytes, kMostBytes), '\0'), answer.sum};
      wrong = receive_all(socket_.get(), reply.value.data(), reply.value.size(), end);
    }
  }
  if (!wrong.empty()) {
    socket_.reset();  // half a message may be under way
    throw Error(ErrorKind::kStore, "Lost " + where() + " while " + doing + ": " + wrong + ".",
                "Rank 0, which holds it, has probably ended: look at its last lines.");
  }
  return reply;
}

void TcpStore::set(const std::string& key, const std::string& value) { (void)ask({Verb::kSet, key, value, 0}, "setting '" + key + "'"); }

std::int64_t TcpStore::add(const std::string& key, std::int64_t amount) { return ask({Verb::kAdd, key, {}, amount}, "adding to '" + key + "'").sum; }

std::string TcpStore::get(const std::string& key, milliseconds timeout) {
  const auto start = Clock::now();
  for (;;) {
    Reply reply = ask({Verb::kGet, key, {}, 0}, "waiting for '" + key + "'");
    if (reply.found) return std::move(reply.value);
    const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
    if (waited >= timeout) {
      throw Error(ErrorKind::kTimeout, "Nobody set '" + key + "' in " + where() + " within " + std::to_string(timeout.count()) + " ms.",
                  "The rank that should have set it is late or gone.");
    }
    std::this_thread::sleep_for(std::clamp(waited / 8, kShortestPause, kLongestPause));
  }
}

}  // namespace wirewise
