// A case of the bench, run on threads: nothing is wrong where nothing is, and broken data is seen on all ranks.
#include <gtest/gtest.h>

#include <utility>

#include "cli/passing_communicator.h"
#include "comm/ranks.h"
#include "wirewise/cli/bench_case.h"
#include "wirewise/cli/bench_memory.h"
#include "wirewise/cli/bench_operation.h"

namespace wirewise::bench {
namespace {

const MemoryLimit kSomeLimit{10e9, 10e9, 10e9};

Plan few() {
  Plan plan;
  plan.iterations = 2;
  plan.warmup = 1;
  plan.cache = kMiB;
  return plan;
}

TEST(BenchCase, EveryOperationTypeAndFormHasNothingWrong) {
  for (const int ranks : {1, 2, 3}) {
    const auto errors = testing::run_threads(ranks, [&](Communicator& communicator) {
      for (const Op op : parse_ops("all")) {
        for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt8}) {
          for (const bool in_place : {false, true}) {
            if (!has_form(op, in_place)) continue;
            for (const Bytes size : {Bytes{0}, Bytes{8}, Bytes{100'000}}) {
              const Case what{op, dtype, Reduction::kSum, size, communicator.size() - 1, in_place};
              for (const bool cold : {false, true}) {
                Plan plan = few();
                plan.cold = cold;
                plan.shared = !cold;
                const Result result = run_case(communicator, what, plan, kSomeLimit);
                EXPECT_EQ(result.wrong, 0U) << name_of(op) << ' ' << name_of(dtype) << ' ' << size << (in_place ? " in place" : "") << (cold ? " cold" : "");
                EXPECT_EQ(result.count, shape_of(op, dtype, size, communicator.size()).count);
                EXPECT_GT(result.time_us, 0);
                EXPECT_LE(result.p50_us, result.p99_us);
              }
            }
          }
        }
      }
    });
    testing::expect_no_errors(errors);
  }
}

/// Passes all calls on and then breaks elements of what arrived on one rank.
class Breaking final : public testing_support::PassingCommunicator {
 public:
  Breaking(Communicator& inner, bool here) : PassingCommunicator(inner), here_(here) {}
  Work all_reduce(std::span<const ReducePart> parts, Reduction op, CallOptions options) override {
    Work work = PassingCommunicator::all_reduce(parts, op, std::move(options));
    return parts[0].count < 3 ? std::move(work) : broken(std::move(work), parts[0].out, parts[0].count);  // not the bench's own sums
  }
  Work all_gather(std::span<const AllGatherPart> parts, CallOptions options) override {
    return broken(PassingCommunicator::all_gather(parts, std::move(options)), parts[0].full, parts[0].count * static_cast<std::size_t>(size()));
  }
  Work reduce_scatter(std::span<const ReducePart> parts, Reduction op, CallOptions options) override {
    return broken(PassingCommunicator::reduce_scatter(parts, op, std::move(options)), parts[0].out, parts[0].count);
  }
  Work broadcast(Buffer buffer, std::size_t count, int root, CallOptions options) override {
    return broken(PassingCommunicator::broadcast(buffer, count, root, std::move(options)), buffer, count);
  }
  Work reduce(ConstBuffer in, Buffer out, std::size_t count, int root, Reduction op, CallOptions options) override {
    return broken(PassingCommunicator::reduce(in, out, count, root, op, std::move(options)), out, count);
  }
  Work gather(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) override {
    return broken(PassingCommunicator::gather(in, out, count, root, std::move(options)), out, count);
  }
  Work scatter(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) override {
    return broken(PassingCommunicator::scatter(in, out, count, root, std::move(options)), out, count);
  }
  Work all_to_all(ConstBuffer in, std::span<const std::size_t> sent, Buffer out, std::span<const std::size_t> received, CallOptions options) override {
    return broken(PassingCommunicator::all_to_all(in, sent, out, received, std::move(options)), out, sent[0]);
  }
  Work recv(Buffer out, std::size_t count, int peer, int tag, CallOptions options) override {
    Work work = PassingCommunicator::recv(out, count, peer, tag, std::move(options));
    work.wait();
    break_elements(out, count);
    return work;
  }

 private:
  Work broken(Work work, Buffer out, std::size_t count) {
    work.wait();
    break_elements(out, count);
    return barrier({});
  }
  void break_elements(Buffer out, std::size_t count) const {
    if (!here_ || count == 0) return;
    auto* const bytes = static_cast<std::byte*>(out.data);
    bytes[0] ^= std::byte{1};
    bytes[(count - 1) * size_of(out.dtype)] ^= std::byte{1};
  }
  bool here_;
};

TEST(BenchCase, WithoutAKnownLimitThereIsNoShareOfIt) {
  testing::expect_no_errors(testing::run_threads(2, [&](Communicator& communicator) {
    EXPECT_EQ(run_case(communicator, {.size = 8000}, few(), MemoryLimit{}).limit_fraction, 0);
    EXPECT_GT(run_case(communicator, {.size = 8000}, few(), kSomeLimit).limit_fraction, 0);
  }));
}

TEST(BenchCase, BrokenElementsOfOneRankAreCountedOnAll) {
  const auto errors = testing::run_threads(2, [&](Communicator& communicator) {
    Breaking breaking(communicator, communicator.rank() == 1);
    for (const Op op : parse_ops("all")) {
      if (op == Op::kBarrier) continue;
      for (const bool in_place : {false, true}) {
        if (!has_form(op, in_place)) continue;
        const Case what{op, DType::kInt32, Reduction::kSum, 4000, op == Op::kReduce || op == Op::kGather ? 1 : 0, in_place};
        EXPECT_EQ(run_case(breaking, what, few(), kSomeLimit).wrong, 2U) << name_of(op) << in_place;
        EXPECT_EQ(run_case(communicator, what, few(), kSomeLimit).wrong, 0U) << name_of(op) << in_place;
      }
    }
  });
  testing::expect_no_errors(errors);
}

}  // namespace
}  // namespace wirewise::bench
