// The store over TCP: what it keeps, who may speak with it, and what ranks hear when it is lost.
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/ranks.h"
#include "wirewise/base/error.h"
#include "wirewise/comm/tcp_store.h"

namespace wirewise {
namespace {

using namespace std::chrono_literals;
using testing::run_ranks;

constexpr const char* kHere = "127.0.0.1";

struct Held {
  std::uint16_t port = 0;
  std::unique_ptr<TcpStore> store;
};

Held hold() {
  Listener listener(kHere, 0, "MASTER_PORT");
  Held held;
  held.port = listener.port();
  held.store = std::make_unique<TcpStore>(kHere, std::move(listener));
  return held;
}

comm::UniqueFd connect_by_hand(std::uint16_t port) {
  comm::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, kHere, &address.sin_addr);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) throw std::runtime_error("can't connect");
  return fd;
}

TEST(TcpStore, KeepsBytesAndCountsForItsHolderAndForOthers) {
  const Held held = hold();
  TcpStore other(kHere, held.port, 5s);
  const std::string bytes("\0\n\xff binary", 10);
  other.set("a key / with: all sorts", bytes);
  EXPECT_EQ(held.store->get("a key / with: all sorts", 0ms), bytes);
  held.store->set("a key / with: all sorts", "");
  EXPECT_EQ(other.get("a key / with: all sorts", 0ms), "");
  const std::string large(3 << 20, 'x');
  held.store->set("large", large);
  EXPECT_EQ(other.get("large", 5s), large);
  other.set("large", large + "y");
  EXPECT_EQ(held.store->get("large", 0ms), large + "y");
  EXPECT_EQ(held.store->add("count", 5), 5);
  EXPECT_EQ(other.add("count", -7), -2);
  EXPECT_EQ(other.get("count", 0ms), "-2");
  EXPECT_EQ(other.where(), "the store at 127.0.0.1:" + std::to_string(held.port));
}

TEST(TcpStore, AddsOfManyRanksAreEachCountedOnce) {
  const Held held = hold();
  constexpr int kRanks = 16;
  constexpr int kAdds = 50;
  std::vector<std::thread> ranks;
  std::atomic<std::int64_t> seen{0};
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&] {
      TcpStore store(kHere, held.port, 20s);
      for (int i = 0; i < kAdds; ++i) seen += store.add("all", 1);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  constexpr std::int64_t kSum = kRanks * kAdds;
  EXPECT_EQ(held.store->add("all", 0), kSum);
  EXPECT_EQ(seen, kSum * (kSum + 1) / 2);  // each sum was given out once
}

TEST(TcpStore, WaitsForAKeyAndNamesTheOneThatNobodySets) {
  const Held held = hold();
  std::thread late([&] { TcpStore(kHere, held.port, 5s).set("late", "here"); });
  EXPECT_EQ(TcpStore(kHere, held.port, 5s).get("late", 20s), "here");
  late.join();
  TcpStore other(kHere, held.port, 5s);
  try {
    (void)other.get("never", 30ms);
    FAIL() << "got a key that nobody set";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kTimeout);
    EXPECT_EQ(error.sentence(), "Nobody set 'never' in the store at 127.0.0.1:" + std::to_string(held.port) + " within 30 ms.");
  }
  other.set("never", "after all");  // the connection is as good as before
  EXPECT_EQ(other.get("never", 0ms), "after all");
}

TEST(TcpStore, ALostStoreIsNamedAndStaysLost) {
  Held held = hold();
  TcpStore other(kHere, held.port, 5s);
  other.set("key", "value");
  held.store.reset();
  for (int i = 0; i < 2; ++i) {
    try {
      (void)other.get("key", 5s);
      FAIL() << "the store is gone";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kStore);
      EXPECT_NE(error.sentence().find("Lost the store at 127.0.0.1:" + std::to_string(held.port) + " while waiting for 'key'"), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(TcpStore(kHere, held.port, 5s), Error);
}

TEST(TcpStore, StrangersAreTurnedAwayAndDoNoHarm) {
  const Held held = hold();
  for (const std::string& words : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("wwstore1") + std::string(64, '\xff'), std::string("wwst")}) {
    const comm::UniqueFd stranger = connect_by_hand(held.port);
    ASSERT_EQ(::send(stranger.get(), words.data(), words.size(), MSG_NOSIGNAL), static_cast<ssize_t>(words.size()));
    ::shutdown(stranger.get(), SHUT_WR);
    char got[64];
    ssize_t bytes = 0;
    while ((bytes = ::recv(stranger.get(), got, sizeof got, 0)) > 0) {
    }
    EXPECT_LE(bytes, 0) << words;  // closed, perhaps behind the greeting
  }
  {  // who ends in the middle of a request
    TcpStore whole(kHere, held.port, 5s);
    whole.set("key", "value");
    const comm::UniqueFd half = connect_by_hand(held.port);
    const std::string words = std::string("wwstore1") + std::string(20, '\0');
    ASSERT_EQ(::send(half.get(), words.data(), words.size(), MSG_NOSIGNAL), static_cast<ssize_t>(words.size()));
  }
  EXPECT_EQ(TcpStore(kHere, held.port, 5s).get("key", 5s), "value");
}

TEST(TcpStore, WhatIsNoStoreIsNamedInTime) {
  const Listener silent(kHere, 0, "MASTER_PORT");  // takes connections, and says nothing
  try {
    TcpStore store(kHere, silent.port(), 50ms);
    FAIL() << "a silent port was taken for a store";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kStore);
    EXPECT_EQ(error.sentence(), "What listens at 127.0.0.1:" + std::to_string(silent.port()) + " is no store of this kind: it does not answer.");
  }
}

TEST(TcpStore, RanksMeetInIt) {
  const Held held = hold();  // in the parent: the ranks reach it
  const auto results = run_ranks(4, [&](int rank) {
    const auto comm = make_communicator(std::make_shared<TcpStore>(kHere, held.port, 20s), rank, 4);
    float sum = static_cast<float>(rank + 1);
    comm->all_reduce({&sum, DType::kFloat32}, {&sum, DType::kFloat32}, 1).wait();
    return std::to_string(sum);
  });
  testing::expect_all_ok(results);
  for (const auto& result : results) EXPECT_EQ(result.output, std::to_string(10.0F));
}

}  // namespace
}  // namespace wirewise
