// Collectives on lists of tensors: back to back or apart, equal or uneven, for every root.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "c10d_ranks.h"
#include "wirewise/torch/c10d_backend.h"

namespace wirewise {
namespace {

using testing::run_ranks;
using testing::Tensors;

// What rank `from` holds for rank `to`: any two differ.
at::Tensor piece(int from, int to, std::int64_t count, c10::ScalarType type = at::kFloat) {
  return (at::arange(count, at::kLong) + 100L * from + 10L * to).to(type);
}

Tensors pieces(int from, const std::vector<std::int64_t>& counts) {
  Tensors result;
  for (std::size_t to = 0; to < counts.size(); ++to) result.push_back(piece(from, static_cast<int>(to), counts[to]));
  return result;
}

Tensors zeros(const std::vector<std::int64_t>& counts) {
  Tensors result;
  for (const std::int64_t count : counts) result.push_back(at::zeros({count}));
  return result;
}

// The same tensors as slices of one buffer, in order.
Tensors back_to_back(const Tensors& tensors) {
  const at::Tensor buffer = at::cat(tensors);
  Tensors result;
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    result.push_back(buffer.narrow(0, offset, tensor.numel()));
    offset += tensor.numel();
  }
  return result;
}

const std::vector<std::vector<std::int64_t>> kCounts{{4, 4, 4}, {5, 1, 3}, {0, 2, 0}, {0, 0, 0}};

TEST(C10dLists, AllGatherEqualAndUneven) {
  run_ranks(3, [](WirewiseBackend& backend, int rank) {
    for (const auto& counts : kCounts) {
      for (const bool adjacent : {false, true}) {
        std::vector<Tensors> outputs{adjacent ? back_to_back(zeros(counts)) : zeros(counts)};
        Tensors inputs{piece(rank, rank, counts[static_cast<std::size_t>(rank)])};
        const auto work = backend.allgather(outputs, inputs, {});
        work->wait();
        for (int r = 0; r < 3; ++r) {
          const auto i = static_cast<std::size_t>(r);
          EXPECT_TRUE(at::equal(outputs[0][i], piece(r, r, counts[i]))) << "rank " << r << " adjacent " << adjacent;
        }
        EXPECT_EQ(work->result().size(), 3u);
      }
    }
  });
}

TEST(C10dLists, AllGatherOfASliceOfItsOwnOutput) {
  run_ranks(3, [](WirewiseBackend& backend, int rank) {
    for (const int slice : {rank, (rank + 1) % 3}) {
      std::vector<Tensors> outputs{back_to_back(zeros({2, 2, 2}))};
      Tensors inputs{outputs[0][static_cast<std::size_t>(slice)]};
      inputs[0].fill_(rank + 1);
      backend.allgather(outputs, inputs, {})->wait();
      for (int r = 0; r < 3; ++r) EXPECT_EQ(outputs[0][static_cast<std::size_t>(r)].sum().item<float>(), 2 * (r + 1));
    }
  });
}

TEST(C10dLists, ReduceScatterEqualAndUneven) {
  run_ranks(3, [](WirewiseBackend& backend, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    for (const auto& counts : kCounts) {
      for (const bool adjacent : {false, true}) {
        std::vector<Tensors> inputs{adjacent ? back_to_back(pieces(rank, counts)) : pieces(rank, counts)};
        Tensors outputs{at::zeros({counts[r]})};
        backend.reduce_scatter(outputs, inputs, {})->wait();
        const at::Tensor expected = piece(0, rank, counts[r]) + piece(1, rank, counts[r]) + piece(2, rank, counts[r]);
        EXPECT_TRUE(at::equal(outputs[0], expected));
        Tensors own{inputs[0][r]};  // into one of the inputs
        backend.reduce_scatter(own, inputs, {})->wait();
        EXPECT_TRUE(at::equal(own[0], expected));
      }
    }
  });
}

TEST(C10dLists, AllToAllMovesRandomUnevenRows) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (int size = 1; size <= 4; ++size) {
    run_ranks(size, [&](WirewiseBackend& backend, int rank) {
      std::mt19937 random(seed);  // equal on all ranks
      for (int repeat = 0; repeat < 20; ++repeat) {
        std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(size));  // rows[i][j]: from i to j
        for (auto& row : rows) {
          for (int j = 0; j < size; ++j) row.push_back(static_cast<std::int64_t>(random() % 5));
        }
        const auto columns = static_cast<std::int64_t>(1 + random() % 3);
        const auto me = static_cast<std::size_t>(rank);
        Tensors sent, expected;
        std::vector<std::int64_t> sends = rows[me], receives;
        for (int j = 0; j < size; ++j) {
          const auto peer = static_cast<std::size_t>(j);
          receives.push_back(rows[peer][me]);
          sent.push_back(piece(rank, j, rows[me][peer] * columns).view({-1, columns}));
          expected.push_back(piece(j, rank, rows[peer][me] * columns).view({-1, columns}));
        }
        at::Tensor input = at::cat(sent);
        at::Tensor output = at::zeros_like(at::cat(expected));
        backend.alltoall_base(output, input, receives, sends, {})->wait();
        EXPECT_TRUE(at::equal(output, at::cat(expected)));

        Tensors outputs, inputs = sent;
        for (const at::Tensor& tensor : expected) outputs.push_back(at::zeros_like(tensor));
        backend.alltoall(outputs, inputs, {})->wait();
        for (std::size_t j = 0; j < outputs.size(); ++j) EXPECT_TRUE(at::equal(outputs[j], expected[j]));
      }
    });
  }
}

TEST(C10dLists, AllToAllSplitsEvenlyWithoutSizesAndTakesOverlap) {
  run_ranks(2, [](WirewiseBackend& backend, int rank) {
    std::vector<std::int64_t> none;
    at::Tensor buffer = at::cat({piece(rank, 0, 3), piece(rank, 1, 3)});
    backend.alltoall_base(buffer, buffer, none, none, {})->wait();
    EXPECT_TRUE(at::equal(buffer, at::cat({piece(0, rank, 3), piece(1, rank, 3)})));
  });
}

TEST(C10dLists, GatherAndScatterForEveryRoot) {
  run_ranks(3, [](WirewiseBackend& backend, int rank) {
    for (int root = 0; root < 3; ++root) {
      for (const bool adjacent : {false, true}) {
        const std::vector<std::int64_t> counts{4, 4, 4};
        std::vector<Tensors> lists;
        if (rank == root) lists.push_back(adjacent ? back_to_back(zeros(counts)) : zeros(counts));
        Tensors own{piece(rank, rank, 4)};
        c10d::GatherOptions gather;
        gather.rootRank = root;
        backend.gather(lists, own, gather)->wait();
        if (rank == root) {
          for (int r = 0; r < 3; ++r) EXPECT_TRUE(at::equal(lists[0][static_cast<std::size_t>(r)], piece(r, r, 4)));
          lists[0] = adjacent ? back_to_back(pieces(root, counts)) : pieces(root, counts);
        }
        Tensors received{at::zeros({4, 2}).slice(1, 0, 1).squeeze(1)};  // strided
        c10d::ScatterOptions scatter;
        scatter.rootRank = root;
        backend.scatter(received, lists, scatter)->wait();
        EXPECT_TRUE(at::equal(received[0], piece(root, rank, 4)));
      }
    }
  });
}

}  // namespace
}  // namespace wirewise
