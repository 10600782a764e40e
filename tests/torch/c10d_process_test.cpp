// The backend between real processes that meet as torchrun's ranks do: a data-parallel step equals the same step on one rank with
// the whole batch, and the death of a rank is an error that names it.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "c10d_ranks.h"
#include "rank_process.h"
#include "wirewise/comm/listener.h"
#include "wirewise/torch/c10d_backend.h"
#include "wirewise/torch/rendezvous.h"

namespace wirewise {
namespace {

using std::chrono::milliseconds;
using testing::error_of;
using testing::expect_parts;
using testing::RankProcess;
using testing::Tensors;

c10::intrusive_ptr<c10d::Backend> join_group(const World& world) {
  return WirewiseBackend::create(world.c10d_store, world.rank, world.size, milliseconds(60000));
}

// Gradient of the summed squared error of x·w for rows of a batch that are known to all.
at::Tensor gradient(const at::Tensor& weight, std::int64_t first, std::int64_t rows) {
  const at::Tensor x = at::arange(8 * 16, at::kDouble).view({8, 16}).remainder(13).sub(6).div(7).narrow(0, first, rows);
  return at::matmul(x.t(), at::matmul(x, weight) - 1) * 2;
}

// What DDP does in a step: broadcast the weights, an asynchronous all-reduce a bucket, wait for the futures, update.
TEST(C10dProcess, DISABLED_DataParallelRank) {
  const World world = rendezvous("env://", milliseconds(60000));
  ASSERT_EQ(world.size, 2);
  EXPECT_EQ(world.local_rank, world.rank);
  const auto backend = join_group(world);
  at::Tensor weight = at::full({16, 4}, world.rank == 0 ? 0.25 : -7.0, at::kDouble);
  at::Tensor expected = at::full({16, 4}, 0.25, at::kDouble);
  Tensors weights{weight};
  backend->broadcast(weights, {})->wait();
  for (int step = 0; step < 5; ++step) {
    const at::Tensor mine = gradient(weight, 4L * world.rank, 4);
    std::vector<Tensors> buckets{{mine.narrow(0, 0, 8)}, {mine.narrow(0, 8, 8)}};
    std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures;
    for (Tensors& bucket : buckets) futures.push_back(backend->allreduce(bucket, {})->getFuture());
    for (auto& future : futures) future->waitAndThrow();
    weight.sub_(mine, 0.01);
    expected.sub_(gradient(expected, 0, 8), 0.01);
  }
  EXPECT_TRUE(at::allclose(weight, expected, 1e-12, 1e-12));
  EXPECT_GT(at::abs(expected - 0.25).max().item<double>(), 0.1) << "it moved";
  backend->barrier({})->wait();
}

TEST(C10dProcess, DISABLED_RankThatLosesItsPeer) {
  const World world = rendezvous("env://", milliseconds(60000));
  const auto backend = join_group(world);
  backend->barrier({})->wait();
  if (world.rank == 1) raise(SIGKILL);
  Tensors tensors{at::ones({1000})};
  const Error error = error_of([&] { backend->allreduce(tensors, {})->wait(); });
  EXPECT_EQ(error.kind(), ErrorKind::kPeerLost);
  expect_parts(error, {"rank 1", std::to_string(world.members[1].pid)});
  EXPECT_EQ(backend->getError(), c10d::ErrorType::REMOTE_ERROR);
}

std::vector<std::unique_ptr<RankProcess>> start_ranks(const std::string& name) {
  const std::string port = std::to_string(Listener("127.0.0.1", 0, "").port());
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (const char* rank : {"0", "1"}) {
    ranks.push_back(std::make_unique<RankProcess>(
        name, std::map<std::string, std::string>{
                  {"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}}));
  }
  return ranks;
}

TEST(C10dProcesses, ADataParallelStepOfTwoProcessesEqualsOneRankWithTheWholeBatch) {
  for (const auto& rank : start_ranks("C10dProcess.DISABLED_DataParallelRank")) EXPECT_EQ(rank->wait(), 0) << rank->output();
}

TEST(C10dProcesses, TheDeathOfARankNamesIt) {
  const auto ranks = start_ranks("C10dProcess.DISABLED_RankThatLosesItsPeer");
  EXPECT_EQ(ranks[1]->wait(), 128 + SIGKILL) << ranks[1]->output();
  EXPECT_EQ(ranks[0]->wait(), 0) << ranks[0]->output();
}

}  // namespace
}  // namespace wirewise
