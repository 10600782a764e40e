// The process that holds the store is killed, as torchrun's agent or rank 0 may be: while ranks meet, while they make a process group, and
// while they compute. Each survivor says what was lost and where it was, long before its deadline; ranks that need no store go on.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "c10d_ranks.h"
#include "rank_process.h"
#include "wirewise/comm/listener.h"
#include "wirewise/torch/c10d_backend.h"
#include "wirewise/torch/rendezvous.h"

namespace wirewise {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using testing::error_of;
using testing::expect_parts;
using testing::RankProcess;
using testing::Tensors;

constexpr milliseconds kDeadline{300'000};  // of everything the ranks wait for: no test waits so long

// --- what the processes do

std::uint16_t port_of_the_run() { return static_cast<std::uint16_t>(std::atoi(std::getenv("MASTER_PORT"))); }
std::string place_of_the_run() { return "127.0.0.1:" + std::to_string(port_of_the_run()); }

/// Ends with an error, before anything has waited for its deadline.
Error loses(const std::function<void()>& call) {
  const auto start = Clock::now();
  const Error error = error_of(call);
  EXPECT_LT(Clock::now() - start, kDeadline / 2) << error.what();
  return error;
}

void expect_lost_store(const Error& error) {
  EXPECT_EQ(error.kind(), ErrorKind::kStore) << error.what();
  expect_parts(error, {"Lost", "store at " + place_of_the_run()});
}

c10::intrusive_ptr<WirewiseBackend> make_group(const World& world, int size) {
  return WirewiseBackend::create(world.c10d_store, world.rank, size, kDeadline);
}

TEST(StoreDeath, DISABLED_Holder) {
  c10d::TCPStoreOptions options;
  options.port = port_of_the_run();
  options.isServer = true;
  options.waitWorkers = false;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  for (;;) pause();
}

// One rank never comes.
TEST(StoreDeath, DISABLED_RankThatMeets) {
  expect_lost_store(loses([] { (void)rendezvous("env://", kDeadline); }));
}

// One more rank is expected in the group than there are.
TEST(StoreDeath, DISABLED_RankThatMakesAGroup) {
  const World world = rendezvous("env://", kDeadline);
  expect_lost_store(loses([&] { (void)make_group(world, world.size + 1); }));
}

TEST(StoreDeath, DISABLED_RankThatComputes) {
  const World world = rendezvous("env://", kDeadline);
  const auto backend = make_group(world, world.size);
  world.store->set("computing/" + std::to_string(world.rank), "");
  // Until one has seen that the store is gone; all of them end in the same step.
  at::Tensor gone = at::zeros({1}, at::kInt);
  Tensors flags{gone};
  while (gone.item<int>() == 0) {
    try {
      (void)world.store->add("steps", 1);
    } catch (const Error& error) {
      expect_lost_store(error);
      gone.fill_(1);
    }
    backend->allreduce(flags, {})->wait();
  }
  for (int i = 0; i < 50; ++i) {
    Tensors data{at::ones({i % 2 == 0 ? 3 : 300'000})};
    backend->allreduce(data, {})->wait();
    EXPECT_EQ(data[0].min().item<float>(), static_cast<float>(world.size));
  }
  expect_lost_store(loses([&] { (void)make_group(world, world.size); }));
  backend->barrier({})->wait();
}

// Rank 0 holds the store and is killed.
TEST(StoreDeath, DISABLED_RankThatLosesRankZero) {
  const World world = rendezvous("env://", kDeadline);
  const auto backend = make_group(world, world.size);
  world.store->set("computing/" + std::to_string(world.rank), "");
  const Error error = loses([&] {
    for (int i = 0;; ++i) {
      Tensors data{at::ones({i % 2 == 0 ? 3 : 300'000})};
      backend->allreduce(data, {})->wait();
    }
  });
  EXPECT_EQ(error.kind(), ErrorKind::kPeerLost) << error.what();
  expect_parts(error, {"rank 0 (", "pid " + std::to_string(world.members[0].pid)});
  expect_lost_store(loses([&] { (void)make_group(world, world.size); }));
}

// --- who starts them and kills

class StoreRun {
 public:
  explicit StoreRun(int size) : size_(std::to_string(size)) {}

  void hold_store() { holder_ = start("StoreDeath.DISABLED_Holder", {}); }
  void add_rank(const std::string& test, int rank) {
    std::map<std::string, std::string> variables{{"RANK", std::to_string(rank)}, {"WORLD_SIZE", size_}};
    if (holder_) variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
    ranks_.push_back(start("StoreDeath." + test, variables));
  }

  /// Waits until the store has all the keys.
  void await(const std::vector<std::string>& keys) const {
    c10d::TCPStoreOptions options;
    options.port = std::stoi(port_);
    options.waitWorkers = false;
    const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    const auto end = Clock::now() + kDeadline / 5;
    while (!store->check(keys)) {
      ASSERT_LT(Clock::now(), end) << keys.front() << " doesn't come: " << ranks_.front()->output();
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  void kill_holder() { kill(*holder_); }
  void kill_rank(std::size_t place) { kill(*ranks_[place]); }

  void expect_survivors_ok(std::size_t first = 0) {
    for (std::size_t i = first; i < ranks_.size(); ++i) EXPECT_EQ(ranks_[i]->wait(), 0) << ranks_[i]->output();
  }

 private:
  std::unique_ptr<RankProcess> start(const std::string& test, std::map<std::string, std::string> variables) const {
    variables["MASTER_ADDR"] = "127.0.0.1";
    variables["MASTER_PORT"] = port_;
    return std::make_unique<RankProcess>(test, variables);
  }
  static void kill(RankProcess& process) {
    ::kill(process.pid(), SIGKILL);
    EXPECT_EQ(process.wait(), 128 + SIGKILL) << process.output();
  }

  std::string size_;
  std::string port_ = std::to_string(Listener("127.0.0.1", 0, "").port());
  std::unique_ptr<RankProcess> holder_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
};

TEST(StoreDeaths, WhileRanksMeetAgentsStoreIsNamedByAll) {
  StoreRun run(3);
  run.hold_store();
  for (const int rank : {0, 1}) run.add_rank("DISABLED_RankThatMeets", rank);
  run.await({"wirewise/meeting/0/1/rank/0", "wirewise/meeting/0/1/rank/1"});
  run.kill_holder();
  run.expect_survivors_ok();
}

TEST(StoreDeaths, WhileRanksMeetTheStoreOfRankZeroIsNamedByTheOthers) {
  StoreRun run(4);
  for (const int rank : {0, 1, 2}) run.add_rank("DISABLED_RankThatMeets", rank);
  run.await({"wirewise/meeting/0/1/rank/0", "wirewise/meeting/0/1/rank/1", "wirewise/meeting/0/1/rank/2"});
  run.kill_rank(0);
  run.expect_survivors_ok(1);
}

TEST(StoreDeaths, WhileAGroupIsMadeTheStoreIsNamedByAll) {
  StoreRun run(2);
  run.hold_store();
  for (const int rank : {0, 1}) run.add_rank("DISABLED_RankThatMakesAGroup", rank);
  run.await({"wirewise/1/card/1/0", "wirewise/1/card/1/1"});
  run.kill_holder();
  run.expect_survivors_ok();
}

TEST(StoreDeaths, WhileRanksComputeOnlyTheNextGroupMissesIt) {
  StoreRun run(2);
  run.hold_store();
  for (const int rank : {0, 1}) run.add_rank("DISABLED_RankThatComputes", rank);
  run.await({"computing/0", "computing/1", "steps"});
  run.kill_holder();
  run.expect_survivors_ok();
}

TEST(StoreDeaths, WhileRanksComputeRankZeroIsTheFirstCause) {
  StoreRun run(3);
  for (const int rank : {0, 1, 2}) run.add_rank("DISABLED_RankThatLosesRankZero", rank);
  run.await({"computing/0", "computing/1", "computing/2"});
  run.kill_rank(0);
  run.expect_survivors_ok(1);
}

}  // namespace
}  // namespace wirewise
