// One buffer that all ranks of a host see.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "comm/ranks.h"
#include "wirewise/base/error.h"
#include "wirewise/comm/communicator.h"

namespace wirewise::testing {
namespace {

constexpr std::size_t kCount = 100'003;  // no multiple of a page

/// Each rank writes its part; behind a barrier all read all.
std::string exchange(Communicator& world, int owner, std::size_t bytes) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto me = static_cast<std::size_t>(world.rank());
  auto* const data = static_cast<std::uint32_t*>(world.allocate_group_shared(bytes, owner));
  const std::size_t count = bytes / sizeof(std::uint32_t);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = me; i < count; i += ranks) data[i] = static_cast<std::uint32_t>(i * 7 + static_cast<std::size_t>(round));
    world.barrier().wait();
    for (std::size_t i = 0; i < count; ++i) {
      if (data[i] != static_cast<std::uint32_t>(i * 7 + static_cast<std::size_t>(round))) throw std::runtime_error("element " + std::to_string(i));
    }
    world.barrier().wait();
  }
  world.free_shared(data);
  return "ok";
}

TEST(GroupShared, EveryRankOfAHostSeesWhatTheOthersWrite) {
  for (int ranks : {1, 2, 3}) {
    expect_all_ok(run_communicators(ranks, [&](Communicator& world) {
      EXPECT_TRUE(world.one_host());
      for (int owner = 0; owner < ranks; ++owner) exchange(world, owner, kCount * sizeof(std::uint32_t));
      return exchange(world, 0, 4);
    }));
  }
}

void on_threads(int ranks, const std::function<void(Communicator&)>& body) { expect_no_errors(run_threads(ranks, body)); }

TEST(GroupShared, ThreadsAsRanksSeeIt) {
  on_threads(4, [](Communicator& world) { EXPECT_EQ(exchange(world, 2, kCount * sizeof(std::uint32_t)), "ok"); });
}

TEST(GroupShared, MemoryStaysUntilTheLastRankGivesItBack) {
  expect_all_ok(run_communicators(2, [&](Communicator& world) {
    constexpr std::size_t kBytes = 1 << 20;
    auto* const first = static_cast<unsigned char*>(world.allocate_group_shared(kBytes, 0));
    if (world.rank() == 0) std::memset(first, 17, kBytes);
    world.barrier().wait();
    // The owner gives it back and asks for as much again: what rank 1 still holds must not be handed out.
    if (world.rank() == 0) {
      world.free_shared(first);
      void* const next = world.allocate_shared(kBytes + 64);
      EXPECT_NE(next, first);
      std::memset(next, 99, kBytes);
    }
    world.barrier().wait();
    if (world.rank() == 1) {
      for (std::size_t i = 0; i < kBytes; ++i) {
        if (first[i] != 17) throw std::runtime_error("byte " + std::to_string(i) + " is " + std::to_string(first[i]));
      }
      world.free_shared(first);
    }
    world.barrier().wait();
    // Now it may be used anew.
    if (world.rank() == 0) {
      EXPECT_EQ(world.allocate_shared(kBytes + 64), static_cast<void*>(first));
    }
    return std::string();
  }));
}

TEST(GroupShared, ACommunicatorThatEndsGivesBackItsHold) {
  on_threads(2, [](Communicator& world) { (void)world.allocate_group_shared(4096, 1); });
}

TEST(GroupShared, NoRoomAtTheOwnerIsAnErrorOnAllRanks) {
  std::atomic<int> said{0};
  on_threads(3, [&](Communicator& world) {
    try {
      (void)world.allocate_group_shared(std::size_t{1} << 50, 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFailed);
      if (world.rank() != 1) {
        EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
      }
      ++said;
    }
    EXPECT_EQ(exchange(world, 1, 4096), "ok") << "the group goes on";
  });
  EXPECT_EQ(said, 3);
}

TEST(GroupShared, RanksThatAskForDifferentSizesOrOwnersAreTold) {
  for (const bool sizes : {true, false}) {
    std::atomic<int> said{0};
    on_threads(2, [&](Communicator& world) {
      try {
        (void)world.allocate_group_shared(sizes ? 4096 + static_cast<std::size_t>(world.rank()) : 4096, sizes ? 0 : world.rank());
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
        EXPECT_NE(std::string(error.what()).find("rank 0"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
        ++said;
      }
    });
    EXPECT_EQ(said, 2);
  }
}

TEST(GroupShared, AnOwnerThatIsNoRankIsRefused) {
  on_threads(2, [](Communicator& world) { EXPECT_THROW((void)world.allocate_group_shared(64, 2), Error); });
}

}  // namespace
}  // namespace wirewise::testing
