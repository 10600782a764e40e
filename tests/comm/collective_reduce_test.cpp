// Every reduction against the reference, over thread ranks: types, operations, rank counts, sizes around the library's thresholds, shared
// and private buffers, in place and apart, at odd addresses. Results are compared to the bit: they may depend on nothing but the values.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "comm/collective_ranks.h"
#include "wirewise/base/error.h"
#include "wirewise/comm/quick_call.h"
#include "wirewise/comm/small_operation.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;

std::vector<std::size_t> counts_for(int ranks, DType dtype) {
  const auto n = static_cast<std::size_t>(ranks);
  // Where a reduction changes its way: what the call cell carries, what a lane holds (of one rank's input, and of all ranks').
  const std::size_t element = size_of(dtype);
  const std::size_t small = std::min(comm::kSmallBytes, 8 * comm::kSmallBytes / n) / element;
  std::vector<std::size_t> counts{0, 1, n - 1, n, n + 1, 63 * n + 1};
  const bool at_edges = dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kInt8;
  for (const std::size_t edge : {comm::kCellBytes / element, comm::kCellBytes / element / n, comm::kCopiedReduction / element,
                                 comm::kCopiedReduction / element / n, small, small / n}) {
    for (const std::size_t count : {edge - std::min<std::size_t>(edge, 1), edge, edge + 1}) {
      if (at_edges || count == edge + 1) counts.push_back(count);
    }
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  if (dtype == DType::kBFloat16) counts.push_back(1'250'001);  // several rounds
  return counts;
}

TEST_P(Collectives, ReductionsEqualTheReferenceForEveryTypeSizeAndLayout) {
  const int ranks = GetParam();
  const auto n = static_cast<std::size_t>(ranks);
  for (const DType dtype : kAllTypes) {
    for (const std::size_t count : counts_for(ranks, dtype)) {
      const std::uint64_t seed = count + 17;
      // One reference for all layouts and for both operations: a reduce_scatter is a slice of it.
      std::vector<double> sums(kPeriod);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = round_to(dtype, expected(dtype, Reduction::kSum, seed, ranks, i));
      expect_no_errors(run_threads(ranks, [&](Communicator& comm) {
        const auto me = static_cast<std::size_t>(comm.rank());
        const std::size_t element = size_of(dtype);
        for (const Layout& layout : kLayouts) {
          const std::string what = std::string(name_of(dtype)) + (layout.shared_in ? " shared" : " private") + (layout.shared_out ? "-shared" : "-private") +
                                   (layout.in_place ? " in place" : "");
          const Memory in(comm, count * n * element, layout.shared_in, layout.shift);
          const Memory apart(comm, count * element, layout.shared_out, layout.shift);
          fill_input(dtype, seed, comm.rank(), in.get(), count * n);
          std::byte* const whole = layout.in_place ? in.get() : apart.get();
          comm.all_reduce({in.get(), dtype}, {whole, dtype}, count).wait();
          check(comm, dtype, whole, sums, 0, count, "all_reduce " + what);

          fill_input(dtype, seed, comm.rank(), in.get(), count * n);
          std::byte* const slice = layout.in_place ? in.get() + me * count * element : apart.get();
          comm.reduce_scatter({in.get(), dtype}, {slice, dtype}, count).wait();
          check(comm, dtype, slice, sums, me * count, count, "reduce_scatter " + what);

          const int root = comm.size() - 1;
          fill_input(dtype, seed, comm.rank(), in.get(), count);
          comm.reduce({in.get(), dtype}, {whole, dtype}, count, root).wait();
          if (comm.rank() == root) check(comm, dtype, whole, sums, 0, count, "reduce " + what);
        }
      }));
      if (HasFailure()) return;
    }
  }
}

TEST_P(Collectives, EveryReductionExistsForEveryTypeItIsDefinedFor) {
  const int ranks = GetParam();
  constexpr std::size_t kCount = 301;
  expect_no_errors(run_threads(ranks, [&](Communicator& comm) {
    for (const DType dtype : kAllTypes) {
      for (const Reduction op : kAllReductions) {
        const Memory data(comm, kCount * 8, false, 0);
        fill_input(dtype, 5, comm.rank(), data.get(), kCount);
        if (!exists(dtype, op)) {
          EXPECT_THROW(static_cast<void>(comm.all_reduce({data.get(), dtype}, {data.get(), dtype}, kCount, op)), Error);
          continue;
        }
        comm.all_reduce({data.get(), dtype}, {data.get(), dtype}, kCount, op).wait();
        std::vector<double> want;
        for (std::size_t i = 0; i < kCount; ++i) want.push_back(round_to(dtype, expected(dtype, op, 5, ranks, i)));
        check(comm, dtype, data.get(), want, 0, kCount, std::string(name_of(dtype)) + " operation " + std::to_string(static_cast<int>(op)));
      }
    }
  }));
}

TEST_P(Collectives, Float32OutputOf16BitInputsIsTheUnroundedSumAndCanBeAccumulated) {
  const int ranks = GetParam();
  const auto n = static_cast<std::size_t>(ranks);
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{300'001}}) {
      std::vector<double> wide(kPeriod);
      std::vector<double> added(kPeriod);
      for (std::size_t i = 0; i < wide.size(); ++i) {
        wide[i] = expected(dtype, Reduction::kSum, 9, ranks, i);
        added[i] = static_cast<double>(static_cast<float>(wide[i]) + 0.375F);
      }
      expect_no_errors(run_threads(ranks, [&](Communicator& comm) {
        const auto me = static_cast<std::size_t>(comm.rank());
        for (const bool shared : {true, false}) {
          const Memory in(comm, count * n * 2, shared, 0);
          const Memory out(comm, count * 4, shared, 0);
          fill_input(dtype, 9, comm.rank(), in.get(), count * n);
          const auto reset = [&] {
            for (std::size_t i = 0; i < count; ++i) write_number(DType::kFloat32, out.get(), i, 0.375);
          };
          for (const bool accumulate : {false, true}) {
            CallOptions options;
            options.accumulate = accumulate;
            const std::vector<double>& want = accumulate ? added : wide;
            reset();
            comm.reduce_scatter({in.get(), dtype}, {out.get(), DType::kFloat32}, count, Reduction::kSum, options).wait();
            check(comm, DType::kFloat32, out.get(), want, me * count, count, "reduce_scatter to float32");
            reset();
            comm.all_reduce({in.get(), dtype}, {out.get(), DType::kFloat32}, count, Reduction::kSum, options).wait();
            check(comm, DType::kFloat32, out.get(), want, 0, count, "all_reduce to float32");
          }
        }
      }));
    }
  }
}

TEST_P(Collectives, OnlyTheRootOfAReduceNamesAnOutput) {
  const int ranks = GetParam();
  constexpr std::size_t kCount = 50'001;
  std::vector<double> wide(kPeriod);
  for (std::size_t i = 0; i < kPeriod; ++i) wide[i] = expected(DType::kBFloat16, Reduction::kSum, 2, ranks, i);
  expect_no_errors(run_threads(ranks, [&](Communicator& comm) {
    for (int root = 0; root < comm.size(); ++root) {
      const bool is_root = comm.rank() == root;
      const Memory in(comm, kCount * 2, root % 2 == 0, 0);
      const Memory out(comm, kCount * 4, comm.rank() % 2 == 0, 0);
      fill_input(DType::kBFloat16, 2, comm.rank(), in.get(), kCount);
      comm.reduce({in.get(), DType::kBFloat16}, is_root ? Buffer{out.get(), DType::kFloat32} : Buffer{}, kCount, root).wait();
      if (is_root) check(comm, DType::kFloat32, out.get(), wide, 0, kCount, "reduce to float32");
    }
  }));
}

TEST_P(Collectives, RanksMayDifferInWhereTheirBuffersLie) {
  const int ranks = GetParam();
  const auto n = static_cast<std::size_t>(ranks);
  constexpr std::size_t kCount = 400'007;
  std::vector<double> sums(kPeriod);
  for (std::size_t i = 0; i < kPeriod; ++i) sums[i] = expected(DType::kFloat32, Reduction::kSum, 3, ranks, i);
  expect_no_errors(run_threads(ranks, [&](Communicator& comm) {
    for (int turn = 0; turn < 4; ++turn) {
      const bool shared_in = (comm.rank() + turn) % 2 == 0;
      const bool shared_out = (comm.rank() / 2 + turn) % 2 == 0;
      const Memory in(comm, kCount * 4, shared_in, 0);
      const Memory out(comm, kCount * 4, shared_out, 0);
      const Memory full(comm, kCount * 4 * n, shared_out, 0);
      fill_input(DType::kFloat32, 3, comm.rank(), in.get(), kCount);
      Work reduction = comm.all_reduce({in.get(), DType::kFloat32}, {out.get(), DType::kFloat32}, kCount);
      Work gather = comm.all_gather({in.get(), DType::kFloat32}, {full.get(), DType::kFloat32}, kCount);
      // Waited for in another order by each rank.
      if (comm.rank() % 2 == 0) {
        gather.wait();
        reduction.wait();
      } else {
        reduction.wait();
        gather.wait();
      }
      check(comm, DType::kFloat32, out.get(), sums, 0, kCount, "all_reduce");
      for (int r = 0; r < ranks; ++r) {
        for (std::size_t i = 0; i < kCount; i += 97) {
          ASSERT_EQ(read_number(DType::kFloat32, full.get(), static_cast<std::size_t>(r) * kCount + i), input_number(DType::kFloat32, 3, r, i % kPeriod));
        }
      }
    }
  }));
}

TEST_P(Collectives, RanksOfSmallReductionsMayDifferInWhereTheirBuffersLie) {
  // Those with shared buffers offer them as they are, others offer copies: each mixture, in step and with a rank that comes late.
  const int ranks = GetParam();
  const auto n = static_cast<std::size_t>(ranks);
  constexpr std::size_t kMost = comm::kSmallBytes / 4;
  std::vector<double> sums(kPeriod);
  for (std::size_t i = 0; i < kPeriod; ++i) sums[i] = expected(DType::kFloat32, Reduction::kSum, 5, ranks, i);
  expect_no_errors(run_threads(ranks, [&](Communicator& comm) {
    const auto mine = static_cast<std::size_t>(comm.rank());
    CallOptions options;
    options.progress = CallOptions::Progress::kOnWait;
    std::vector<std::unique_ptr<Memory>> buffers;
    for (const bool shared : {false, true}) {
      for (int i = 0; i < 2; ++i) buffers.push_back(std::make_unique<Memory>(comm, kMost * 4, shared, 0));
    }
    for (const std::size_t count : {std::size_t{300}, std::size_t{1000}, kMost}) {
      for (unsigned mixture = 0; mixture < 16; ++mixture) {
        const bool shared_in = (mixture >> (mine % 2) & 1) != 0;
        const bool shared_out = (mixture >> (2 + mine % 2) & 1) != 0;
        const std::size_t late = mixture % n;
        const std::byte* const in = buffers[shared_in ? 2 : 0]->get();
        std::byte* const out = buffers[shared_out ? 3 : 1]->get();
        fill_input(DType::kFloat32, 5, comm.rank(), buffers[shared_in ? 2 : 0]->get(), count);
        if (mine == late) std::this_thread::sleep_for(std::chrono::microseconds(200));  // the others go the long way, whatever the outcome
        comm.all_reduce({in, DType::kFloat32}, {out, DType::kFloat32}, count, Reduction::kSum, options).wait();
        check(comm, DType::kFloat32, out, sums, 0, count, "all_reduce");
        // In place, several in flight.
        std::byte* const both = buffers[shared_in ? 3 : 1]->get();
        fill_input(DType::kFloat32, 5, comm.rank(), both, count);
        Work first = comm.all_reduce({both, DType::kFloat32}, {both, DType::kFloat32}, count, Reduction::kSum, options);
        const std::size_t block = count / n;
        Work second = comm.reduce_scatter({in, DType::kFloat32}, {buffers[shared_in ? 1 : 3]->get(), DType::kFloat32}, block, Reduction::kSum, options);
        second.wait();
        check(comm, DType::kFloat32, buffers[shared_in ? 1 : 3]->get(), sums, mine * block, block, "reduce_scatter");
        first.wait();
        check(comm, DType::kFloat32, both, sums, 0, count, "all_reduce in place");
      }
    }
  }));
}

}  // namespace
}  // namespace wirewise
