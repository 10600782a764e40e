// The network over UCX: order, matching, every size, truncation, waking. Over the loopback interface, where its
// shared-memory transports would come into play if they weren't excluded; that they are is counted in ucx_namespace_test.cpp.
#include "wirewise/comm/ucx_network.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <future>
#include <thread>

#include "comm/ucx_ranks.h"
#include "wirewise/base/error.h"

namespace wirewise {
namespace {

using comm::kAnyPeer;
using comm::Network;
using comm::Transfer;
using testing::Board;
using testing::finish;
using testing::loopback;
using testing::pattern;
using testing::run_ranks;
using testing::UcxNetwork;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST_F(UcxNetwork, MovesEverySizeUnchanged) {
  const std::vector<std::size_t> sizes = {0,    1,    7,     8,     63,     64,      1000,          4096,    8191,
                                          8192, 8193, 16384, 65536, 100001, 1 << 20, (5 << 20) + 3, 64 << 20};
  run(2, [&](Network& network, int rank, Board&) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto wanted = pattern(sizes[i], static_cast<unsigned>(i));
      if (rank == 0) {
        finish(network, *network.send(1, i, wanted.data(), wanted.size()));
      } else {
        std::vector<unsigned char> got(sizes[i] + 1, 0xee);
        const auto transfer = network.recv(0, i, got.data(), sizes[i] + (i % 2));  // also into more room than needed
        finish(network, *transfer);
        EXPECT_EQ(transfer->bytes(), sizes[i]);
        EXPECT_EQ(transfer->source(), 0);
        EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), got.begin())) << sizes[i];
        EXPECT_EQ(got.back(), 0xee);
      }
    }
  });
}

TEST_F(UcxNetwork, BothWaysAtOnceWithoutDeadlock) {
  run(2, [&](Network& network, int rank, Board&) {
    constexpr std::size_t kBytes = 8 << 20;
    const auto out = pattern(kBytes, static_cast<unsigned>(rank));
    std::vector<unsigned char> in(kBytes);
    const auto send = network.send(1 - rank, 5, out.data(), kBytes);
    const auto recv = network.recv(1 - rank, 5, in.data(), kBytes);
    finish(network, *recv);
    finish(network, *send);
    EXPECT_EQ(in, pattern(kBytes, static_cast<unsigned>(1 - rank)));
  });
}

TEST_F(UcxNetwork, EqualTagsArriveInOrderWhateverTheirSizes) {
  const std::vector<std::size_t> sizes = {8, 300000, 16, 2 << 20, 0, 9000, 8, 70000, 1};
  run(2, [&](Network& network, int rank, Board& board) {
    std::vector<std::vector<unsigned char>> memory;
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      memory.push_back(rank == 0 ? pattern(sizes[i], static_cast<unsigned>(i)) : std::vector<unsigned char>(2 << 20));
    }
    if (rank == 1) board.barrier(1, 2);  // all sends are posted before any receive
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      transfers.push_back(rank == 0 ? network.send(1, 9, memory[i].data(), sizes[i])
                                    : network.recv(0, 9, memory[i].data(), memory[i].size()));
    }
    if (rank == 0) board.barrier(1, 2);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      finish(network, *transfers[i]);
      if (rank == 0) continue;
      EXPECT_EQ(transfers[i]->bytes(), sizes[i]) << i;
      memory[i].resize(sizes[i]);
      EXPECT_EQ(memory[i], pattern(sizes[i], static_cast<unsigned>(i))) << i;
    }
  });
}

TEST_F(UcxNetwork, TagsAndPeersMatchExactly) {
  run(3, [&](Network& network, int rank, Board&) {
    const int me = rank * 1000;
    if (rank != 2) {
      const int high = me + 1;
      const int low = me + 2;
      const auto a = network.send(2, comm::kMostTag, &high, sizeof high);
      const auto b = network.send(2, 0, &low, sizeof low);
      finish(network, *a);
      finish(network, *b);
      int bye = 0;
      finish(network, *network.recv(2, 3, &bye, sizeof bye));
      return;
    }
    // Asked for in an order that isn't the order of sending.
    for (const int from : {1, 0}) {
      int got = 0;
      finish(network, *network.recv(from, 0, &got, sizeof got));
      EXPECT_EQ(got, from * 1000 + 2);
      finish(network, *network.recv(from, comm::kMostTag, &got, sizeof got));
      EXPECT_EQ(got, from * 1000 + 1);
    }
    for (const int to : {0, 1}) finish(network, *network.send(to, 3, &me, sizeof me));
  });
}

TEST_F(UcxNetwork, AnyPeerTellsWhoSent) {
  run(3, [&](Network& network, int rank, Board&) {
    if (rank == 0) {
      int sum = 0;
      for (int i = 0; i < 2; ++i) {
        int got = 0;
        const auto transfer = network.recv(kAnyPeer, 11, &got, sizeof got);
        finish(network, *transfer);
        EXPECT_EQ(got, transfer->source() * 100);
        EXPECT_EQ(transfer->bytes(), sizeof got);
        sum += transfer->source();
      }
      EXPECT_EQ(sum, 3);
    } else {
      const int mine = rank * 100;
      finish(network, *network.send(0, 11, &mine, sizeof mine));
    }
    int token = 0;  // nobody leaves before all is received
    if (rank == 0) {
      for (const int to : {1, 2}) finish(network, *network.send(to, 1, &token, sizeof token));
    } else {
      finish(network, *network.recv(0, 1, &token, sizeof token));
    }
  });
}

TEST_F(UcxNetwork, ALongerMessageFailsNamingBothSizes) {
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{20000}, std::size_t{4} << 20}) {
    run(2, [&](Network& network, int rank, Board&) {
      const auto data = pattern(bytes, 1);
      char token = 'x';
      if (rank == 0) {
        const auto send = network.send(1, 1, data.data(), bytes);
        finish(network, *send);
        finish(network, *network.recv(1, 2, &token, 1));
        return;
      }
      std::vector<unsigned char> room(99 + 1, 0xee);
      const auto recv = network.recv(0, 1, room.data(), 99);
      try {
        finish(network, *recv);
        ADD_FAILURE() << "a message of " << bytes << " bytes was received into 99";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kFailed);
        EXPECT_NE(error.sentence().find(std::to_string(bytes)), std::string::npos) << error.what();
        EXPECT_NE(error.sentence().find(" 99 "), std::string::npos) << error.what();
      }
      EXPECT_EQ(room.back(), 0xee);
      finish(network, *network.send(0, 2, &token, 1));  // the connection lives on
    });
  }
}

TEST_F(UcxNetwork, ATagAboveTheMostIsRefused) {
  run(1, [](Network& network, int, Board&) {
    char byte = 0;
    EXPECT_THROW((void)network.send(0, comm::kMostTag + 1, &byte, 1), Error);
    EXPECT_THROW((void)network.recv(1, 1, &byte, 1), Error);  // no such rank
  });
}

TEST_F(UcxNetwork, WakesASleeper) {
  run(1, [&](Network& network, int, Board&) {
    auto sleeper = std::async(std::launch::async, [&] { network.sleep(60s); });
    network.wake();
    EXPECT_EQ(sleeper.wait_for(20s), std::future_status::ready);
    network.wake();  // before the sleep: it doesn't fall asleep
    const auto start = Clock::now();
    network.sleep(20s);
    EXPECT_LT(Clock::now() - start, 20s);
  });
}

// One thread drives the network, the other sleeps for the message that the first one's progress brings.
TEST_F(UcxNetwork, AnotherThreadsProgressWakesASleeper) {
  run(2, [&](Network& network, int rank, Board& board) {
    constexpr int kRounds = 200;
    if (rank == 0) {
      for (int i = 0; i < kRounds; ++i) {
        int got = 0;
        finish(network, *network.send(1, 1, &i, sizeof i));
        finish(network, *network.recv(1, 2, &got, sizeof got));
      }
      board.barrier(1, 2);
      return;
    }
    std::atomic<bool> over{false};
    std::thread driver([&] {
      while (!over) network.progress();
    });
    for (int i = 0; i < kRounds; ++i) {
      int got = -1;
      const auto recv = network.recv(0, 1, &got, sizeof got);
      const auto end = Clock::now() + 20s;
      while (!recv->done() && Clock::now() < end) network.sleep(20s);
      EXPECT_EQ(got, i);
      finish(network, *network.send(0, 2, &i, sizeof i));
    }
    over = true;
    driver.join();
    board.barrier(1, 2);
  });
}

TEST_F(UcxNetwork, SeveralThreadsUseOneNetwork) {
  run(2, [&](Network& network, int rank, Board& board) {
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 100; ++i) {
          const std::size_t bytes = static_cast<std::size_t>(i) * 997 + 1;
          const auto out = pattern(bytes, static_cast<unsigned>(t * 1000 + i));
          std::vector<unsigned char> in(bytes);
          const auto tag = static_cast<std::uint64_t>(t);
          const auto send = network.send(1 - rank, tag, out.data(), bytes);
          const auto recv = network.recv(1 - rank, tag, in.data(), bytes);
          finish(network, *recv);
          finish(network, *send);
          if (in != out) ++wrong;
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    board.barrier(1, 2);
  });
}

TEST_F(UcxNetwork, AnInterfaceThatIsNotThereFails) {
  const auto results = run_ranks(1, [](int) {
    try {
      (void)comm::make_ucx_end({"nosuch0", "192.0.2.1", "", {}, false});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFailed);
      EXPECT_NE(error.sentence().find("nosuch0"), std::string::npos) << error.what();
      return std::string("refused");
    }
    return std::string("accepted");
  });
  EXPECT_EQ(results[0].output, "refused");
}

// The handlers of a program that loads UCX stay its own, and no setting of ours is left in its environment.
TEST_F(UcxNetwork, LeavesSignalsAndEnvironmentAlone) {
  const auto results = run_ranks(1, [](int) {
    const auto handlers = [] {
      std::vector<void*> all;
      for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGUSR1, SIGUSR2, SIGTERM, SIGINT}) {
        struct sigaction action {};
        ::sigaction(number, nullptr, &action);
        all.push_back(reinterpret_cast<void*>(action.sa_handler));
      }
      return all;
    };
    const auto before = handlers();
    const auto end = comm::make_ucx_end(loopback());
    EXPECT_EQ(handlers(), before);
    EXPECT_EQ(::getenv("UCX_HANDLE_ERRORS"), nullptr);
    return comm::ucx_version();
  });
  EXPECT_TRUE(results[0].ok()) << results[0].output;
  EXPECT_TRUE(results[0].output.starts_with("1.")) << results[0].output;
}

}  // namespace
}  // namespace wirewise
