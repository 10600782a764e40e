// Ranks as processes: the same operations over memory that several processes map.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "comm/ranks.h"

namespace wirewise {
namespace {

using testing::expect_all_ok;
using testing::run_communicators;

class Processes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Processes, ::testing::Values(1, 2, 3, 4));

TEST_P(Processes, AllReduceGivesTheSumEverywhere) {
  for (const bool shared : {false, true}) {
    expect_all_ok(run_communicators(GetParam(), [&](Communicator& comm) {
      for (const std::size_t count : {1UL, 1000UL, 100'000UL, 3'000'001UL}) {
        std::vector<float> own(count);
        float* data = shared ? static_cast<float*>(comm.allocate_shared(count * 4)) : own.data();
        for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<float>((i % 1000) * (static_cast<std::size_t>(comm.rank()) + 1));
        comm.all_reduce({data, DType::kFloat32}, {data, DType::kFloat32}, count).wait();
        const auto sum = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
        for (std::size_t i = 0; i < count; ++i) {
          EXPECT_EQ(data[i], static_cast<float>(i % 1000) * sum);
        }
        if (shared) comm.free_shared(data);
      }
      comm.barrier().wait();
      return std::string();
    }));
  }
}

TEST_P(Processes, AllGatherGivesTheShardsInRankOrder) {
  for (const bool shared : {false, true}) {
    expect_all_ok(run_communicators(GetParam(), [&](Communicator& comm) {
      for (const std::size_t count : {1UL, 1000UL, 700'001UL}) {
        const auto ranks = static_cast<std::size_t>(comm.size());
        std::vector<std::int32_t> own(count);
        std::vector<std::int32_t> full(count * ranks, -1);
        std::int32_t* shard = shared ? static_cast<std::int32_t*>(comm.allocate_shared(count * 4)) : own.data();
        for (std::size_t i = 0; i < count; ++i) shard[i] = static_cast<std::int32_t>(i * ranks + static_cast<std::size_t>(comm.rank()));
        comm.all_gather({shard, DType::kInt32}, {full.data(), DType::kInt32}, count).wait();
        for (std::size_t r = 0; r < ranks; ++r) {
          for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(full[r * count + i], static_cast<std::int32_t>(i * ranks + r));
        }
        if (shared) comm.free_shared(shard);
      }
      return std::string();
    }));
  }
}

}  // namespace
}  // namespace wirewise
