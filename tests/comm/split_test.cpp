// Splitting: who is in which part, and that parts and wholes live and end apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/ranks.h"
#include "wirewise/base/error.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;

void check_split(Communicator& comm) {
  // Even and odd ranks, in reverse order; the last rank stays out.
  const bool out = comm.size() > 1 && comm.rank() == comm.size() - 1;
  CommunicatorOptions options;
  options.name = "parity";
  const auto part = comm.split(out ? -1 : comm.rank() % 2, -comm.rank(), options);
  if (out) {
    EXPECT_EQ(part, nullptr);
  } else {
    std::vector<int> members;
    for (int r = comm.size() - (comm.size() > 1 ? 2 : 1); r >= 0; --r) {
      if (r % 2 == comm.rank() % 2) members.push_back(r);
    }
    ASSERT_EQ(part->size(), static_cast<int>(members.size()));
    EXPECT_EQ(members[static_cast<std::size_t>(part->rank())], comm.rank());
    std::vector<std::int32_t> numbers(members.size());
    const std::int32_t own = comm.rank();
    part->all_gather({&own, DType::kInt32}, {numbers.data(), DType::kInt32}, 1).wait();
    EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), members.begin()));
    // Memory of the whole is shared memory for the part.
    auto* const data = static_cast<std::int64_t*>(comm.allocate_shared(8 * 100'000));
    std::fill_n(data, 100'000, 1);
    part->all_reduce({data, DType::kInt64}, {data, DType::kInt64}, 100'000).wait();
    EXPECT_EQ(data[99'999], part->size());
    // A part of the part outlives both its parents.
    comm.free_shared(data);
  }
  comm.barrier().wait();
}

TEST(Split, GroupsByColourInOrderOfKey) {
  for (const int ranks : {1, 2, 3, 5}) {
    expect_no_errors(run_threads(ranks, check_split));
    expect_all_ok(run_communicators(ranks, [](Communicator& comm) {
      check_split(comm);
      return std::string();
    }));
  }
}

TEST(Split, AnAbortOfThePartLeavesTheWholeAlone) {
  expect_no_errors(run_threads(4, [](Communicator& comm) {
    const auto part = comm.split(comm.rank() % 2, 0);
    comm.barrier().wait();
    if (comm.rank() == 0) part->abort("on purpose");
    if (comm.rank() % 2 == 0) {
      EXPECT_THROW(part->barrier().wait(), Error);
    } else {
      part->barrier().wait();
    }
    comm.barrier().wait();
  }));
}

TEST(Split, ThePartOutlivesTheWhole) {
  expect_all_ok(run_communicators(3, [](Communicator& whole) {
    auto part = whole.split(0, whole.rank());
    auto inner = part->split(0, whole.rank());
    part.reset();
    for (int i = 0; i < 100; ++i) inner->barrier().wait();
    return std::string();
  }));
}

}  // namespace
}  // namespace wirewise
