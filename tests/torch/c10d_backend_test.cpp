// Each collective of the backend equals what ATen computes from all ranks' inputs: dense and strided tensors, in place and apart,
// every type, one to four ranks.
#include "wirewise/torch/c10d_backend.h"

#include <ATen/Functions.h>
#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "c10d_ranks.h"

namespace wirewise {
namespace {

using testing::make_ranks;
using testing::run_ranks;
using testing::Tensors;

// Small integers: sums and products of a few are exact in every type but int8 products, which wrap alike everywhere.
at::Tensor data_of(int rank, at::IntArrayRef sizes, c10::ScalarType type, std::int64_t seed = 7) {
  const at::Tensor base = at::arange(1, 1 + c10::multiply_integers(sizes), at::kLong) * (seed + 3 * rank);
  return (base.remainder(5) + 1).view(sizes).to(type);
}

Tensors all_data(int size, at::IntArrayRef sizes, c10::ScalarType type, std::int64_t seed = 7) {
  Tensors all;
  for (int rank = 0; rank < size; ++rank) all.push_back(data_of(rank, sizes, type, seed));
  return all;
}

// A tensor of equal values whose elements don't lie in a row.
at::Tensor strided_copy(const at::Tensor& tensor) {
  at::Tensor wide = at::zeros({tensor.size(0), 2 * tensor.size(1)}, tensor.options());
  at::Tensor view = wide.slice(1, 0, 2 * tensor.size(1), 2);
  view.copy_(tensor);
  EXPECT_FALSE(view.is_contiguous());
  return view;
}

at::Tensor reduced(const Tensors& all, c10d::ReduceOp::RedOpType op) {
  at::Tensor result = all[0].to(at::isIntegralType(all[0].scalar_type(), true) ? at::kLong : at::kDouble);
  for (std::size_t i = 1; i < all.size(); ++i) {
    const at::Tensor next = all[i].to(result.scalar_type());
    switch (op) {
      case c10d::ReduceOp::PRODUCT: result = result * next; break;
      case c10d::ReduceOp::MIN: result = at::minimum(result, next); break;
      case c10d::ReduceOp::MAX: result = at::maximum(result, next); break;
      case c10d::ReduceOp::BAND: result = at::bitwise_and(result, next); break;
      case c10d::ReduceOp::BOR: result = at::bitwise_or(result, next); break;
      case c10d::ReduceOp::BXOR: result = at::bitwise_xor(result, next); break;
      default: result = result + next;
    }
  }
  if (op == c10d::ReduceOp::AVG) result = result / static_cast<double>(all.size());
  return result.to(all[0].scalar_type());
}

const c10::ScalarType kFloating[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
const c10::ScalarType kIntegers[] = {at::kChar, at::kByte, at::kShort, at::kInt, at::kLong};

TEST(C10dBackend, AllReduceEqualsAtenForEveryTypeAndReduction) {
  struct Case {
    c10::ScalarType type;
    c10d::ReduceOp::RedOpType op;
  };
  std::vector<Case> cases;
  using Op = c10d::ReduceOp;
  for (const auto type : kFloating) {
    for (const auto op : {Op::SUM, Op::AVG, Op::PRODUCT, Op::MIN, Op::MAX}) cases.push_back({type, op});
  }
  for (const auto type : kIntegers) {
    for (const auto op : {Op::SUM, Op::PRODUCT, Op::MIN, Op::MAX, Op::BAND, Op::BOR, Op::BXOR}) cases.push_back({type, op});
  }
  for (const int size : {1, 2, 3, 4}) {
    run_ranks(size, [&](WirewiseBackend& backend, int rank) {
      for (const Case& each : cases) {
        for (const bool strided : {false, true}) {
          const Tensors all = all_data(size, {7, 11}, each.type);
          const at::Tensor mine = all[static_cast<std::size_t>(rank)];
          Tensors tensors{strided ? strided_copy(mine) : mine.clone()};
          c10d::AllreduceOptions options;
          options.reduceOp = each.op;
          options.asyncOp = !strided;  // both ways to run
          EXPECT_TRUE(backend.allreduce(tensors, options)->wait());
          const at::Tensor expected = reduced(all, each.op);
          EXPECT_TRUE(each.op == Op::AVG ? at::allclose(tensors[0].to(at::kDouble), expected.to(at::kDouble), 1e-2, 1e-2)
                                         : at::equal(tensors[0], expected))
              << c10::toString(each.type) << " op " << int(each.op) << " ranks " << size << " strided " << strided << "\n"
              << tensors[0] << expected;
        }
      }
    });
  }
}

TEST(C10dBackend, AveragesRoundOnceFromFloat32) {
  run_ranks(3, [](WirewiseBackend& backend, int rank) {
    Tensors all;
    for (int r = 0; r < 3; ++r) all.push_back(at::arange(200, at::kFloat).mul(0.37 * (r + 1)).to(at::kBFloat16));
    Tensors tensors{all[static_cast<std::size_t>(rank)].clone()};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::AVG;
    backend.allreduce(tensors, options)->wait();
    const at::Tensor expected =
        ((all[0].to(at::kDouble) + all[1].to(at::kDouble) + all[2].to(at::kDouble)) / 3).to(at::kFloat).to(at::kBFloat16);
    // One unit in the last place (8 bits) covers the float32 sum's own rounding.
    EXPECT_TRUE(at::allclose(tensors[0].to(at::kDouble), expected.to(at::kDouble), 1.0 / 256, 0));
    EXPECT_GT(at::eq(tensors[0], expected).sum().item<std::int64_t>(), 195);
  });
}

TEST(C10dBackend, CoalescedAllReduceMixesTypesAndLayouts) {
  run_ranks(3, [](WirewiseBackend& backend, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const Tensors floats = all_data(3, {5, 3}, at::kFloat), halves = all_data(3, {2, 9}, at::kHalf),
                  longs = all_data(3, {1, 1}, at::kLong);
    Tensors tensors{floats[r].clone(), strided_copy(halves[r]), longs[r].clone(), at::empty({0}, at::kFloat)};
    backend.allreduce_coalesced(tensors, {})->wait();
    EXPECT_TRUE(at::equal(tensors[0], reduced(floats, c10d::ReduceOp::SUM)));
    EXPECT_TRUE(at::equal(tensors[1], reduced(halves, c10d::ReduceOp::SUM)));
    EXPECT_TRUE(at::equal(tensors[2], reduced(longs, c10d::ReduceOp::SUM)));
  });
}

TEST(C10dBackend, BroadcastAndReduceForEveryRoot) {
  for (const int size : {1, 3}) {
    run_ranks(size, [&](WirewiseBackend& backend, int rank) {
      const auto r = static_cast<std::size_t>(rank);
      for (int root = 0; root < size; ++root) {
        for (const auto type : {at::kFloat, at::kBool}) {
          Tensors all = all_data(size, {4, 6}, at::kLong);
          for (at::Tensor& tensor : all) tensor = tensor.gt(2).to(type);
          for (const bool strided : {false, true}) {
            Tensors tensors{strided ? strided_copy(all[r]) : all[r].clone()};
            c10d::BroadcastOptions options;
            options.rootRank = root;
            backend.broadcast(tensors, options)->wait();
            EXPECT_TRUE(at::equal(tensors[0], all[static_cast<std::size_t>(root)]));
          }
        }
        const Tensors all = all_data(size, {4, 6}, at::kFloat);
        Tensors tensors{strided_copy(all[r])};
        c10d::ReduceOptions options;
        options.rootRank = root;
        options.reduceOp = c10d::ReduceOp::MAX;
        backend.reduce(tensors, options)->wait();
        EXPECT_TRUE(at::equal(tensors[0], rank == root ? reduced(all, c10d::ReduceOp::MAX) : all[r]));
      }
    });
  }
}

TEST(C10dBackend, BroadcastWritesLeavesThatRequireGradients) {
  run_ranks(2, [](WirewiseBackend& backend, int rank) {
    for (const bool strided : {false, true}) {
      at::Tensor leaf = strided ? at::full({4, 3}, rank, at::kFloat).t() : at::full({3, 4}, rank, at::kFloat);
      leaf.requires_grad_(true);
      Tensors tensors{leaf};
      backend.broadcast(tensors, {})->wait();
      EXPECT_EQ(leaf.detach().sum().item<float>(), 0);
      EXPECT_TRUE(leaf.is_leaf());
    }
  });
}

TEST(C10dBackend, AllGatherBaseApartInPlaceAndOverlapping) {
  for (const int size : {1, 2, 4}) {
    run_ranks(size, [&](WirewiseBackend& backend, int rank) {
      const Tensors all = all_data(size, {3, 5}, at::kBFloat16);
      const at::Tensor expected = at::cat(all);
      const at::Tensor mine = all[static_cast<std::size_t>(rank)];
      const std::int64_t rows = 3L * size;
      at::Tensor apart = at::zeros({rows, 5}, at::kBFloat16);
      at::Tensor input = mine.clone();
      backend._allgather_base(apart, input, {})->wait();
      EXPECT_TRUE(at::equal(apart, expected));

      at::Tensor whole = at::zeros({rows, 5}, at::kBFloat16);
      at::Tensor slice = whole.narrow(0, 3L * rank, 3);  // as FSDP does
      slice.copy_(mine);
      backend._allgather_base(whole, slice, {})->wait();
      EXPECT_TRUE(at::equal(whole, expected));

      at::Tensor shifted = at::zeros({rows, 5}, at::kBFloat16);
      at::Tensor first = shifted.narrow(0, 0, 3);  // not this rank's slice, but for rank 0
      first.copy_(mine);
      backend._allgather_base(shifted, first, {})->wait();
      EXPECT_TRUE(at::equal(shifted, expected));

      at::Tensor strided = strided_copy(at::zeros({rows, 5}, at::kBFloat16));
      at::Tensor strided_input = strided_copy(mine);
      backend._allgather_base(strided, strided_input, {})->wait();
      EXPECT_TRUE(at::equal(strided, expected));
    });
  }
}

TEST(C10dBackend, ReduceScatterBaseIsTheSliceOfAllReduce) {
  for (const int size : {1, 2, 3}) {
    run_ranks(size, [&](WirewiseBackend& backend, int rank) {
      for (const auto op : {c10d::ReduceOp::SUM, c10d::ReduceOp::AVG}) {
        const at::Tensor mine = at::randn({2L * size, 7}).to(at::kBFloat16);
        Tensors sum{mine.clone()};
        c10d::AllreduceOptions all_reduce_options;
        all_reduce_options.reduceOp = op;
        backend.allreduce(sum, all_reduce_options)->wait();
        const at::Tensor expected = sum[0].narrow(0, 2L * rank, 2);
        c10d::ReduceScatterOptions options;
        options.reduceOp = op;

        at::Tensor input = mine.clone();
        at::Tensor apart = at::zeros({2, 7}, at::kBFloat16);
        backend._reduce_scatter_base(apart, input, options)->wait();
        EXPECT_TRUE(at::equal(apart, expected)) << "to the bit";
        EXPECT_TRUE(at::equal(input, mine)) << "the input is only read";

        for (const std::int64_t row : {2L * rank, 0L}) {  // its own slice, and one that peers still read
          at::Tensor whole = mine.clone();
          at::Tensor inside = whole.narrow(0, row, 2);
          backend._reduce_scatter_base(inside, whole, options)->wait();
          EXPECT_TRUE(at::equal(inside, expected));
        }
        at::Tensor strided = strided_copy(at::zeros({2, 7}, at::kBFloat16));
        at::Tensor strided_input = strided_copy(mine);
        backend._reduce_scatter_base(strided, strided_input, options)->wait();
        EXPECT_TRUE(at::equal(strided, expected));
      }
    });
  }
}

TEST(C10dBackend, CoalescedGatherAndScatterOfTensors) {
  run_ranks(2, [](WirewiseBackend& backend, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const Tensors a = all_data(2, {2, 4}, at::kFloat), b = all_data(2, {1, 3}, at::kLong);
    Tensors outputs{at::zeros({4, 4}), at::zeros({2, 3}, at::kLong)};
    Tensors inputs{a[r].clone(), b[r].clone()};
    backend.allgather_into_tensor_coalesced(outputs, inputs, {})->wait();
    EXPECT_TRUE(at::equal(outputs[0], at::cat(a)));
    EXPECT_TRUE(at::equal(outputs[1], at::cat(b)));
    Tensors shards{at::zeros({1, 4}), at::zeros({3}, at::kLong)};
    Tensors fulls{a[r].clone(), at::cat({b[r], b[r]})};
    backend.reduce_scatter_tensor_coalesced(shards, fulls, {})->wait();
    EXPECT_TRUE(at::equal(shards[0], (a[0] + a[1]).narrow(0, rank, 1)));
    EXPECT_TRUE(at::equal(shards[1], (b[0] + b[1]).flatten()));
  });
}

TEST(C10dBackend, MessagesMatchByTagAndInOrder) {
  run_ranks(2, [](WirewiseBackend& backend, int rank) {
    const at::Tensor first = data_of(0, {6, 2}, at::kFloat), second = first + 100, other = first + 1000;
    if (rank == 0) {
      std::vector<c10::intrusive_ptr<c10d::Work>> works;
      for (const auto& [tensor, tag] : {std::pair{first, 1}, {other, 2}, {second, 1}}) {
        Tensors tensors{strided_copy(tensor)};
        works.push_back(backend.send(tensors, 1, tag));
      }
      for (auto& work : works) work->wait();
    } else {
      Tensors a{at::zeros({6, 2})}, b{strided_copy(at::zeros({6, 2}))}, c{at::zeros({6, 2})};
      backend.recv(c, 0, 2)->wait();
      const auto work = backend.recv(a, 0, 1);
      work->wait();
      EXPECT_EQ(work->sourceRank(), 0);
      backend.recv(b, 0, 1)->wait();
      EXPECT_TRUE(at::equal(a[0], first));
      EXPECT_TRUE(at::equal(b[0], second));
      EXPECT_TRUE(at::equal(c[0], other));
    }
  });
}

TEST(C10dBackend, SequenceNumbersCountTheCallsAlikeOnAllRanks) {
  run_ranks(2, [](WirewiseBackend& backend, int) {
    backend.setSequenceNumberForGroup();
    EXPECT_EQ(backend.getSequenceNumberForGroup(), 0u);
    Tensors tensors{at::ones({3})};
    const auto work = backend.allreduce(tensors, {});
    EXPECT_EQ(work->getSequencenumber(), 0u);
    work->wait();
    backend.barrier({})->wait();
    EXPECT_EQ(backend.getSequenceNumberForGroup(), 2u);
  });
}

TEST(C10dBackend, AllocatedTensorsAreSharedWritableAndOutliveTheBackend) {
  auto backends = make_ranks(2);
  std::vector<at::Tensor> kept(2);
  run_ranks(backends, [&](WirewiseBackend& backend, int rank) {
    ASSERT_TRUE(backend.supportsTensorAlloc(0));
    at::Tensor full = backend.allocateTensor(10, at::TensorOptions(at::kBFloat16));
    EXPECT_EQ(full.scalar_type(), at::kBFloat16);
    EXPECT_EQ(full.sizes(), at::IntArrayRef({10}));
    EXPECT_EQ(backend.allocateTensor(0).numel(), 0);
    at::Tensor mine = full.narrow(0, 5L * rank, 5);
    mine.fill_(rank + 1);
    backend._allgather_base(full, mine, {})->wait();
    EXPECT_EQ(full.sum().item<float>(), 15);
    kept[static_cast<std::size_t>(rank)] = full;
  });
  backends.clear();
  for (const at::Tensor& tensor : kept) EXPECT_EQ(tensor.sum().item<float>(), 15);
}

}  // namespace
}  // namespace wirewise
