// Receives from whichever rank sends first: which message they take, and what they say when none comes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "comm/ranks.h"
#include "wirewise/base/error.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;
using namespace std::chrono_literals;

TEST(AnySource, TakesEveryMessageOnceAndKnowsItsSender) {
  expect_no_errors(run_threads(4, [](Communicator& comm) {
    for (const std::size_t count : {1UL, 100'000UL}) {  // buffered, staged
      std::vector<std::int32_t> data(count, comm.rank());
      if (comm.rank() != 0) {
        for (int i = 0; i < 5; ++i) comm.send({data.data(), DType::kInt32}, count, 0, 7).wait();
      } else {
        std::vector<int> from(4);
        for (int i = 0; i < 15; ++i) {
          Work work = comm.recv({data.data(), DType::kInt32}, count, kAnySource, 7);
          work.wait();
          ASSERT_GE(work.source(), 1);
          EXPECT_TRUE(std::all_of(data.begin(), data.end(), [&](std::int32_t value) { return value == work.source(); }));
          ++from[static_cast<std::size_t>(work.source())];
        }
        EXPECT_EQ(from, (std::vector<int>{0, 5, 5, 5}));
      }
      comm.barrier().wait();
    }
  }));
}

TEST(AnySource, LeavesOtherTagsAndEarlierReceivesAlone) {
  expect_no_errors(run_threads(3, [](Communicator& comm) {
    std::int32_t value = comm.rank();
    if (comm.rank() == 0) {
      std::int32_t named = 0, any = 0, other = 0;
      Work first = comm.recv({&named, DType::kInt32}, 1, 1, 1);
      Work second = comm.recv({&any, DType::kInt32}, 1, kAnySource, 1);
      comm.barrier().wait();
      first.wait();
      second.wait();
      comm.recv({&other, DType::kInt32}, 1, kAnySource, 2).wait();
      EXPECT_EQ(named, 10);  // the first of rank 1
      EXPECT_EQ(any, second.source() == 1 ? 11 : 22);
      EXPECT_EQ(other, 100);
      comm.recv({&any, DType::kInt32}, 1, kAnySource, 1).wait();  // the one that the second did not take
    } else {
      comm.barrier().wait();
      if (comm.rank() == 1) {
        for (value = 10; value < 12; ++value) comm.send({&value, DType::kInt32}, 1, 0, 1).wait();
      } else {
        value = 100;
        comm.send({&value, DType::kInt32}, 1, 0, 2).wait();
        value = 22;
        comm.send({&value, DType::kInt32}, 1, 0, 1).wait();
      }
    }
    comm.barrier().wait();
  }));
}

TEST(AnySource, NamesAllWhoMightHaveSentWhenNobodyDoes) {
  run_threads(3, [](Communicator& comm) {
    if (comm.rank() != 0) return;
    std::int32_t value = 0;
    CallOptions options;
    options.timeout = 50ms;
    try {
      comm.recv({&value, DType::kInt32}, 1, kAnySource, 3, options).wait();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_TRUE(error.kind() == ErrorKind::kTimeout || error.kind() == ErrorKind::kPeerLost) << text;
      EXPECT_NE(text.find("recv of 1 int32 from any rank with tag 3"), std::string::npos) << text;
    }
  });
}

}  // namespace
}  // namespace wirewise
