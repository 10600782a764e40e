// Several operations as one handle, messages from any rank, and the barrier that says who is missing.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "c10d_ranks.h"
#include "wirewise/torch/c10d_backend.h"

namespace wirewise {
namespace {

using std::chrono::milliseconds;
using testing::error_of;
using testing::expect_parts;
using testing::make_ranks;
using testing::run_ranks;
using testing::Tensors;

TEST(C10dCoalescing, MessagesInARingAreOneWork) {
  run_ranks(3, [](WirewiseBackend& backend, int rank) {
    EXPECT_TRUE(backend.supportsCoalescing());
    for (const std::int64_t count : {1L, 100'000L}) {
      Tensors sent{at::full({count}, rank, at::kFloat)};
      Tensors received{at::zeros({2 * count}).slice(0, 0, 2 * count, 2)};  // strided
      backend.startCoalescing();
      backend.send(sent, (rank + 1) % 3, 0);
      backend.recv(received, (rank + 2) % 3, 0);
      const auto work = backend.endCoalescing();
      work->wait();
      EXPECT_TRUE(work->isSuccess());
      EXPECT_TRUE(at::equal(received[0], at::full({count}, (rank + 2) % 3, at::kFloat)));
      EXPECT_EQ(work->result().size(), 1u);
    }
  });
}

TEST(C10dCoalescing, SynchronousCallsWaitAtTheEndOnly) {
  run_ranks(2, [](WirewiseBackend& backend, int rank) {
    Tensors first{at::ones({3})}, second{at::full({3}, rank, at::kFloat)};
    c10d::AllreduceOptions options;
    options.asyncOp = false;
    backend.startCoalescing();
    backend.allreduce(first, options);
    backend.allreduce(second, options);
    const auto future = backend.endCoalescing()->getFuture();
    future->wait();
    EXPECT_EQ(first[0].sum().item<float>(), 6);
    EXPECT_EQ(second[0].sum().item<float>(), 3);
    backend.startCoalescing();
    expect_parts(error_of([&] { backend.startCoalescing(); }), {"twice"});
    backend.endCoalescing()->wait();  // of nothing
    expect_parts(error_of([&] { backend.endCoalescing(); }), {"not started"});
  });
}

TEST(C10dCoalescing, AnErrorOfOneIsTheErrorOfAll) {
  const auto backends = make_ranks(2);
  run_ranks(backends, [](WirewiseBackend& backend, int rank) {
    if (rank == 1) return;
    backend.setTimeout(milliseconds(100));
    Tensors tensors{at::ones({3})}, more{at::ones({3})};
    backend.startCoalescing();
    backend.recv(tensors, 1, 0);
    backend.recv(more, 1, 1);
    const auto work = backend.endCoalescing();
    EXPECT_EQ(error_of([&] { work->wait(); }).kind(), ErrorKind::kTimeout);
  });
}

TEST(C10dCoalescing, ListsOfTensorsAreGatheredTogether) {
  run_ranks(2, [](WirewiseBackend& backend, int rank) {
    Tensors inputs{at::full({3}, rank, at::kFloat), at::full({2, 2}, 10 + rank, at::kLong)};
    std::vector<Tensors> outputs;
    for (int r = 0; r < 2; ++r) outputs.push_back({at::zeros({3}), at::zeros({2, 2}, at::kLong)});
    backend.allgather_coalesced(outputs, inputs, {})->wait();
    for (int r = 0; r < 2; ++r) {
      const auto i = static_cast<std::size_t>(r);
      EXPECT_TRUE(at::equal(outputs[i][0], at::full({3}, r, at::kFloat)));
      EXPECT_TRUE(at::equal(outputs[i][1], at::full({2, 2}, 10 + r, at::kLong)));
    }
    outputs[1].pop_back();
    expect_parts(error_of([&] { backend.allgather_coalesced(outputs, inputs, {}); }), {"1 outputs", "2 inputs"});
  });
}

TEST(C10dMessages, AReceiveFromAnyRankKnowsItsSource) {
  run_ranks(3, [](WirewiseBackend& backend, int rank) {
    if (rank == 0) {
      int sources = 0;
      for (int i = 0; i < 2; ++i) {
        Tensors tensors{at::zeros({4})};
        const auto work = backend.recvAnysource(tensors, 5);
        work->wait();
        EXPECT_EQ(tensors[0].sum().item<float>(), 4 * work->sourceRank());
        sources += work->sourceRank();
      }
      EXPECT_EQ(sources, 3);
    } else {
      Tensors tensors{at::full({4}, rank, at::kFloat)};
      backend.send(tensors, 0, 5)->wait();
    }
    backend.barrier({})->wait();
  });
}

TEST(C10dMonitoredBarrier, LetsAllThroughWhenAllCome) {
  run_ranks(4, [](WirewiseBackend& backend, int) {
    for (int i = 0; i < 20; ++i) backend.monitoredBarrier({}, i % 2 == 0);
  });
}

TEST(C10dMonitoredBarrier, NamesTheFirstOrAllThatDidNotCome) {
  for (const bool all : {false, true}) {
    const auto backends = make_ranks(4);
    run_ranks(backends, [all](WirewiseBackend& backend, int rank) {
      if (rank % 2 == 1) return;
      c10d::BarrierOptions options;
      options.timeout = milliseconds(rank == 0 ? 100 : 20'000);
      const Error error = error_of([&] { backend.monitoredBarrier(options, all); });
      EXPECT_EQ(error.kind(), ErrorKind::kTimeout);
      expect_parts(error, {std::string(all ? "Ranks 1, 3" : "Rank 1") + " failed to pass monitoredBarrier in 100 ms"});
      if (rank == 2) expect_parts(error, {"Rank 2 successfully reached monitoredBarrier"});
      EXPECT_EQ(backend.getError(), c10d::ErrorType::TIMEOUT);
    });
  }
}

TEST(C10dMonitoredBarrier, WithoutRank0EveryRankNamesIt) {
  const auto backends = make_ranks(2);
  run_ranks(backends, [](WirewiseBackend& backend, int rank) {
    if (rank == 0) return;
    c10d::BarrierOptions options;
    options.timeout = milliseconds(100);
    const Error error = error_of([&] { backend.monitoredBarrier(options, false); });
    expect_parts(error, {"Rank 1 successfully reached monitoredBarrier", "rank 0"});
  });
}

}  // namespace
}  // namespace wirewise
