// Types that the communicator does not know: they move as they are, and are reduced through a type that can hold the result.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "c10d_ranks.h"
#include "wirewise/torch/c10d_backend.h"

namespace wirewise {
namespace {

using testing::error_of;
using testing::expect_parts;
using testing::run_ranks;
using testing::Tensors;

const std::vector<c10::ScalarType> kFloat8{at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz};
const std::vector<c10::ScalarType> kComplex{at::kComplexHalf, at::kComplexFloat, at::kComplexDouble};
const std::vector<c10::ScalarType> kUnsigned{at::kUInt16, at::kUInt32, at::kUInt64};

std::vector<c10::ScalarType> all_types() {
  std::vector<c10::ScalarType> all{at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  for (const auto& more : {kFloat8, kComplex, kUnsigned}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Small whole numbers that every type holds, other ones on every rank; complex ones have an imaginary part.
at::Tensor numbers(int rank, std::int64_t count, c10::ScalarType type) {
  const at::Tensor whole = at::arange(count, at::kLong).remainder(5) + (rank + 1);
  if (!c10::isComplexType(type)) return whole.to(type);
  return at::complex(whole.to(at::kDouble), whole.to(at::kDouble) * -2).to(type);
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && at::equal(a.contiguous().view({-1}).view(at::kByte), b.contiguous().view({-1}).view(at::kByte));
}

c10d::ReduceScatterOptions scatter_with(c10d::ReduceOp op) {
  c10d::ReduceScatterOptions options;
  options.reduceOp = std::move(op);
  return options;
}

TEST(C10dTypes, EveryTypeMovesInEveryOperation) {
  run_ranks(3, [](WirewiseBackend& backend, int rank) {
    for (const c10::ScalarType type : all_types()) {
      SCOPED_TRACE(c10::toString(type));
      for (const std::int64_t count : {0L, 1L, 7L, 1000L}) {
        Tensors own{numbers(rank, count, type)};
        c10d::BroadcastOptions from_one;
        from_one.rootRank = 1;
        Tensors copy{own[0].clone()};
        backend.broadcast(copy, from_one)->wait();
        EXPECT_TRUE(same(copy[0], numbers(1, count, type)));

        at::Tensor full = at::empty({3 * count}, own[0].options());
        backend._allgather_base(full, own[0], {})->wait();
        for (int r = 0; r < 3; ++r) EXPECT_TRUE(same(full.narrow(0, r * count, count), numbers(r, count, type)));

        at::Tensor input = at::empty({3 * count}, own[0].options());
        input.copy_(full);
        at::Tensor output = at::empty_like(input);
        std::vector<std::int64_t> none;
        backend.alltoall_base(output, input, none, none, {})->wait();
        for (int r = 0; r < 3; ++r) EXPECT_TRUE(same(output.narrow(0, r * count, count), numbers(rank, count, type)));

        std::vector<Tensors> lists{{at::empty_like(own[0]), at::empty_like(own[0]), at::empty_like(own[0])}};
        backend.allgather(lists, own, {})->wait();
        for (int r = 0; r < 3; ++r) EXPECT_TRUE(same(lists[0][static_cast<std::size_t>(r)], numbers(r, count, type)));

        Tensors received{at::empty_like(own[0])};
        const auto sent = backend.send(own, (rank + 1) % 3, 4);
        backend.recv(received, (rank + 2) % 3, 4)->wait();
        sent->wait();
        EXPECT_TRUE(same(received[0], numbers((rank + 2) % 3, count, type)));
      }
    }
  });
}

TEST(C10dTypes, SmallFloatsAreReducedInFloat32AndRoundedOnce) {
  run_ranks(3, [](WirewiseBackend& backend, int rank) {
    for (const c10::ScalarType type : kFloat8) {
      SCOPED_TRACE(c10::toString(type));
      at::Tensor expected = at::zeros({50});
      Tensors all;
      for (int r = 0; r < 3; ++r) all.push_back((at::arange(50, at::kFloat) * 0.37 + r).div(8).to(type));
      // Two ranks first, then the third.
      expected = (all[0].to(at::kFloat) + all[1].to(at::kFloat)) + all[2].to(at::kFloat);
      const auto r = static_cast<std::size_t>(rank);
      Tensors tensors{all[r].clone()};
      backend.allreduce(tensors, {})->wait();
      EXPECT_TRUE(same(tensors[0], expected.to(type)));

      Tensors strided{at::zeros({50, 2}, tensors[0].options()).select(1, 0)};
      strided[0].copy_(all[r]);
      c10d::AllreduceOptions average;
      average.reduceOp = c10d::ReduceOp::AVG;
      backend.allreduce(strided, average)->wait();
      EXPECT_TRUE(same(strided[0], (expected / 3).to(type)));

      at::Tensor input = at::empty({150}, tensors[0].options());
      for (int part = 0; part < 3; ++part) input.narrow(0, part * 50, 50).copy_(all[r]);
      at::Tensor output = at::empty({50}, tensors[0].options());
      backend._reduce_scatter_base(output, input, scatter_with(c10d::ReduceOp::MAX))->wait();
      EXPECT_TRUE(same(output, all[2]));

      Tensors to_one{all[r].clone()};
      c10d::ReduceOptions root;
      root.rootRank = 2;
      backend.reduce(to_one, root)->wait();
      EXPECT_TRUE(same(to_one[0], rank == 2 ? expected.to(type) : all[r]));
    }
  });
}

TEST(C10dTypes, ComplexNumbersAreSummedAndAveraged) {
  run_ranks(3, [](WirewiseBackend& backend, int rank) {
    for (const c10::ScalarType type : kComplex) {
      SCOPED_TRACE(c10::toString(type));
      at::Tensor sum = numbers(0, 6, at::kComplexDouble) + numbers(1, 6, at::kComplexDouble) + numbers(2, 6, at::kComplexDouble);
      Tensors tensors{numbers(rank, 6, type)};
      backend.allreduce(tensors, {})->wait();
      EXPECT_TRUE(same(tensors[0], sum.to(type)));
      std::vector<Tensors> lists{{numbers(rank, 2, type), numbers(rank, 2, type), numbers(rank, 2, type)}};
      Tensors outputs{at::empty({2}, lists[0][0].options())};
      backend.reduce_scatter(outputs, lists, scatter_with(c10d::ReduceOp::AVG))->wait();
      EXPECT_TRUE(same(outputs[0], (sum.narrow(0, 0, 2) / 3).to(type)));
      Tensors scalar{at::scalar_tensor(c10::complex<double>(1, rank), at::kComplexDouble)};
      backend.allreduce(scalar, {})->wait();
      EXPECT_EQ(scalar[0].item<c10::complex<double>>(), c10::complex<double>(3, 3));
      for (const auto op : {c10d::ReduceOp::PRODUCT, c10d::ReduceOp::MIN, c10d::ReduceOp::BAND}) {
        expect_parts(error_of([&] { backend._reduce_scatter_base(outputs[0], tensors[0], scatter_with(op)); }), {"reduce_scatter", "omplex", "meaning"});
      }
    }
  });
}

TEST(C10dTypes, UnsignedIntegersWrapAroundAndHaveNoOrder) {
  run_ranks(2, [](WirewiseBackend& backend, int rank) {
    for (const c10::ScalarType type : kUnsigned) {
      SCOPED_TRACE(c10::toString(type));
      Tensors tensors{at::full({3}, -5 - rank, at::kLong).to(type)};
      backend.allreduce(tensors, {})->wait();
      EXPECT_TRUE(same(tensors[0], at::full({3}, -11, at::kLong).to(type)));
      c10d::AllreduceOptions largest;
      largest.reduceOp = c10d::ReduceOp::MAX;
      expect_parts(error_of([&] { backend.allreduce(tensors, largest); }), {"maximum", "UInt", "meaning"});
    }
  });
}

TEST(C10dTypes, PremultipliedSumsTakeANumberOrATensor) {
  run_ranks(2, [](WirewiseBackend& backend, int rank) {
    for (const auto& factor : {c10d::makeNCCLPreMulSum(0.25), c10d::makeNCCLPreMulSum(at::full({1}, 0.25))}) {
      for (const c10::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kFloat8_e5m2, at::kComplexFloat}) {
        SCOPED_TRACE(c10::toString(type));
        Tensors tensors{at::full({5}, 4 * (rank + 1), at::kFloat).to(type)};
        c10d::AllreduceOptions options;
        options.reduceOp = factor;
        backend.allreduce(tensors, options)->wait();
        EXPECT_TRUE(same(tensors[0], at::full({5}, 3, at::kFloat).to(type)));
        at::Tensor input = at::full({4}, 4 * (rank + 1), at::kFloat).to(type);
        const at::Tensor before = input.clone();
        at::Tensor output = at::empty({2}, input.options());
        backend._reduce_scatter_base(output, input, scatter_with(factor))->wait();
        EXPECT_TRUE(same(output, at::full({2}, 3, at::kFloat).to(type)));
        EXPECT_TRUE(same(input, before));
      }
      Tensors whole{at::ones({2}, at::kLong)};
      c10d::AllreduceOptions options;
      options.reduceOp = factor;
      expect_parts(error_of([&] { backend.allreduce(whole, options); }), {"factor", "Long"});
    }
  });
}

TEST(C10dTypes, SparseTensorsOfOtherElementsOnEachRankAreSummed) {
  run_ranks(3, [](WirewiseBackend& backend, int rank) {
    for (const c10::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong}) {
      SCOPED_TRACE(c10::toString(type));
      const auto dense = [&](int r) {
        at::Tensor tensor = at::zeros({5, 4}, at::kFloat);
        for (int row = 0; row <= r; ++row) tensor[row][r].fill_(10 * r + row + 1);
        return tensor;
      };
      for (const int sparse_dim : {1, 2}) {
        Tensors tensors{dense(rank).to(type).to_sparse(sparse_dim)};
        backend.allreduce(tensors, {})->wait();
        EXPECT_TRUE(same(tensors[0].to_dense(), (dense(0) + dense(1) + dense(2)).to(type)));
      }
    }
  });
}

// Each rank knows all shapes before it moves an element, so no rank is left with half of a call, or writes to memory of a call that threw.
TEST(C10dTypes, SparseTensorsOfOtherShapesAreRefusedOnEveryRankAndTheGroupGoesOn) {
  for (int other = 0; other < 3; ++other) {
    SCOPED_TRACE("rank " + std::to_string(other) + " has another shape");
    run_ranks(3, [other](WirewiseBackend& backend, int rank) {
      for (int turn = 0; turn < 10; ++turn) {
        Tensors shapes{at::ones({rank == other ? 3 : 2, 2}).to_sparse()};
        const Error error = error_of([&] { backend.allreduce(shapes, {}); });
        EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
        expect_parts(error, {"sparse", "another shape", "rank " + std::to_string(rank == other ? (other == 0 ? 1 : 0) : other)});
        EXPECT_EQ(backend.getError(), c10d::ErrorType::SUCCESS);
        Tensors equal{at::full({2, 2}, rank + 1, at::kFloat).to_sparse()};
        backend.allreduce(equal, {})->wait();
        EXPECT_TRUE(same(equal[0].to_dense(), at::full({2, 2}, 6, at::kFloat)));
      }
    });
  }
}

// Ranks that hold other types find out in the midst of the call: what has been issued by then must not outlive its tensors.
TEST(C10dTypes, SparseTensorsOfOtherTypesFailOnEveryRank) {
  run_ranks(3, [](WirewiseBackend& backend, int rank) {
    Tensors types{at::ones({20, 2}, rank == 2 ? at::kDouble : at::kFloat).to_sparse()};
    const Error error = error_of([&] { backend.allreduce(types, {}); });
    EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
    expect_parts(error, {"float32", "float64"});
  });
}

}  // namespace
}  // namespace wirewise
