// Messages between two ranks: order, tags, sizes of all three ways (buffered, direct, staged).
#include <gtest/gtest.h>

#include <vector>

#include "comm/ranks.h"
#include "wirewise/base/error.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;

std::int32_t value(int from, int tag, std::size_t i) { return static_cast<std::int32_t>(from * 1'000'003 + tag * 10'007) + static_cast<std::int32_t>(i); }

TEST(Messages, ArriveWholeForEverySizeSharedOrNot) {
  for (const int ranks : {1, 2, 3}) {
    expect_no_errors(run_threads(ranks, [](Communicator& comm) {
      const int next = (comm.rank() + 1) % comm.size();
      const int previous = (comm.rank() + comm.size() - 1) % comm.size();
      for (const bool shared : {false, true}) {
        for (const std::size_t count : {0UL, 1UL, 16'384UL, 16'385UL, 131'072UL, 131'073UL, 1'000'001UL}) {
          std::vector<std::int32_t> own(count);
          std::vector<std::int32_t> in(count);
          auto* const out = shared ? static_cast<std::int32_t*>(comm.allocate_shared(count * 4)) : own.data();
          for (std::size_t i = 0; i < count; ++i) out[i] = value(comm.rank(), 5, i);
          Work sent = comm.send({out, DType::kInt32}, count, next, 5);
          comm.recv({in.data(), DType::kInt32}, count, previous, 5).wait();
          sent.wait();
          for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(in[i], value(previous, 5, i));
          if (shared) comm.free_shared(out);
        }
      }
      comm.barrier().wait();
    }));
  }
}

TEST(Messages, OfOneTagMatchInOrderWhileTagsMayBeReceivedInAnyOrder) {
  expect_no_errors(run_threads(2, [](Communicator& comm) {
    constexpr int kTags = 20;
    constexpr int kEach = 5;
    if (comm.rank() == 0) {
      for (int i = 0; i < kEach; ++i) {
        for (int tag = 0; tag < kTags; ++tag) {
          const std::int32_t data = value(i, tag, 0);
          comm.send({&data, DType::kInt32}, 1, 1, tag).wait();  // buffered: done before it is received
        }
      }
    } else {
      for (int tag = kTags; tag-- > 0;) {
        for (int i = 0; i < kEach; ++i) {
          std::int32_t data = 0;
          comm.recv({&data, DType::kInt32}, 1, 0, tag).wait();
          EXPECT_EQ(data, value(i, tag, 0));
        }
      }
    }
    comm.barrier().wait();
  }));
}

TEST(Messages, ReceivesMayBePostedBeforeSendsAndManyMayBeInFlight) {
  expect_no_errors(run_threads(3, [](Communicator& comm) {
    constexpr std::size_t kMessages = 600;  // more than a channel has slots
    std::vector<std::vector<std::int32_t>> in(static_cast<std::size_t>(comm.size()), std::vector<std::int32_t>(kMessages));
    std::vector<std::int32_t> out(kMessages);
    for (std::size_t i = 0; i < kMessages; ++i) out[i] = value(comm.rank(), 0, i);
    std::vector<Work> works;
    for (int peer = 0; peer < comm.size(); ++peer) {
      for (std::size_t i = 0; i < kMessages; ++i) works.push_back(comm.recv({&in[static_cast<std::size_t>(peer)][i], DType::kInt32}, 1, peer, 0));
    }
    for (int peer = 0; peer < comm.size(); ++peer) {
      for (std::size_t i = 0; i < kMessages; ++i) works.push_back(comm.send({&out[i], DType::kInt32}, 1, peer, 0));
    }
    for (Work& work : works) work.wait();
    for (int peer = 0; peer < comm.size(); ++peer) {
      for (std::size_t i = 0; i < kMessages; ++i) EXPECT_EQ(in[static_cast<std::size_t>(peer)][i], value(peer, 0, i));
    }
    comm.barrier().wait();
  }));
}

TEST(Messages, ABufferedMessageOutlivesItsSendersCommunicator) {
  expect_no_errors(run_threads(2, [](Communicator& comm) {
    std::int32_t data = comm.rank() == 0 ? 4711 : 0;
    if (comm.rank() == 0) {
      comm.send({&data, DType::kInt32}, 1, 1, 1).wait();
      comm.send({&data, DType::kInt32}, 1, 1, 0).wait();
    } else {
      comm.recv({&data, DType::kInt32}, 1, 0, 0).wait();
      EXPECT_EQ(data, 4711);
      data = 0;
      comm.recv({&data, DType::kInt32}, 1, 0, 1).wait();
      EXPECT_EQ(data, 4711);
    }
  }));
}

TEST(Messages, OfAnotherSizeOrTypeAreAMismatchOnBothSides) {
  for (const bool type : {false, true}) {
    run_threads(2, [type](Communicator& comm) {
      std::vector<double> data(10);
      try {
        if (comm.rank() == 0) {
          comm.send({data.data(), DType::kFloat64}, 5, 1, 3).wait();
          comm.barrier().wait();
        } else {
          comm.recv({data.data(), type ? DType::kInt64 : DType::kFloat64}, type ? 5 : 6, 0, 3).wait();
        }
        ADD_FAILURE() << "no error on rank " << comm.rank();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
        EXPECT_NE(std::string(error.what()).find("send of 5 float64 to rank 1 with tag 3"), std::string::npos) << error.what();
      }
    });
  }
}

}  // namespace
}  // namespace wirewise
