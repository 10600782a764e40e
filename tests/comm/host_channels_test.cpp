// Channels between hosts, here between threads and processes over loopback: meeting, strangers, torn frames, bursts, death.
#include "wirewise/comm/host_channels.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include "comm/ranks.h"
#include "comm/wires.h"
#include "ipv6.h"
#include "wirewise/base/error.h"
#include "wirewise/comm/network.h"

namespace wirewise::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Channels = std::vector<std::shared_ptr<HostChannels>>;
using Heard = std::vector<std::pair<int, std::string>>;
using testing::eventually;

/// Ranks 0 … count-1, each in a thread of its own while they meet.
Channels meet(int count, const std::string& address = "127.0.0.1",
              const std::function<void(const std::vector<ChannelAddress>&)>& before = {}) {
  std::vector<std::unique_ptr<HostChannels::Listening>> listening;
  std::vector<ChannelAddress> where;
  for (int i = 0; i < count; ++i) {
    listening.push_back(HostChannels::listen(address));
    where.push_back(HostChannels::address_of(*listening.back()));
  }
  if (before) before(where);
  std::vector<std::future<std::shared_ptr<HostChannels>>> futures;
  for (int rank = 0; rank < count; ++rank) {
    std::vector<std::pair<int, ChannelAddress>> peers;
    for (int other = 0; other < count; ++other) {
      if (other != rank) peers.emplace_back(other, where[static_cast<std::size_t>(other)]);
    }
    futures.push_back(std::async(std::launch::async, [rank, peers, own = std::move(listening[static_cast<std::size_t>(rank)])]() mutable {
      return HostChannels::connect(std::move(own), rank, peers, Clock::now() + 30s);
    }));
  }
  Channels channels;
  for (auto& future : futures) channels.push_back(future.get());
  return channels;
}

/// Collects until `count` messages are here.
Heard hear(HostChannels& channels, std::size_t count) {
  Heard all;
  EXPECT_TRUE(eventually([&] {
    for (auto& message : channels.heard()) all.push_back(std::move(message));
    return all.size() >= count;
  })) << all.size()
      << " of " << count << " messages came";
  return all;
}

UniqueFd connect_raw(const ChannelAddress& where) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(where.port);
  ::inet_pton(AF_INET, where.address.c_str(), &target.sin_addr);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target), 0);
  return socket;
}

void write_all(int socket, const std::string& text) {
  EXPECT_EQ(::send(socket, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

std::string frame(const std::string& message) {
  std::string text;
  for (unsigned i = 0; i < 4; ++i) text.push_back(static_cast<char>(message.size() >> (8 * i)));
  return text + message;
}

/// Rank 0 met by a peer (rank 1) of which the test holds the bare socket.
struct BarePeer {
  std::shared_ptr<HostChannels> channels;
  UniqueFd socket;
};

BarePeer bare_peer() {
  auto listening = HostChannels::listen("127.0.0.1");
  const ChannelAddress where = HostChannels::address_of(*listening);
  const ChannelAddress own{"127.0.0.1", 9, std::string(32, 'b')};
  auto future = std::async(std::launch::async, [&] {
    return HostChannels::connect(std::move(listening), 0, {{1, own}}, Clock::now() + 30s);
  });
  BarePeer peer;
  peer.socket = connect_raw(where);
  std::string hello = "wwchan01";
  hello += std::string("\1\0\0\0", 4) + std::string(4, '\0') + where.cookie;
  for (const char byte : hello) write_all(peer.socket.get(), std::string(1, byte));  // torn into single bytes
  peer.channels = future.get();
  std::string answer(48, 0);
  EXPECT_EQ(::recv(peer.socket.get(), answer.data(), answer.size(), MSG_WAITALL), 48);
  EXPECT_EQ(answer.substr(16), own.cookie);
  return peer;
}

TEST(HostChannels, EveryPairTalks) {
  for (const int count : {1, 2, 5}) {
    const Channels channels = meet(count);
    for (int from = 0; from < count; ++from) channels[static_cast<std::size_t>(from)]->tell(kAnyPeer, "from " + std::to_string(from));
    for (int to = 0; to < count; ++to) {
      Heard heard = hear(*channels[static_cast<std::size_t>(to)], static_cast<std::size_t>(count - 1));
      std::sort(heard.begin(), heard.end());
      Heard wanted;
      for (int from = 0; from < count; ++from) {
        if (from != to) wanted.emplace_back(from, "from " + std::to_string(from));
      }
      EXPECT_EQ(heard, wanted);
      EXPECT_TRUE(channels[static_cast<std::size_t>(to)]->dead().empty());
    }
  }
}

TEST(HostChannels, OneRankIsToldAlone) {
  const Channels channels = meet(3);
  channels[0]->tell(2, "for two");
  channels[0]->tell(1, "for one");
  EXPECT_EQ(hear(*channels[1], 1), (Heard{{0, "for one"}}));
  EXPECT_EQ(hear(*channels[2], 1), (Heard{{0, "for two"}}));
}

TEST(HostChannels, OverIpv6) {
  if (!testing::has_ipv6()) GTEST_SKIP() << "this host has no IPv6";
  const Channels channels = meet(2, "::1");
  channels[1]->tell(0, "six");
  EXPECT_EQ(hear(*channels[0], 1), (Heard{{1, "six"}}));
}

TEST(HostChannels, CookiesDiffer) {
  const auto a = HostChannels::listen("127.0.0.1");
  const auto b = HostChannels::listen("127.0.0.1");
  EXPECT_EQ(HostChannels::address_of(*a).cookie.size(), 32u);
  EXPECT_NE(HostChannels::address_of(*a).cookie, HostChannels::address_of(*b).cookie);
}

TEST(HostChannels, ABurstArrivesWholeAndInOrder) {
  const Channels channels = meet(2);
  constexpr std::size_t kMessages = 3000;
  std::size_t bytes = 0;
  // Far more than the sockets hold, while the peer takes nothing in.
  for (std::size_t i = 0; i < kMessages; ++i) {
    const std::string message(i % 100 == 99 ? 65536 : i % 5000, static_cast<char>('a' + i % 26));
    bytes += message.size();
    channels[0]->tell(1, message);
  }
  EXPECT_GT(bytes, std::size_t{5} << 20);
  Heard all;
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(channels[0]->dead().empty());  // any call sends on
    for (auto& message : channels[1]->heard()) all.push_back(std::move(message));
    return all.size() >= kMessages;
  }));
  ASSERT_EQ(all.size(), kMessages);
  for (std::size_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(all[i].second, std::string(i % 100 == 99 ? 65536 : i % 5000, static_cast<char>('a' + i % 26))) << i;
  }
}

TEST(HostChannels, FromSeveralThreads) {
  const Channels channels = meet(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 250; ++i) channels[0]->tell(1, std::to_string(t) + " " + std::string(static_cast<std::size_t>(i), 'x'));
    });
  }
  std::vector<int> next(4, 0);
  const Heard all = hear(*channels[1], 1000);
  for (auto& thread : threads) thread.join();
  for (const auto& [from, message] : all) {
    int& count = next[static_cast<std::size_t>(message[0] - '0')];
    EXPECT_EQ(message.size(), static_cast<std::size_t>(count) + 2);
    ++count;
  }
}

TEST(HostChannels, AClosedConnectionIsADeathAndItsLastWordsAreHeard) {
  Channels channels = meet(3);
  channels[1]->tell(kAnyPeer, "the cause");
  channels[1].reset();
  for (const std::size_t left : {std::size_t{0}, std::size_t{2}}) {
    EXPECT_TRUE(eventually([&] { return channels[left]->dead() == std::vector<int>{1}; }));
    EXPECT_EQ(hear(*channels[left], 1), (Heard{{1, "the cause"}}));
    channels[left]->tell(1, "to nobody");
  }
  channels[0]->tell(2, "still here");
  EXPECT_EQ(hear(*channels[2], 1), (Heard{{0, "still here"}}));
}

TEST(HostChannels, AKilledProcessIsNoticed) {
  const testing::Shared<testing::Board> board;
  const auto results = testing::run_ranks(2, [&](int rank) {
    auto listening = HostChannels::listen("127.0.0.1");
    const ChannelAddress own = HostChannels::address_of(*listening);
    board->put(rank, std::to_string(own.port) + " " + own.cookie);
    const std::string other = board->get(1 - rank);
    const ChannelAddress where{"127.0.0.1", static_cast<std::uint16_t>(std::stoi(other)), other.substr(other.find(' ') + 1)};
    const auto channels = HostChannels::connect(std::move(listening), rank, {{1 - rank, where}}, Clock::now() + 30s);
    board->barrier(1, 2);
    if (rank == 1) ::kill(::getpid(), SIGKILL);
    EXPECT_TRUE(eventually([&] { return channels->dead() == std::vector<int>{1}; }));
    return std::string();
  });
  EXPECT_TRUE(results[0].ok()) << results[0].output;
}

// One says nothing, one says too little, one says rubbish, one knows everything but the cookie, one goes at once.
TEST(HostChannels, StrangersDoNotDisturb) {
  std::vector<UniqueFd> strangers;
  const Channels channels = meet(3, "127.0.0.1", [&](const std::vector<ChannelAddress>& where) {
    for (const ChannelAddress& target : where) {
      strangers.push_back(connect_raw(target));
      strangers.push_back(connect_raw(target));
      write_all(strangers.back().get(), "wwcha");
      strangers.push_back(connect_raw(target));
      write_all(strangers.back().get(), std::string(100000, '\xff'));
      strangers.push_back(connect_raw(target));
      write_all(strangers.back().get(), "wwchan01" + std::string("\2\0\0\0", 4) + std::string(4, '\0') + std::string(32, '0'));
      strangers.push_back(connect_raw(target));
      strangers.back().reset();
    }
  });
  channels[0]->tell(kAnyPeer, "hello");
  EXPECT_EQ(hear(*channels[1], 1), (Heard{{0, "hello"}}));
  EXPECT_EQ(hear(*channels[2], 1), (Heard{{0, "hello"}}));
  // None of them was answered.
  for (const UniqueFd& stranger : strangers) {
    char byte = 0;
    if (!stranger.valid()) continue;
    EXPECT_LE(::recv(stranger.get(), &byte, 1, MSG_DONTWAIT), 0);
  }
}

TEST(HostChannels, ManyMeetAtOnce) {
  const Channels channels = meet(24);
  for (const auto& one : channels) EXPECT_TRUE(one->dead().empty());
}

TEST(HostChannels, TornFramesAreJoined) {
  const BarePeer peer = bare_peer();
  const std::string stream = frame("one") + frame("") + frame(std::string(65536, 'z')) + frame("end");
  Heard all;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t part = std::min<std::size_t>(stream.size() - at, at < 20 ? 1 : 9973);
    write_all(peer.socket.get(), stream.substr(at, part));
    at += part;
    for (auto& message : peer.channels->heard()) all.push_back(std::move(message));
  }
  for (auto& message : all.size() < 4 ? hear(*peer.channels, 4 - all.size()) : Heard{}) all.push_back(std::move(message));
  EXPECT_EQ(all, (Heard{{1, "one"}, {1, ""}, {1, std::string(65536, 'z')}, {1, "end"}}));
}

TEST(HostChannels, ALengthThatNoRankSendsEndsTheChannel) {
  const BarePeer peer = bare_peer();
  write_all(peer.socket.get(), frame("fine") + std::string("\xff\xff\xff\x7f", 4) + "and more");
  EXPECT_TRUE(eventually([&] { return peer.channels->dead() == std::vector<int>{1}; }));
  EXPECT_EQ(peer.channels->heard(), (Heard{{1, "fine"}}));
}

TEST(HostChannels, AMessageThatIsTooLongIsCut) {
  const Channels channels = meet(2);
  channels[0]->tell(1, std::string(70000, 'x'));
  EXPECT_EQ(hear(*channels[1], 1)[0].second.size(), 65536u);
}

TEST(HostChannels, WhoIsMissingIsNamed) {
  ChannelAddress gone;
  {
    const auto listening = HostChannels::listen("127.0.0.1");
    gone = HostChannels::address_of(*listening);
  }
  auto listening = HostChannels::listen("127.0.0.1");
  try {
    (void)HostChannels::connect(std::move(listening), 1, {{0, gone}, {5, {"127.0.0.1", 9, std::string(32, '0')}}}, Clock::now() + 200ms);
    FAIL() << "connected with nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kTimeout);
    EXPECT_NE(error.sentence().find("rank 0 at 127.0.0.1:" + std::to_string(gone.port) + ": Connection refused"), std::string::npos)
        << error.what();
    EXPECT_NE(error.sentence().find("rank 5"), std::string::npos) << error.what();
  }
}

// Whether it was to be connected to or to connect by itself.
TEST(HostChannels, ARankThatEndedIsNotWaitedFor) {
  ChannelAddress gone;
  {
    const auto listening = HostChannels::listen("127.0.0.1");
    gone = HostChannels::address_of(*listening);
  }
  for (const int rank : {0, 2}) {
    const auto start = Clock::now();
    try {
      (void)HostChannels::connect(HostChannels::listen("127.0.0.1"), 1, {{rank, gone}}, start + 60s);
      FAIL() << "connected with nobody";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kPeerLost) << error.what();
      EXPECT_NE(error.sentence().find("rank " + std::to_string(rank) + " at 127.0.0.1:" + std::to_string(gone.port)), std::string::npos) << error.what();
      EXPECT_LT(Clock::now() - start, 30s);
    }
  }
}

// Nor one that ends while it is waited for; one that is only slow is.
TEST(HostChannels, ASlowRankIsWaitedForUntilItEnds) {
  auto slow = HostChannels::listen("127.0.0.1");
  const ChannelAddress where = HostChannels::address_of(*slow);
  std::atomic<bool> ended{false};
  std::thread waiting([&] {
    EXPECT_THROW((void)HostChannels::connect(HostChannels::listen("127.0.0.1"), 1, {{2, where}}, Clock::now() + 60s), Error);
    EXPECT_TRUE(ended);
  });
  // Something comes to its port: the question whether it lives. Not accepted, it waits.
  pollfd asked{slow->socket.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&asked, 1, 30'000), 1);
  ended = true;
  slow.reset();
  waiting.join();
}

// Something else listens where a rank did: it is left, and tried again until the time is over.
TEST(HostChannels, AStrangerAtThePeersPortIsNotBelieved) {
  const UniqueFd impostor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof own;
  ASSERT_EQ(::bind(impostor.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own), 0);
  ASSERT_EQ(::listen(impostor.get(), 5), 0);
  ASSERT_EQ(::getsockname(impostor.get(), reinterpret_cast<sockaddr*>(&own), &length), 0);
  std::thread server([&] {
    const UniqueFd one(::accept(impostor.get(), nullptr, nullptr));
    ::send(one.get(), std::string(48, 'x').data(), 48, MSG_NOSIGNAL);
  });
  try {
    (void)HostChannels::connect(HostChannels::listen("127.0.0.1"), 1, {{0, {"127.0.0.1", ntohs(own.sin_port), std::string(32, '0')}}},
                                Clock::now() + 500ms);
    ADD_FAILURE() << "believed it";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kTimeout) << error.what();
  }
  server.join();
}

TEST(HostChannels, AnAddressThatIsNotOursFails) {
  EXPECT_THROW((void)HostChannels::listen("192.0.2.77"), Error);
  EXPECT_THROW((void)HostChannels::listen("localhost"), Error);  // a name is no numeric address
}

}  // namespace
}  // namespace wirewise::comm
