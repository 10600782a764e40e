// Every collective against the reference, over thread ranks: types, operations, rank counts, sizes around the library's thresholds, shared
// and private buffers, in place and apart, at odd addresses. Results are compared to the bit: they may depend on nothing but the values.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "comm/numbers.h"
#include "comm/ranks.h"
#include "wirewise/base/error.h"
#include "wirewise/comm/quick_call.h"
#include "wirewise/comm/small_operation.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;

/// A buffer of one rank: shared or private, aligned or not.
class Memory {
 public:
  Memory(Communicator& comm, std::size_t bytes, bool shared, std::size_t shift) : comm_(comm) {
    if (shared) {
      base_ = static_cast<std::byte*>(comm.allocate_shared(bytes + shift));
    } else {
      own_.resize(bytes + shift + 1);
    }
    data_ = (shared ? base_ : own_.data()) + shift;
  }
  ~Memory() {
    if (base_ != nullptr) comm_.free_shared(base_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] std::byte* get() const { return data_; }

 private:
  Communicator& comm_;
  std::vector<std::byte> own_;
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
};

struct Layout {
  bool shared_in;
  bool shared_out;
  bool in_place;
  std::size_t shift;
};
// In place, one buffer serves for both. The last lets ranks differ: even ones share, odd ones don't.
constexpr Layout kLayouts[] = {
    {true, true, false, 0}, {true, true, true, 0}, {false, false, false, 0}, {false, false, true, 1},
    {true, false, false, 3}, {false, true, false, 2},
};

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

/// The reference for elements of large buffers is a repeating pattern of this many numbers (a prime, so that it meets no border twice).
constexpr std::size_t kPeriod = 9973;

void fill_input(DType dtype, std::uint64_t seed, int rank, std::byte* data, std::size_t count) {
  for (std::size_t i = 0; i < count && i < kPeriod; ++i) write_number(dtype, data, i, input_number(dtype, seed, rank, i));
  const std::size_t period = kPeriod * size_of(dtype);
  for (std::size_t at = period; at < count * size_of(dtype); at += period) {
    std::memcpy(data + at, data, std::min(period, count * size_of(dtype) - at));
  }
}

/// The expected value of element i when all ranks gave fill_input(seed).
double expected(DType dtype, Reduction op, std::uint64_t seed, int ranks, std::size_t i) {
  std::vector<double> values;
  for (int r = 0; r < ranks; ++r) values.push_back(input_number(dtype, seed, r, i));
  return reduced_number(dtype, op, values);
}

/// Throws at the first element that differs. `want` holds one period.
void check(const Communicator& comm, DType dtype, const std::byte* got, const std::vector<double>& want, std::size_t first, std::size_t count,
           const std::string& what) {
  for (std::size_t i = 0; i < count; ++i) {
    const double value = read_number(dtype, got, i);
    const double wanted = want[(first + i) % kPeriod];
    if (value == wanted) continue;
    throw std::runtime_error(what + ", rank " + std::to_string(comm.rank()) + " of " + std::to_string(comm.size()) + ": element " +
                             std::to_string(i) + " of " + std::to_string(count) + " is " + std::to_string(value) + ", not " +
                             std::to_string(wanted));
  }
}

/// How many ranks, on which pretended host each is (empty: all on one), and what WIREWISE_ALGO says (empty: nothing).
struct Spread {
  int ranks = 1;
  std::vector<int> hosts;
  std::string algorithms = {};
  operator int() const { return ranks; }
  friend std::ostream& operator<<(std::ostream& out, const Spread& spread) {
    out << spread.ranks << " ranks";
    for (const int host : spread.hosts) out << ' ' << host;
    return out << ' ' << spread.algorithms;
  }
};
Spread on_hosts(std::vector<int> hosts, std::string algorithms = {}) { return {static_cast<int>(hosts.size()), hosts, std::move(algorithms)}; }

class Collectives : public ::testing::TestWithParam<Spread> {
 protected:
  void SetUp() override {
    pretended_hosts() = GetParam().hosts;
    if (!GetParam().algorithms.empty()) ::setenv("WIREWISE_ALGO", GetParam().algorithms.c_str(), 1);
  }
  void TearDown() override {
    pretended_hosts().clear();
    ::unsetenv("WIREWISE_ALGO");
  }
};
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
