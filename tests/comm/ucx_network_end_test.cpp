// How connections and transfers of the network over UCX end: by a peer's death, when they are let go, when the network closes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <numeric>
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
using testing::join_network;
using testing::loopback;
using testing::Shared;
using testing::UcxNetwork;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A peer dies while a large message is under way; while a receive waits that nobody will meet; and before anything was sent.
TEST_F(UcxNetwork, APeersDeathFailsItsTransfers) {
  for (const std::string phase : {"sending", "receiving", "mid-message", "idle"}) {
    const Shared<std::atomic<std::int64_t>> died;
    run(
        2,
        [&](Network& network, int rank, Board& board) {
          constexpr std::size_t kBytes = 256 << 20;
          std::vector<unsigned char> memory(kBytes);
          if (rank == 1) {
            std::unique_ptr<Transfer> transfer;
            char token = 1;
            if (phase != "idle") finish(network, *network.send(0, 1, &token, 1));
            if (phase == "mid-message") {
              transfer = network.recv(0, 2, memory.data(), kBytes);
              const auto end = Clock::now() + 20s;
              while (memory[1 << 20] == 0 && Clock::now() < end) network.progress();  // its first bytes are here
            }
            board.barrier(1, 2);
            *died = Clock::now().time_since_epoch().count();
            ::kill(::getpid(), SIGKILL);
          }
          std::fill(memory.begin(), memory.end(), 1);
          char token = 0;
          if (phase != "idle") finish(network, *network.recv(1, 1, &token, 1));
          std::unique_ptr<Transfer> transfer;
          if (phase == "sending" || phase == "mid-message") transfer = network.send(1, 2, memory.data(), kBytes);
          if (phase == "receiving") transfer = network.recv(1, 2, memory.data(), kBytes);
          ++board.arrived;
          while (board.arrived < 2) network.progress();
          if (phase == "idle") {
            const auto end = Clock::now() + 20s;
            while (*died == 0 && Clock::now() < end) std::this_thread::sleep_for(1ms);
            transfer = network.recv(1, 2, memory.data(), 8);
          }
          try {
            finish(network, *transfer);
            ADD_FAILURE() << phase << ": the transfer with a dead rank went well";
          } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::kPeerLost) << phase << ": " << error.what();
            EXPECT_NE(error.sentence().find("rank 1"), std::string::npos) << error.what();
          }
          EXPECT_THROW((void)transfer->done(), Error);  // as often as it is asked
          // Later transfers fail too, and at once.
          EXPECT_THROW(finish(network, *network.send(1, 3, &token, 1)), Error);
          EXPECT_THROW(finish(network, *network.recv(1, 3, &token, 1)), Error);
        },
        1);
  }
}

TEST_F(UcxNetwork, WhatADeadPeerHadSentIsStillReceived) {
  run(
      2,
      [&](Network& network, int rank, Board& board) {
        int value = 41;
        if (rank == 1) {
          finish(network, *network.send(0, 1, &value, sizeof value));
          finish(network, *network.send(0, 2, &value, sizeof value));
          int got = 0;
          finish(network, *network.recv(0, 3, &got, sizeof got));
          board.put(1, "gone");
          ::kill(::getpid(), SIGKILL);
        }
        int got = 0;
        finish(network, *network.recv(1, 1, &got, sizeof got));
        const auto send = network.send(1, 3, &got, sizeof got);
        finish(network, *send);
        // Wait for the death by a receive that never comes, then ask for the message that did.
        EXPECT_THROW(finish(network, *network.recv(1, 9, &got, sizeof got)), Error);
        got = 0;
        finish(network, *network.recv(1, 2, &got, sizeof got));
        EXPECT_EQ(got, 41);
      },
      1);
}

TEST_F(UcxNetwork, AReceiveThatIsLetGoTakesNothing) {
  run(2, [&](Network& network, int rank, Board& board) {
    int value = 7;
    if (rank == 0) {
      board.barrier(1, 2);
      finish(network, *network.send(1, 1, &value, sizeof value));
      finish(network, *network.recv(1, 2, &value, sizeof value));
      return;
    }
    int untouched = -1;
    { const auto unwanted = network.recv(0, 1, &untouched, sizeof untouched); }
    { const auto unwanted = network.recv(kAnyPeer, 1, &untouched, sizeof untouched); }
    board.barrier(1, 2);
    int got = 0;
    finish(network, *network.recv(0, 1, &got, sizeof got));
    EXPECT_EQ(got, 7);
    EXPECT_EQ(untouched, -1);
    finish(network, *network.send(0, 2, &value, sizeof value));
  });
}

// A send that nobody receives is let go, its memory unmapped: nothing may read it afterwards.
TEST_F(UcxNetwork, ASendThatIsLetGoLeavesItsMemoryAlone) {
  run(2, [&](Network& network, int rank, Board& board) {
    constexpr std::size_t kBytes = 64 << 20;
    char token = 0;
    if (rank == 0) {
      finish(network, *network.recv(1, 1, &token, 1));
      void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      ASSERT_NE(memory, MAP_FAILED);
      std::memset(memory, 1, kBytes);
      {
        const auto send = network.send(1, 2, memory, kBytes);
        for (int i = 0; i < 100; ++i) network.progress();
        EXPECT_FALSE(send->done());
      }
      ::munmap(memory, kBytes);
      try {
        finish(network, *network.send(1, 3, &token, 1));
        ADD_FAILURE() << "a connection that was broken off still sends";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kFailed) << error.what();
      }
      board.barrier(1, 2);
      return;
    }
    finish(network, *network.send(0, 1, &token, 1));
    board.arrived++;
    std::vector<unsigned char> memory(kBytes);
    while (board.arrived < 2) network.progress();
    EXPECT_THROW(finish(network, *network.recv(0, 2, memory.data(), kBytes)), Error);
  });
}

TEST_F(UcxNetwork, ClosingEndsWhatIsInFlight) {
  run(2, [&](Network&, int rank, Board& board) {
    // A second network, so that it can be closed here.
    board.barrier(1, 2);
    board.slots[0].length = 0;
    board.slots[1].length = 0;
    board.barrier(2, 2);
    auto network = join_network(board, rank, 2, loopback());
    char token = 0;
    const auto waiting = network->recv(1 - rank, 1, &token, 1);
    const auto any = network->recv(kAnyPeer, 2, &token, 1);
    network.reset();
    EXPECT_THROW((void)waiting->done(), Error);
    EXPECT_THROW((void)any->done(), Error);
  });
}

// Sends that are done arrive although their network is closed at once.
TEST_F(UcxNetwork, WhatWasSentArrivesAfterTheSenderClosed) {
  run(2, [&](Network& network, int rank, Board&) {
    constexpr int kMessages = 2000;
    std::vector<int> values(kMessages);
    std::iota(values.begin(), values.end(), 0);
    if (rank == 0) {
      std::vector<std::unique_ptr<Transfer>> sends;
      for (int& value : values) sends.push_back(network.send(1, 1, &value, sizeof value));
      for (const auto& send : sends) finish(network, *send);
      return;
    }
    for (const int value : values) {
      int got = -1;
      finish(network, *network.recv(0, 1, &got, sizeof got));
      ASSERT_EQ(got, value);
    }
  });
}

}  // namespace
}  // namespace wirewise
