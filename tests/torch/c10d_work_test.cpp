// The handle: futures as DDP and communication hooks use them, waits, timeouts, failures; and everything that is refused by name.
#include "wirewise/torch/c10d_work.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
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

// DDP: one all-reduce a bucket, nobody waits for the works; the futures complete by themselves and their value is a tensor list.
TEST(C10dWork, FuturesOfManyBucketsCompleteWithoutAWaitOnTheirWorks) {
  run_ranks(3, [](WirewiseBackend& backend, int rank) {
    std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures;
    std::vector<Tensors> buckets;
    for (int i = 0; i < 8; ++i) buckets.push_back({at::full({1000 + i}, rank + 1 + i, at::kFloat)});
    for (Tensors& bucket : buckets) futures.push_back(backend.allreduce(bucket, {})->getFuture());
    for (std::size_t i = 0; i < futures.size(); ++i) {
      futures[i]->wait();
      ASSERT_FALSE(futures[i]->hasError());
      const std::vector<at::Tensor> value = futures[i]->value().toTensorVector();
      ASSERT_EQ(value.size(), 1u);
      EXPECT_TRUE(value[0].is_same(buckets[i][0])) << "the caller's own tensor";
      EXPECT_TRUE(at::all(value[0].eq(static_cast<float>(6 + 3 * i))).item<bool>());
    }
  });
}

// The copy back of a strided tensor must be done before the future tells.
TEST(C10dWork, CallbacksSeeTheFinishedTensor) {
  run_ranks(2, [](WirewiseBackend& backend, int) {
    Tensors tensors{at::ones({50, 2}).select(1, 0)};
    std::promise<float> seen;
    backend.allreduce(tensors, {})->getFuture()->addCallback([&](c10::ivalue::Future& future) {
      seen.set_value(future.value().toTensorVector()[0].sum().item<float>());
    });
    EXPECT_EQ(seen.get_future().get(), 100);
  });
}

// PowerSGD's hook starts a second all-reduce in a callback of the first and waits for its future there.
TEST(C10dWork, ACallbackMayWaitForTheFutureOfAnotherOperation) {
  for (const bool wait_on_main : {false, true}) {
    run_ranks(2, [&](WirewiseBackend& backend, int) {
      Tensors first{at::ones({64})}, second{at::full({64}, 2, at::kFloat)};
      const auto work = backend.allreduce(first, {});
      std::promise<float> result;
      work->getFuture()->addCallback([&](c10::ivalue::Future&) {
        const auto inner = backend.allreduce(second, {})->getFuture();
        inner->wait();
        result.set_value(inner->value().toTensorVector()[0].sum().item<float>());
      });
      if (wait_on_main) work->wait();
      EXPECT_EQ(result.get_future().get(), 256);
    });
  }
}

TEST(C10dWork, SynchronousCallsAreCompleteWhenTheyReturn) {
  run_ranks(2, [](WirewiseBackend& backend, int) {
    Tensors tensors{at::ones({5})};
    c10d::AllreduceOptions options;
    options.asyncOp = false;
    const auto work = backend.allreduce(tensors, options);
    EXPECT_TRUE(work->isCompleted());
    EXPECT_TRUE(work->isSuccess());
    EXPECT_EQ(work->exception(), nullptr);
    EXPECT_EQ(tensors[0].sum().item<float>(), 10);
    EXPECT_TRUE(work->result()[0].is_same(tensors[0]));
  });
}

TEST(C10dWork, TensorsLiveUntilTheOperationIsDone) {
  run_ranks(2, [](WirewiseBackend& backend, int rank) {
    at::Tensor output = at::zeros({40000});
    c10::intrusive_ptr<c10d::Work> work;
    {
      at::Tensor input = at::full({20000}, rank + 1, at::kFloat);
      work = backend._allgather_base(output, input, {});
    }
    work->wait();
    EXPECT_EQ(output.sum().item<float>(), 60000);
  });
}

TEST(C10dWork, AMissingRankIsNamedAndTheFutureFailsAlike) {
  const auto backends = make_ranks(3);
  run_ranks(backends, [](WirewiseBackend& backend, int rank) {
    if (rank == 1) return;
    Tensors tensors{at::ones({5})};
    c10d::AllreduceOptions options;
    options.timeout = milliseconds(100);
    const auto work = backend.allreduce(tensors, options);
    const Error error = error_of([&] { work->wait(); });
    EXPECT_EQ(error.kind(), ErrorKind::kTimeout);
    expect_parts(error, {"rank 1"});
    EXPECT_TRUE(work->isCompleted());
    EXPECT_FALSE(work->isSuccess());
    EXPECT_NE(work->exception(), nullptr);
    EXPECT_TRUE(work->getFuture()->hasError());
    EXPECT_EQ(error_of([&] { std::rethrow_exception(work->getFuture()->exception_ptr()); }).kind(), ErrorKind::kTimeout);
    EXPECT_EQ(backend.getError(), c10d::ErrorType::TIMEOUT);
  });
}

TEST(C10dWork, ABoundedWaitGivesUpAndTheOperationGoesOn) {
  const auto backends = make_ranks(2);
  std::promise<void> gave_up;
  run_ranks(backends, [&](WirewiseBackend& backend, int rank) {
    Tensors tensors{at::ones({5})};
    if (rank == 1) gave_up.get_future().wait();
    const auto work = backend.allreduce(tensors, {});
    if (rank == 0) {
      EXPECT_FALSE(work->isCompleted());
      expect_parts(error_of([&] { work->wait(milliseconds(20)); }), {"all_reduce", "20 ms"});
      gave_up.set_value();
    }
    EXPECT_TRUE(work->wait(milliseconds(20000)));
    EXPECT_EQ(tensors[0].sum().item<float>(), 10);
  });
}

TEST(C10dWork, TheGroupsTimeoutCanBeChanged) {
  const auto backends = make_ranks(2);
  run_ranks(backends, [](WirewiseBackend& backend, int rank) {
    EXPECT_EQ(backend.getBackendOptions()->timeout, milliseconds(30000));
    EXPECT_EQ(backend.getBackendOptions()->backend, "wirewise");
    EXPECT_EQ(error_of([&] { backend.setTimeout(milliseconds(0)); }).kind(), ErrorKind::kBadInput);
    backend.setTimeout(milliseconds(50));
    EXPECT_EQ(backend.getBackendOptions()->timeout, milliseconds(50));
    if (rank == 1) return;
    EXPECT_EQ(error_of([&] { backend.barrier({})->wait(); }).kind(), ErrorKind::kTimeout);
  });
}

TEST(C10dWork, AbortFailsPendingAndLaterOperationsEverywhere) {
  const auto backends = make_ranks(2);
  std::promise<void> issued;
  run_ranks(backends, [&](WirewiseBackend& backend, int rank) {
    Tensors tensors{at::ones({5})};
    if (rank == 0) {
      const auto work = backend.allreduce(tensors, {});
      issued.set_value();
      EXPECT_EQ(error_of([&] { work->wait(); }).kind(), ErrorKind::kAborted);
      EXPECT_EQ(backend.getError(), c10d::ErrorType::COMM_ERROR);
    } else {
      issued.get_future().wait();
      backend.abort();
    }
    EXPECT_EQ(error_of([&] { backend.barrier({})->wait(); }).kind(), ErrorKind::kAborted);
  });
}

TEST(C10dWork, RanksThatCallDifferentThingsAreToldBoth) {
  const auto backends = make_ranks(2);
  run_ranks(backends, [](WirewiseBackend& backend, int rank) {
    Tensors tensors{at::ones({5 + rank})};
    const Error error = error_of([&] { backend.allreduce(tensors, {})->wait(); });
    EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
    expect_parts(error, {"5", "6"});
  });
}

TEST(C10dWork, AfterShutdownCallsAreRefused) {
  run_ranks(2, [](WirewiseBackend& backend, int) {
    backend.barrier({})->wait();
    backend.shutdown();
    expect_parts(error_of([&] { backend.barrier({}); }), {"shut down"});
    backend.abort();
  });
}

struct Refusal {
  const char* what;
  std::function<void(WirewiseBackend&)> call;
  std::vector<std::string> named;
};

TEST(C10dRefuses, ByNameWhatItCannotDo) {
  const auto list = [](at::Tensor a) { return Tensors{std::move(a)}; };
  const auto allreduce = [](WirewiseBackend& backend, Tensors tensors, c10d::ReduceOp op = c10d::ReduceOp::SUM) {
    c10d::AllreduceOptions options;
    options.reduceOp = std::move(op);
    backend.allreduce(tensors, options);
  };
  std::vector<std::int64_t> bad_splits{1, 2, 3};
  const std::vector<Refusal> refusals{
      {"another device", [&](auto& b) { allreduce(b, list(at::empty({2}, at::kMeta))); }, {"meta", "CPU and of CUDA devices"}},
      {"undefined", [&](auto& b) { allreduce(b, list(at::Tensor())); }, {"undefined"}},
      {"none", [&](auto& b) { allreduce(b, {}); }, {"got 0"}},
      {"two",
       [&](auto& b) {
         allreduce(b, {at::ones({1}), at::ones({1})});
       },
       {"got 2", "coalesced"}},
      {"bits of floats", [&](auto& b) { allreduce(b, list(at::ones({2})), c10d::ReduceOp::BAND); }, {"float32"}},
      {"sparse indices",
       [&](auto& b) {
         Tensors tensors{at::ones({2})};
         c10d::AllreduceOptions options;
         options.sparseIndices = at::ones({1}, at::kLong);
         b.allreduce(tensors, options);
       },
       {"sparse"}},
      {"root",
       [&](auto& b) {
         Tensors tensors{at::ones({2})};
         c10d::BroadcastOptions options;
         options.rootRank = 2;
         b.broadcast(tensors, options);
       },
       {"broadcast", "rank 2", "0 to 1"}},
      {"gather sizes",
       [&](auto& b) {
         at::Tensor out = at::ones({3}), in = at::ones({2});
         b._allgather_base(out, in, {});
       },
       {"3 elements", "2 (ranks) times the 2"}},
      {"gather types",
       [&](auto& b) {
         at::Tensor out = at::ones({4}, at::kDouble), in = at::ones({2});
         b._allgather_base(out, in, {});
       },
       {"Double", "Float"}},
      {"scatter sizes",
       [&](auto& b) {
         at::Tensor out = at::ones({2}), in = at::ones({5});
         b._reduce_scatter_base(out, in, {});
       },
       {"5 elements"}},
      {"list of one",
       [&](auto& b) {
         std::vector<Tensors> outs{{at::ones({2})}};
         Tensors in{at::ones({2})};
         b.allgather(outs, in, {});
       },
       {"each of the 2 ranks", "1 tensors"}},
      {"splits",
       [&](auto& b) {
         at::Tensor out = at::ones({4}), in = at::ones({4});
         std::vector<std::int64_t> none;
         b.alltoall_base(out, in, none, bad_splits, {});
       },
       {"input splits", "add up to its first dimension, 4"}},
      {"odd rows",
       [&](auto& b) {
         at::Tensor out = at::ones({3}), in = at::ones({3});
         std::vector<std::int64_t> none;
         b.alltoall_base(out, in, none, none, {});
       },
       {"3 can't be split evenly over 2"}},
      {"quantized",
       [&](auto& b) {
         Tensors tensors{at::empty_quantized({2}, at::quantize_per_tensor(at::ones({2}), 1, 0, at::kQInt8))};
         b.broadcast(tensors, {});
       },
       {"quantized", "int_repr"}},
      {"conjugate",
       [&](auto& b) {
         Tensors tensors{at::ones({2}, at::kComplexFloat).conj()};
         b.broadcast(tensors, {});
       },
       {"conjugate", "resolve_conj"}},
      {"factor of whole numbers", [&](auto& b) { allreduce(b, list(at::ones({2}, at::kInt)), c10d::makeNCCLPreMulSum(0.5)); }, {"factor", "Int"}},
      {"sparse product", [&](auto& b) { allreduce(b, list(at::ones({2, 2}).to_sparse()), c10d::ReduceOp::PRODUCT); }, {"sparse", "SUM"}},
      {"devices",
       [&](auto& b) {
         c10d::BarrierOptions options;
         options.device_ids = {0};
         b.barrier(options);
       },
       {"can't use cuda:0", "libwirewise_cuda.so", "cpu:wirewise,cuda:nccl"}},
      {"memory elsewhere", [&](auto& b) { (void)b.allocateTensor(4, at::TensorOptions(at::kMeta)); }, {"meta"}},
      {"negative memory", [&](auto& b) { (void)b.allocateTensor(-1); }, {"-1"}},
  };
  const auto backends = make_ranks(2);
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.what);
    const Error error = error_of([&] { refusal.call(*backends[0]); });
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    expect_parts(error, refusal.named);
  }
  // None of it reached the peers: the group still works.
  run_ranks(backends, [](WirewiseBackend& backend, int) { backend.barrier({})->wait(); });
}

}  // namespace
}  // namespace wirewise
