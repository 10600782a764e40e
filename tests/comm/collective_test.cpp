// Every collective that moves data against the reference, over thread ranks, and what holds of all collectives: calls of many parts, many
// calls in flight, barriers, refusals. Reductions: collective_reduce_test.cpp. Which ranks, hosts and algorithms both go over stands here.
#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "comm/collective_ranks.h"
#include "wirewise/base/error.h"
#include "wirewise/comm/quick_call.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(Spread{1, {}}, Spread{2, {}}, Spread{3, {}}, Spread{4, {}}, Spread{5, {}}, Spread{8, {}}));
// Equal runs of a power of two; hosts of one rank; three hosts; runs that are no node of the tree; unequal hosts; ranks dealt out in turn.
INSTANTIATE_TEST_SUITE_P(Hosts, Collectives,
                         ::testing::Values(on_hosts({0, 0, 1, 1}), on_hosts({0, 1}), on_hosts({0, 0, 1, 1, 2, 2}), on_hosts({0, 1, 2}),
                                           on_hosts({0, 0, 0, 1, 1, 1}), on_hosts({0, 1, 1, 1, 2}), on_hosts({0, 1, 0, 1}),
                                           on_hosts({0, 0, 1, 1, 1, 1, 2, 2}), on_hosts({0, 1, 2, 3})));
// Every algorithm at every size, whatever the model would choose. One rank a host sums its inputs as they lie.
const std::string kDoubling = "all_reduce=doubling,reduce_scatter=doubling,all_gather=ring,broadcast=chain";
const std::string kWholeDoubling = "all_reduce=whole_doubling,broadcast=direct,all_gather=ring";
const std::string kDirect = "all_reduce=direct,reduce_scatter=direct,all_gather=direct,broadcast=direct";
const std::string kWhole = "all_reduce=whole,all_gather=ring,broadcast=chain";
INSTANTIATE_TEST_SUITE_P(Algorithms, Collectives,
                         ::testing::Values(on_hosts({0, 0, 1, 1}, kDoubling), on_hosts({0, 1, 2, 3}, kDoubling),
                                           on_hosts({0, 0, 1, 1, 2, 2, 3, 3}, kDoubling), on_hosts({0, 0, 1, 1}, kWholeDoubling),
                                           on_hosts({0, 1, 2, 3}, kWholeDoubling), on_hosts({0, 1, 2, 3}, kDirect),
                                           on_hosts({0, 1, 0, 1}, kWhole), on_hosts({0, 1, 1, 2}, "all_reduce=whole,broadcast=chain")));

TEST_P(Collectives, MovesEqualTheReferenceForEverySizeAndLayout) {
  const int ranks = GetParam();
  const auto n = static_cast<std::size_t>(ranks);
  constexpr DType kType = DType::kInt16;
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, n + 1, std::size_t{16}, std::size_t{17}, comm::kCopiedMove / 2, comm::kCopiedMove / 2 + 1, std::size_t{4097}, std::size_t{7936},
                                  std::size_t{7937}, std::size_t{600'001}}) {
    // Element i of rank r, wherever it ends up.
    const auto value = [](int r, std::size_t i) { return static_cast<std::int16_t>(static_cast<std::size_t>(r) * 7919 + i * 31 + i / 65536); };
    expect_no_errors(run_threads(ranks, [&](Communicator& comm) {
      const int me = comm.rank();
      const auto mine = static_cast<std::size_t>(me);
      const int root = comm.size() / 2;
      const auto expect = [&](const std::byte* data, int r, std::size_t first, const char* what) {
        for (std::size_t i = 0; i < count; ++i) {
          if (read_as<std::int16_t>(data + 2 * i) == value(r, first + i)) continue;
          throw std::runtime_error(std::string(what) + ": element " + std::to_string(i) + " of " + std::to_string(count) + " from rank " +
                                   std::to_string(r) + " is wrong on rank " + std::to_string(me));
        }
      };
      for (const Layout& layout : kLayouts) {
        const Memory one(comm, count * 2, layout.shared_in, layout.shift);
        const Memory many(comm, count * n * 2, layout.shared_out, layout.shift);
        const Memory other(comm, count * n * 2, layout.shared_in, layout.shift);
        const auto fill = [&](std::byte* data, std::size_t first, std::size_t elements) {
          for (std::size_t i = 0; i < elements; ++i) write_as(data + 2 * i, value(me, first + i));
        };
        std::byte* const slot = many.get() + mine * count * 2;

        std::byte* shard = layout.in_place ? slot : one.get();
        fill(shard, 0, count);
        comm.all_gather({shard, kType}, {many.get(), kType}, count).wait();
        for (std::size_t r = 0; r < n; ++r) expect(many.get() + r * count * 2, static_cast<int>(r), 0, "all_gather");

        fill(shard, 0, count);
        comm.gather({shard, kType}, {many.get(), kType}, count, root).wait();
        for (std::size_t r = 0; r < n && me == root; ++r) expect(many.get() + r * count * 2, static_cast<int>(r), 0, "gather");

        fill(one.get(), 0, count);
        comm.broadcast({one.get(), kType}, count, root).wait();
        expect(one.get(), root, 0, "broadcast");

        fill(many.get(), 0, count * n);
        std::byte* const target = layout.in_place && me == root ? slot : one.get();
        comm.scatter({many.get(), kType}, {target, kType}, count, root).wait();
        expect(target, root, mine * count, "scatter");

        // Uneven: rank i sends (i + 2j) mod 4 quarters of count to rank j.
        std::vector<std::size_t> send(n);
        std::vector<std::size_t> recv(n);
        for (std::size_t r = 0; r < n; ++r) {
          send[r] = count / 4 * ((mine + 2 * r) % 4);
          recv[r] = count / 4 * ((r + 2 * mine) % 4);
        }
        fill(other.get(), 0, count * n);
        comm.all_to_all({other.get(), kType}, send, {many.get(), kType}, recv).wait();
        std::size_t at = 0;
        for (std::size_t r = 0; r < n; ++r) {
          std::size_t first = 0;
          for (std::size_t j = 0; j < mine; ++j) first += count / 4 * ((r + 2 * j) % 4);
          for (std::size_t i = 0; i < recv[r]; ++i) {
            ASSERT_EQ(read_as<std::int16_t>(many.get() + 2 * (at + i)), value(static_cast<int>(r), first + i)) << "all_to_all from " << r;
          }
          at += recv[r];
        }
      }
    }));
    if (HasFailure()) return;
  }
}

TEST_P(Collectives, PartsOfOneCallAreOneOperation) {
  const int ranks = GetParam();
  const auto n = static_cast<std::size_t>(ranks);
  expect_no_errors(run_threads(ranks, [&](Communicator& comm) {
    const auto me = static_cast<std::size_t>(comm.rank());
    for (const bool shared : {true, false}) {
      // Ten parts of different sizes (more than fit into a call's cell), two types.
      std::vector<std::unique_ptr<Memory>> memories;
      std::vector<ReducePart> reductions;
      std::vector<ReducePart> scatters;
      std::vector<AllGatherPart> gathers;
      std::vector<std::size_t> counts;
      for (std::size_t p = 0; p < 10; ++p) {
        const std::size_t count = p == 4 ? 0 : p == 7 ? 300'000 : 100 * p + 1;
        const DType dtype = p % 2 == 0 ? DType::kBFloat16 : DType::kFloat32;
        const std::size_t bytes = count * size_of(dtype);
        const auto memory = [&](std::size_t size) { return memories.emplace_back(std::make_unique<Memory>(comm, size, shared, 0))->get(); };
        std::byte* const in = memory(bytes * n);
        fill_input(dtype, p, comm.rank(), in, count * n);
        reductions.push_back({{in, dtype}, {memory(bytes), dtype}, count});
        scatters.push_back({{in, dtype}, {memory(count * 4), DType::kFloat32}, count});
        gathers.push_back({{in, dtype}, {memory(bytes * n), dtype}, count});
        counts.push_back(count);
      }
      Work first = comm.all_reduce(reductions);
      Work second = comm.reduce_scatter(scatters, Reduction::kAverage);
      Work third = comm.all_gather(gathers);
      EXPECT_EQ(second.sequence(), first.sequence() + 1);
      third.wait();
      second.wait();
      first.wait();
      for (std::size_t p = 0; p < 10; ++p) {
        const DType dtype = reductions[p].in.dtype;
        for (std::size_t i = 0; i < counts[p]; i += 1 + counts[p] / 500) {
          ASSERT_EQ(read_number(dtype, static_cast<std::byte*>(reductions[p].out.data), i),
                    round_to(dtype, expected(dtype, Reduction::kSum, p, ranks, i % kPeriod)));
          ASSERT_EQ(read_number(DType::kFloat32, static_cast<std::byte*>(scatters[p].out.data), i),
                    expected(dtype, Reduction::kAverage, p, ranks, (me * counts[p] + i) % kPeriod));
          for (std::size_t r = 0; r < n; ++r) {
            ASSERT_EQ(read_number(dtype, static_cast<std::byte*>(gathers[p].full.data), r * counts[p] + i),
                      input_number(dtype, p, static_cast<int>(r), i % kPeriod));
          }
        }
      }
    }
  }));
}

TEST_P(Collectives, ManyCallsInFlightCompleteInAnyOrderOfWaiting) {
  constexpr std::size_t kCalls = 200;  // more than there are call slots
  expect_no_errors(run_threads(GetParam(), [&](Communicator& comm) {
    for (const auto progress : {CallOptions::Progress::kBackground, CallOptions::Progress::kOnWait}) {
      CallOptions options;
      options.progress = progress;
      std::vector<std::int64_t> values(kCalls, comm.rank() + 1);
      std::vector<Work> works;
      for (std::size_t i = 0; i < kCalls; ++i) {
        works.push_back(comm.all_reduce({&values[i], DType::kInt64}, {&values[i], DType::kInt64}, 1, Reduction::kSum, options));
      }
      for (std::size_t i = 0; i < kCalls; ++i) works[(i * 37 + static_cast<std::size_t>(comm.rank())) % kCalls].wait();
      for (const std::int64_t value : values) ASSERT_EQ(value, comm.size() * (comm.size() + 1) / 2);
    }
  }));
}

TEST(Collective, AnInPlaceInputIsStagedBeforeItsResultOverwritesIt) {
  // The second call waits for the staging area that the first holds until its reader comes; meanwhile the peer's input is there.
  std::atomic<bool> both_issued{false};
  expect_no_errors(run_threads(2, [&](Communicator& comm) {
    CallOptions options;
    options.progress = CallOptions::Progress::kOnWait;
    std::vector<std::int64_t> values(8, comm.rank() + 1);
    std::vector<Work> works;
    if (comm.rank() == 1) {
      while (!both_issued.load()) std::this_thread::yield();
    }
    for (std::int64_t& value : values) {
      works.push_back(comm.all_reduce({&value, DType::kInt64}, {&value, DType::kInt64}, 1, Reduction::kSum, options));
      comm.progress();
    }
    both_issued.store(true);
    for (Work& work : works) {
      while (!work.test()) std::this_thread::yield();
    }
    for (const std::int64_t value : values) EXPECT_EQ(value, 3);
    comm.barrier().wait();
  }));
}

TEST_P(Collectives, BarrierHoldsEveryoneUntilTheLastArrives) {
  std::atomic<int> arrived{0};
  expect_no_errors(run_threads(GetParam(), [&](Communicator& comm) {
    for (int turn = 1; turn <= 50; ++turn) {
      arrived.fetch_add(1);
      comm.barrier().wait();
      EXPECT_GE(arrived.load(), turn * comm.size());
      comm.barrier().wait();
    }
  }));
}

TEST(Collective, BadArgumentsAreRefusedBeforeAnythingIsSent) {
  expect_no_errors(run_threads(2, [](Communicator& comm) {
    std::vector<float> data(64);
    const auto kind_of = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const Error& error) {
        return error.kind();
      }
      return ErrorKind::kFailed;
    };
    const Buffer buffer{data.data(), DType::kFloat32};
    EXPECT_EQ(kind_of([&] { static_cast<void>(comm.broadcast(buffer, 4, 2)); }), ErrorKind::kBadInput);
    EXPECT_EQ(kind_of([&] { static_cast<void>(comm.broadcast({nullptr, DType::kFloat32}, 4, 0)); }), ErrorKind::kBadInput);
    EXPECT_EQ(kind_of([&] { static_cast<void>(comm.all_reduce(buffer, {data.data() + 1, DType::kFloat32}, 4)); }), ErrorKind::kBadInput);
    EXPECT_EQ(kind_of([&] { static_cast<void>(comm.all_gather(buffer, {data.data() + 32, DType::kFloat64}, 4)); }), ErrorKind::kBadInput);
    EXPECT_EQ(kind_of([&] { static_cast<void>(comm.send(buffer, 4, -1, 0)); }), ErrorKind::kBadInput);
    CallOptions options;
    options.accumulate = true;
    EXPECT_EQ(kind_of([&] { static_cast<void>(comm.barrier(options)); }), ErrorKind::kBadInput);
    comm.barrier().wait();
  }));
}

}  // namespace
}  // namespace wirewise
