// Calls that end at once where peers are in step. One thread is all ranks in turn here, so who is late in which call is said, not raced for:
// the last rank to call finds all others there.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "comm/ranks.h"
#include "wirewise/comm/control.h"

namespace wirewise {
namespace {

constexpr int kRanks = 3;

struct Data {
  std::vector<float> in;
  std::vector<float> out;
};

class QuickCalls : public ::testing::TestWithParam<std::size_t> {
 protected:
  QuickCalls() : ranks_(make_thread_communicators(kRanks)) {
    for (int r = 0; r < kRanks; ++r) {
      data_.push_back({std::vector<float>(GetParam(), static_cast<float>(r + 1)), std::vector<float>(GetParam())});
    }
  }

  Work call(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    CallOptions options;
    options.progress = CallOptions::Progress::kOnWait;  // nothing moves but what this thread moves
    return ranks_[r]->all_reduce({data_[r].in.data(), DType::kFloat32}, {data_[r].out.data(), DType::kFloat32}, GetParam(), Reduction::kSum, options);
  }

  /// A call that ended without an operation.
  static bool was_quick(const Work& work) { return work.valid() && work.state() == nullptr; }

  void expect_sums() {
    for (Data& rank : data_) {
      for (const float value : rank.out) EXPECT_EQ(value, 6.0f);
      std::fill(rank.out.begin(), rank.out.end(), 0.0f);
    }
  }

  std::vector<std::unique_ptr<Communicator>> ranks_;
  std::vector<Data> data_;
};
INSTANTIATE_TEST_SUITE_P(Elements, QuickCalls, ::testing::Values(2, 200));  // in the call's own cell, and copied aside

TEST_P(QuickCalls, WhoCallsLastNeedsNoOperation) {
  for (int i = 0; i < 10; ++i) {
    std::vector<Work> works;
    for (int r = 0; r < kRanks; ++r) {
      works.push_back(call(r));
      EXPECT_EQ(was_quick(works.back()), r == kRanks - 1) << "call " << i << ", rank " << r;
    }
    for (Work& work : works) work.wait();
    expect_sums();
  }
}

// Rank 0's first call is over while rank 1 has yet to look at it: that operation stays open for rank 1's last word, which nobody waits for.
TEST_P(QuickCalls, GoOnAfterALateRank) {
  {
    Work first = call(0);
    Work late = call(1);
    ASSERT_TRUE(was_quick(call(2)));
    first.wait();
    late.wait();
    expect_sums();
  }
  // Rank 0 only makes quick calls from here on: its open operation must not take their slots and lanes from them.
  for (std::uint64_t i = 0; i < 4 * comm::kSlots; ++i) {
    Work second = call(1);
    Work third = call(2);
    ASSERT_TRUE(was_quick(call(0))) << "call " << i << " after the late rank";
    second.wait();
    third.wait();
    expect_sums();
  }
}

}  // namespace
}  // namespace wirewise
