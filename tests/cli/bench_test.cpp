// `wirewise bench`: sizes as users write them, data with a known result, what is printed, and that broken data is seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/program.h"
#include "comm/numbers.h"
#include "comm/ranks.h"
#include "wirewise/base/error.h"
#include "wirewise/cli/bench_case.h"
#include "wirewise/cli/bench_memory.h"
#include "wirewise/cli/bench_operation.h"
#include "wirewise/cli/bench_pattern.h"
#include "wirewise/cli/bench_report.h"
#include "wirewise/cli/bench_sizes.h"

namespace wirewise::bench {
namespace {

using testing_support::Program;

// --- sizes

TEST(BenchSizes, AreBinaryAndInTheOrderGiven) {
  EXPECT_EQ(parse_sizes("8"), (std::vector<Bytes>{8}));
  EXPECT_EQ(parse_sizes("1M,8,64K"), (std::vector<Bytes>{1 << 20, 8, 64 << 10}));
  EXPECT_EQ(parse_sizes("0,3G"), (std::vector<Bytes>{0, Bytes{3} << 30}));
}

TEST(BenchSizes, RangesGoByFactorsOrStepsUpToTheLast) {
  EXPECT_EQ(parse_sizes("8:256:x4"), (std::vector<Bytes>{8, 32, 128}));
  EXPECT_EQ(parse_sizes("8:512:x4"), (std::vector<Bytes>{8, 32, 128, 512}));
  EXPECT_EQ(parse_sizes("8:32:+8"), (std::vector<Bytes>{8, 16, 24, 32}));
  EXPECT_EQ(parse_sizes("0:10:+4"), (std::vector<Bytes>{0, 4, 8}));
  EXPECT_EQ(parse_sizes("1K:4K"), (std::vector<Bytes>{1024, 2048, 4096}));
  EXPECT_EQ(parse_sizes("7:7:x2,1:2"), (std::vector<Bytes>{7, 1, 2}));
  EXPECT_EQ(parse_sizes("8:64M:x8").back(), Bytes{16} << 20);
}

TEST(BenchSizes, RangesEndWhereNumbersDo) {
  EXPECT_EQ(parse_sizes("9223372036854775808:18446744073709551615:x2").size(), 1U);
  EXPECT_EQ(parse_sizes("18446744073709551610:18446744073709551615:+4").size(), 2U);
}

TEST(BenchSizes, MistakesNameThePartAndTheForms) {
  for (const char* text : {"", ",", "8,", "x", "-8", "8.5", "8:4", "8:", ":8", "8:64:4", "8:64:x", "8:64:x1", "8:64:x0", "8:64:+0", "0:8:x2", "8:64:x2:2",
                           "8:64:*2", "1Q", "0:1G:+1", "18446744073709551616"}) {
    try {
      const auto sizes = parse_sizes(text);
      ADD_FAILURE() << '"' << text << "\" gave " << sizes.size() << " sizes";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << text;
      EXPECT_NE(error.sentence().find("--sizes"), std::string::npos) << error.what();
      EXPECT_FALSE(error.remedy().empty()) << text;
    }
  }
}

// --- shapes, factors, traffic

TEST(BenchOperation, SizeIsTheWholeBufferAndCountIsTheCallsArgument) {
  struct Row {
    Op op;
    Bytes wanted;
    std::size_t count;
    Bytes size, in, out;
  };
  const std::vector<Row> rows{
      {Op::kAllReduce, 1000, 250, 1000, 1000, 1000}, {Op::kAllGather, 1200, 100, 1200, 400, 1200},     {Op::kReduceScatter, 1200, 100, 1200, 1200, 400},
      {Op::kGather, 1200, 100, 1200, 400, 1200},     {Op::kScatter, 1200, 100, 1200, 1200, 400},       {Op::kAllToAll, 1200, 100, 1200, 1200, 1200},
      {Op::kAllGather, 8, 1, 12, 4, 12},             {Op::kAllGather, 1199, 99, 1188, 396, 1188},      {Op::kAllReduce, 1, 1, 4, 4, 4},
      {Op::kAllGather, 0, 0, 0, 0, 0},               {Op::kBarrier, 1000, 0, 0, 0, 0},
  };
  for (const Row& row : rows) {
    const Shape shape = shape_of(row.op, DType::kFloat32, row.wanted, 3);
    EXPECT_EQ(shape.count, row.count) << name_of(row.op) << ' ' << row.wanted;
    EXPECT_EQ(shape.size, row.size) << name_of(row.op) << ' ' << row.wanted;
    EXPECT_EQ(shape.in, row.in) << name_of(row.op) << ' ' << row.wanted;
    EXPECT_EQ(shape.out, row.out) << name_of(row.op) << ' ' << row.wanted;
  }
}

TEST(BenchOperation, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Op::kAllReduce, 8), 1.75);
  for (const Op op : {Op::kAllGather, Op::kReduceScatter, Op::kAllToAll, Op::kGather, Op::kScatter}) EXPECT_DOUBLE_EQ(bus_factor(op, 8), 0.875);
  for (const Op op : {Op::kBroadcast, Op::kReduce, Op::kSendRecv}) EXPECT_DOUBLE_EQ(bus_factor(op, 8), 1);
}

/// Counts traffic from what each rank must end up with, as the definition of a lower bound: each input byte that leaves its owner's buffer
/// is read at least once, each output byte that isn't there already is written once.
TEST(BenchOperation, LeastTrafficIsInputsReadOnceAndOutputsWrittenOnce) {
  for (const int ranks : {2, 3, 8}) {
    const double n = ranks;
    const Bytes size = 24000;
    const double s = static_cast<double>(size);
    const auto expect = [&](Op op, bool in_place, double read, double written) {
      const Traffic traffic = least_traffic(op, size, ranks, in_place);
      EXPECT_DOUBLE_EQ(traffic.read, read) << name_of(op) << in_place << ranks;
      EXPECT_DOUBLE_EQ(traffic.written, written) << name_of(op) << in_place << ranks;
    };
    for (const bool in_place : {false, true}) {
      expect(Op::kAllReduce, in_place, n * s, n * s);
      expect(Op::kReduceScatter, in_place, n * s, s);
      expect(Op::kReduce, in_place, n * s, s);
    }
    expect(Op::kAllGather, false, s, n * s);
    expect(Op::kAllGather, true, s, (n - 1) * s);
    expect(Op::kBroadcast, true, s, (n - 1) * s);
    expect(Op::kAllToAll, false, n * s, n * s);
    expect(Op::kGather, false, s, s);
    expect(Op::kScatter, true, s - s / n, s - s / n);
  }
}

TEST(BenchMemory, LeastTimePairsReadsWithWrites) {
  const MemoryLimit limit{30e9, 20e9, 10e9};
  EXPECT_DOUBLE_EQ(least_time(limit, {1e9, 1e9}), 0.1);
  EXPECT_DOUBLE_EQ(least_time(limit, {4e9, 1e9}), 0.1 + 0.1);
  EXPECT_DOUBLE_EQ(least_time(limit, {1e9, 5e9}), 0.1 + 0.2);
  EXPECT_EQ(least_time(limit, {}), 0);
}

TEST(BenchOperation, NamesAreReadBackAndUnknownOnesHaveANearest) {
  const auto all = parse_ops("all");
  EXPECT_EQ(all.size(), 10U);
  for (const Op op : all) EXPECT_EQ(parse_ops(name_of(op)), std::vector<Op>{op});
  for (const Reduction redop : testing::kAllReductions) EXPECT_EQ(parse_reduction(name_of(redop)), redop);
  try {
    (void)parse_ops("all_reduce,al_gather");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("Did you mean all_gather?"), std::string::npos) << error.what();
  }
  EXPECT_THROW((void)parse_ops(""), Error);
  EXPECT_THROW((void)parse_reduction("mean"), Error);
}

// --- data

TEST(BenchPattern, ClosedFormsEqualCombiningTheInputs) {
  for (const int ranks : {1, 2, 3, 5, 8, 16, 17, 33, 64, 70}) {
    for (const DType dtype : testing::kAllTypes) {
      for (const Reduction redop : testing::kAllReductions) {
        ASSERT_EQ(is_defined(dtype, redop), testing::exists(dtype, redop));
        if (!is_defined(dtype, redop)) continue;
        // int64 goes through doubles below, so its bit patterns would lose digits; int32 has the same code.
        if (dtype == DType::kInt64 && testing::is_bitwise(redop)) continue;
        std::vector<Period> inputs;
        for (int rank = 0; rank < ranks; ++rank) inputs.push_back(reduction_input(dtype, redop, ranks, rank));
        const Period result = reduction_result(dtype, redop, ranks);
        ASSERT_EQ(result.size(), kPeriod * size_of(dtype));
        for (std::size_t i = 0; i < kPeriod; i += 7) {
          std::vector<double> values;
          for (const Period& input : inputs) values.push_back(testing::read_number(dtype, input.data(), i));
          const double expected = testing::round_to(dtype, testing::reduced_number(dtype, redop, values));
          ASSERT_EQ(testing::read_number(dtype, result.data(), i), expected)
              << name_of(dtype) << ' ' << name_of(redop) << " of " << ranks << " ranks, element " << i;
        }
      }
    }
  }
}

TEST(BenchPattern, SixtyFourBitWordsCombineBitByBit) {
  for (const int ranks : {1, 2, 3, 63, 64, 65, 130}) {
    for (const Reduction redop : {Reduction::kBitAnd, Reduction::kBitOr, Reduction::kBitXor}) {
      std::vector<std::uint64_t> expected(kPeriod, redop == Reduction::kBitAnd ? ~std::uint64_t{0} : 0);
      for (int rank = 0; rank < ranks; ++rank) {
        const Period input = reduction_input(DType::kInt64, redop, ranks, rank);
        for (std::size_t i = 0; i < kPeriod; ++i) {
          const auto word = testing::read_as<std::uint64_t>(&input[8 * i]);
          if (redop == Reduction::kBitAnd) expected[i] &= word;
          if (redop == Reduction::kBitOr) expected[i] |= word;
          if (redop == Reduction::kBitXor) expected[i] ^= word;
        }
      }
      const Period result = reduction_result(DType::kInt64, redop, ranks);
      for (std::size_t i = 0; i < kPeriod; ++i) ASSERT_EQ(testing::read_as<std::uint64_t>(&result[8 * i]), expected[i]) << name_of(redop) << ranks << ' ' << i;
    }
  }
}

TEST(BenchPattern, ARankCountedTwiceInAnothersPlaceIsSeen) {
  for (const Reduction redop : {Reduction::kSum, Reduction::kProduct, Reduction::kMax, Reduction::kMin, Reduction::kBitXor}) {
    const int ranks = 4;
    std::size_t differing = 0;
    const Period result = reduction_result(DType::kInt32, redop, ranks);
    std::vector<Period> inputs;
    for (const int rank : {0, 1, 2, 2}) inputs.push_back(reduction_input(DType::kInt32, redop, ranks, rank));
    for (std::size_t i = 0; i < kPeriod; ++i) {
      std::vector<double> values;
      for (const Period& input : inputs) values.push_back(testing::read_number(DType::kInt32, input.data(), i));
      differing += testing::read_number(DType::kInt32, result.data(), i) != testing::reduced_number(DType::kInt32, redop, values) ? 1 : 0;
    }
    EXPECT_GT(differing, kPeriod / 50) << name_of(redop);
  }
}

TEST(BenchPattern, EveryBrokenElementIsCountedOnce) {
  for (const DType dtype : testing::kAllTypes) {
    const Period period = moved_data(dtype, 3, 1);
    const std::size_t count = 2 * kPeriod + 100;
    std::vector<std::byte> data(count * size_of(dtype));
    fill(data.data(), period, 17, count);
    EXPECT_EQ(count_wrong(data.data(), period, 17, count), 0U);
    for (const std::size_t i : {std::size_t{0}, std::size_t{5}, kPeriod, count - 1}) data[(i + 1) * size_of(dtype) - 1] ^= std::byte{1};
    EXPECT_EQ(count_wrong(data.data(), period, 17, count), 4U) << name_of(dtype);
    if (dtype != DType::kBool) {  // every second truth value is the same anyway
      EXPECT_GT(count_wrong(data.data(), period, 18, count), count / 2) << name_of(dtype);
      EXPECT_GT(count_wrong(data.data(), moved_data(dtype, 1, 3), 17, count), count / 2) << name_of(dtype);
    }
  }
}

// --- cases

const MemoryLimit kSomeLimit{10e9, 10e9, 10e9};

Plan few() {
  Plan plan;
  plan.iterations = 2;
  plan.warmup = 1;
  plan.cache = kMiB;
  return plan;
}

TEST(BenchCase, EveryOperationTypeAndFormHasNothingWrong) {
  for (const int ranks : {1, 2, 3}) {
    const auto errors = testing::run_threads(ranks, [&](Communicator& communicator) {
      for (const Op op : parse_ops("all")) {
        for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt8}) {
          for (const bool in_place : {false, true}) {
            if (!has_form(op, in_place)) continue;
            for (const Bytes size : {Bytes{0}, Bytes{8}, Bytes{100'000}}) {
              const Case what{op, dtype, Reduction::kSum, size, communicator.size() - 1, in_place};
              for (const bool cold : {false, true}) {
                Plan plan = few();
                plan.cold = cold;
                plan.shared = !cold;
                const Result result = run_case(communicator, what, plan, kSomeLimit);
                EXPECT_EQ(result.wrong, 0U) << name_of(op) << ' ' << name_of(dtype) << ' ' << size << (in_place ? " in place" : "") << (cold ? " cold" : "");
                EXPECT_EQ(result.count, shape_of(op, dtype, size, communicator.size()).count);
                EXPECT_GT(result.time_us, 0);
                EXPECT_LE(result.p50_us, result.p99_us);
              }
            }
          }
        }
      }
    });
    testing::expect_no_errors(errors);
  }
}

/// Passes all calls on and then breaks elements of what arrived on one rank.
class Breaking final : public Communicator {
 public:
  Breaking(Communicator& inner, bool here) : inner_(inner), here_(here) {}
  int rank() const noexcept override { return inner_.rank(); }
  int size() const noexcept override { return inner_.size(); }
  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;
  Work all_reduce(std::span<const ReducePart> parts, Reduction op, CallOptions options) override {
    Work work = inner_.all_reduce(parts, op, options);
    return parts[0].count < 3 ? std::move(work) : broken(std::move(work), parts[0].out, parts[0].count);  // not the bench's own sums
  }
  Work all_gather(std::span<const AllGatherPart> parts, CallOptions options) override {
    return broken(inner_.all_gather(parts, options), parts[0].full, parts[0].count * static_cast<std::size_t>(size()));
  }
  Work reduce_scatter(std::span<const ReducePart> parts, Reduction op, CallOptions options) override {
    return broken(inner_.reduce_scatter(parts, op, options), parts[0].out, parts[0].count);
  }
  Work broadcast(Buffer buffer, std::size_t count, int root, CallOptions options) override {
    return broken(inner_.broadcast(buffer, count, root, options), buffer, count);
  }
  Work reduce(ConstBuffer in, Buffer out, std::size_t count, int root, Reduction op, CallOptions options) override {
    return broken(inner_.reduce(in, out, count, root, op, options), out, count);
  }
  Work gather(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) override {
    return broken(inner_.gather(in, out, count, root, options), out, count);
  }
  Work scatter(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) override {
    return broken(inner_.scatter(in, out, count, root, options), out, count);
  }
  Work all_to_all(ConstBuffer in, std::span<const std::size_t> sent, Buffer out, std::span<const std::size_t> received, CallOptions options) override {
    return broken(inner_.all_to_all(in, sent, out, received, options), out, sent[0]);
  }
  Work send(ConstBuffer in, std::size_t count, int peer, int tag, CallOptions options) override { return inner_.send(in, count, peer, tag, options); }
  Work recv(Buffer out, std::size_t count, int peer, int tag, CallOptions options) override {
    Work work = inner_.recv(out, count, peer, tag, options);
    work.wait();
    break_elements(out, count);
    return work;
  }
  Work barrier(CallOptions options) override { return inner_.barrier(options); }
  void progress() override { inner_.progress(); }
  std::unique_ptr<Communicator> split(int, int, CommunicatorOptions) override { return nullptr; }
  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }
  void* allocate_shared(std::size_t bytes) override { return inner_.allocate_shared(bytes); }
  void free_shared(void* pointer) noexcept override { inner_.free_shared(pointer); }

 private:
  Work broken(Work work, Buffer out, std::size_t count) {
    work.wait();
    break_elements(out, count);
    return inner_.barrier();
  }
  void break_elements(Buffer out, std::size_t count) const {
    if (!here_ || count == 0) return;
    auto* const bytes = static_cast<std::byte*>(out.data);
    bytes[0] ^= std::byte{1};
    bytes[(count - 1) * size_of(out.dtype)] ^= std::byte{1};
  }
  Communicator& inner_;
  bool here_;
};

TEST(BenchCase, WithoutAKnownLimitThereIsNoShareOfIt) {
  testing::expect_no_errors(testing::run_threads(2, [&](Communicator& communicator) {
    EXPECT_EQ(run_case(communicator, {.size = 8000}, few(), MemoryLimit{}).limit_fraction, 0);
    EXPECT_GT(run_case(communicator, {.size = 8000}, few(), kSomeLimit).limit_fraction, 0);
  }));
}

TEST(BenchCase, BrokenElementsOfOneRankAreCountedOnAll) {
  const auto errors = testing::run_threads(2, [&](Communicator& communicator) {
    Breaking breaking(communicator, communicator.rank() == 1);
    for (const Op op : parse_ops("all")) {
      if (op == Op::kBarrier) continue;
      for (const bool in_place : {false, true}) {
        if (!has_form(op, in_place)) continue;
        const Case what{op, DType::kInt32, Reduction::kSum, 4000, op == Op::kReduce || op == Op::kGather ? 1 : 0, in_place};
        EXPECT_EQ(run_case(breaking, what, few(), kSomeLimit).wrong, 2U) << name_of(op) << in_place;
        EXPECT_EQ(run_case(communicator, what, few(), kSomeLimit).wrong, 0U) << name_of(op) << in_place;
      }
    }
  });
  testing::expect_no_errors(errors);
}

// --- curves

std::vector<Result> curve(const std::vector<std::pair<Bytes, double>>& points, bool in_place = false) {
  std::vector<Result> results;
  for (const auto& [size, bandwidth] : points) {
    Result result;
    result.size = size;
    result.busbw_GBps = bandwidth;
    result.in_place = in_place;
    results.push_back(result);
  }
  return results;
}

TEST(BenchWarning, AFallPastThePeakNamesItsSizes) {
  // 4 x 8 GPUs: 29.5 GB/s at 32 MiB, 5.3 GB/s from 64 MiB on.
  const auto results = curve({{8, 0.01}, {Bytes{1} << 20, 9}, {Bytes{32} << 20, 29.5}, {Bytes{64} << 20, 5.3}, {Bytes{128} << 20, 5.4}});
  const auto warnings = monotone_warnings(results, 32, 0);
  ASSERT_EQ(warnings.size(), 1U);
  for (const char* text : {"all_reduce", "29.50 GB/s at 32.00 MiB", "5.30 GB/s at 64.00 MiB"}) {
    EXPECT_NE(warnings[0].find(text), std::string::npos) << warnings[0];
  }
}

TEST(BenchWarning, RisingFlatAndSlightlyFallingCurvesPass) {
  EXPECT_TRUE(monotone_warnings(curve({{8, 1}, {16, 2}, {32, 3}}), 2, 0).empty());
  EXPECT_TRUE(monotone_warnings(curve({{8, 3}, {16, 3}}), 2, 0).empty());
  EXPECT_TRUE(monotone_warnings(curve({{8, 1}, {16, 30}, {32, 21}}), 2, 0).empty());
  EXPECT_TRUE(monotone_warnings(curve({{8, 1}}), 2, 0).empty());
  EXPECT_TRUE(monotone_warnings({}, 2, 0).empty());
  // A dip before the peak is no fall past it.
  EXPECT_TRUE(monotone_warnings(curve({{8, 10}, {16, 1}, {32, 30}}), 2, 0).empty());
}

TEST(BenchWarning, CurvesOfDifferentFormsAreApartAndOrderDoesNotMatter) {
  auto results = curve({{32, 1}, {16, 30}});
  const auto others = curve({{64, 0.5}}, true);
  results.insert(results.end(), others.begin(), others.end());
  EXPECT_EQ(monotone_warnings(results, 2, 0).size(), 1U);
}

TEST(BenchWarning, LeavingTheCacheIsSaid) {
  const auto results = curve({{Bytes{1} << 20, 90}, {Bytes{64} << 20, 16}});
  EXPECT_NE(monotone_warnings(results, 2, Bytes{32} << 20).at(0).find("last-level cache"), std::string::npos);
  EXPECT_EQ(monotone_warnings(results, 2, 0).at(0).find("last-level cache"), std::string::npos);
  const auto beyond = curve({{Bytes{64} << 20, 16}, {Bytes{256} << 20, 4}});
  EXPECT_EQ(monotone_warnings(beyond, 2, Bytes{32} << 20).at(0).find("last-level cache"), std::string::npos);
}

// --- the command

const std::map<std::string, std::string> kNoLauncher{{"RANK", ""}, {"WORLD_SIZE", ""}, {"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", ""}};

TEST(BenchCommand, JsonHasTheContractsKeysAndNothingElseOnStandardOutput) {
  Program program({"bench", "--ranks", "2", "--op", "all_reduce,broadcast,barrier", "--sizes", "8,64K", "--dtype", "bfloat16", "--iters", "2", "--warmup", "0", "--json"},
                  kNoLauncher);
  ASSERT_EQ(program.wait(), 0) << program.err();
  const std::set<std::string> keys{"op",     "size",   "count",  "dtype",      "redop",      "root",  "inplace",
                                   "time_us", "p50_us", "p99_us", "algbw_GBps", "busbw_GBps", "wrong", "limit_fraction"};
  std::vector<std::string> cases;
  for (std::size_t at = 0; at < program.out().size();) {
    const std::size_t end = program.out().find('\n', at);
    const auto line = nlohmann::json::parse(program.out().substr(at, end - at));
    at = end + 1;
    std::set<std::string> found;
    for (const auto& [key, value] : line.items()) found.insert(key);
    EXPECT_EQ(found, keys);
    EXPECT_EQ(line.at("wrong"), 0);
    EXPECT_TRUE(line.at("inplace").is_boolean());
    EXPECT_NEAR(line.at("algbw_GBps").get<double>(), line.at("size").get<double>() / line.at("time_us").get<double>() / 1e3, 1e-9);
    cases.push_back(line.at("op").get<std::string>() + " " + std::to_string(line.at("size").get<int>()) + " " + std::to_string(line.at("count").get<int>()) + " " +
                    line.at("redop").get<std::string>() + " " + std::to_string(line.at("root").get<int>()) + (line.at("inplace").get<bool>() ? " in" : " out"));
  }
  EXPECT_EQ(cases, (std::vector<std::string>{"all_reduce 8 4 sum -1 out", "all_reduce 8 4 sum -1 in", "all_reduce 65536 32768 sum -1 out",
                                             "all_reduce 65536 32768 sum -1 in", "broadcast 8 4 none 0 in", "broadcast 65536 32768 none 0 in", "barrier 0 0 none -1 out"}));
}

TEST(BenchCommand, TheTableHasARowASizeAndAFooter) {
  Program program({"bench", "--ranks", "1", "--op", "all_gather", "--sizes", "64", "--iters", "1", "--cold"}, kNoLauncher);
  ASSERT_EQ(program.wait(), 0) << program.err();
  for (const char* text : {"# 1 ranks", "past the last-level cache", "#wrong", "          64           16  float32   none   -1 ", "# Out of bounds values : 0 OK",
                           "# Avg bus bandwidth    : "}) {
    EXPECT_NE(program.out().find(text), std::string::npos) << text << " in\n" << program.out();
  }
}

TEST(BenchCommand, MistakesAreOneLineAndExitTwoBeforeAnyRankStarts) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes{
      {{"--op", "allreduce"}, "Did you mean all_reduce?"},
      {{"--sizes", "8:4"}, "ends before it begins"},
      {{"--dtype", "float33"}, "Did you mean float32?"},
      {{"--redop", "summ"}, "Did you mean sum?"},
      {{"--redop", "band"}, "doesn't exist"},
      {{"--root", "2"}, "none of the 2 ranks"},
      {{"--iters", "0"}, "--iters"},
      {{"--device", "cuda"}, "--device cuda"},
      {{"--device", "tpu"}, "unknown device"},
      {{"--ranks", "0"}, "--ranks"},
  };
  for (const auto& [arguments, says] : mistakes) {
    std::vector<std::string> words{"bench"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    Program program(words, kNoLauncher);
    EXPECT_EQ(program.wait(), 2) << says;
    EXPECT_EQ(program.err().rfind("error: ", 0), 0U) << program.err();
    EXPECT_EQ(std::count(program.err().begin(), program.err().end(), '\n'), 1) << program.err();
    EXPECT_NE(program.err().find(says), std::string::npos) << program.err();
    EXPECT_EQ(program.out(), "");
  }
}

TEST(BenchCommand, RanksAreTheLaunchersWhereThereIsOne) {
  Program program({"bench", "--ranks", "3"}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(program.wait(), 2);
  EXPECT_NE(program.err().find("--ranks 3 differs from the 2 ranks that torchrun started"), std::string::npos) << program.err();
}

// 192.0.2.0/24 is kept for documentation, so no interface has it.
TEST(BenchCommand, RankZeroMustRunWhereMasterAddrIs) {
  Program program({"bench", "--op", "all_reduce", "--sizes", "8"}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}, {"MASTER_ADDR", "192.0.2.77"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(program.wait(), 2);
  for (const char* part : {"192.0.2.77:29500", "no interface", "Rank 0 must run on the host that MASTER_ADDR names"}) EXPECT_NE(program.err().find(part), std::string::npos) << program.err();
}

}  // namespace
}  // namespace wirewise::bench
