// The inner loops of reductions, against an independent reference, for each instruction set that this machine has.
#include "wirewise/comm/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "comm/numbers.h"
#include "wirewise/base/error.h"
#include "wirewise/comm/reduce_kernels.h"

namespace wirewise::comm {
namespace {

using namespace wirewise::testing;

std::vector<const ReduceKernels*> all_kernels() {
  std::vector<const ReduceKernels*> kernels{&portable_kernels()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) kernels.push_back(&avx2_kernels());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    kernels.push_back(&avx512_kernels());
  }
#endif
  return kernels;
}

std::size_t index(DType dtype) { return static_cast<std::size_t>(dtype); }

TEST(Reduce, EqualsTheCanonicalTreeForEveryTypeOperationAndNumberOfRanks) {
  constexpr std::size_t kCount = 2 * kReduceBlock + 77;
  for (const DType dtype : kAllTypes) {
    for (const Reduction op : kAllReductions) {
      if (!exists(dtype, op)) continue;
      for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 11}) {
        // Sources at odd addresses: nothing may assume alignment.
        std::vector<std::vector<std::byte>> inputs;
        std::vector<const std::byte*> sources;
        for (int r = 0; r < ranks; ++r) {
          auto& input = inputs.emplace_back(kCount * 8 + 8);
          std::byte* const data = input.data() + 1 + r % 3;
          for (std::size_t i = 0; i < kCount; ++i) write_number(dtype, data, i, input_number(dtype, 7, r, i));
          sources.push_back(data);
        }
        std::vector<std::byte> out(kCount * 8 + 1);
        std::byte* const target = out.data() + 1;
        reduce({dtype, dtype, op, false}, sources, std::vector<std::byte*>{target}, kCount);
        for (std::size_t i = 0; i < kCount; ++i) {
          std::vector<double> values;
          for (int r = 0; r < ranks; ++r) values.push_back(read_number(dtype, sources[static_cast<std::size_t>(r)], i));
          const double expected = round_to(dtype, reduced_number(dtype, op, values));
          ASSERT_EQ(read_number(dtype, target, i), expected)
              << name_of(dtype) << ", operation " << static_cast<int>(op) << ", " << ranks << " ranks, element " << i;
        }
      }
    }
  }
}

TEST(Reduce, ReadsEvery16BitFloatAsItsFieldsSay) {
  for (const ReduceKernels* const kernels : all_kernels()) {
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      for (unsigned bits = 0; bits < 65536; bits += kReduceBlock) {
        std::vector<std::uint16_t> in(kReduceBlock);
        for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint16_t>(bits + i);
        std::vector<float> wide(kReduceBlock);
        std::vector<std::uint16_t> back(kReduceBlock);
        const auto* const source = reinterpret_cast<const std::byte*>(in.data());
        kernels->combine[index(dtype)][0](wide.data(), &source, 1, 0, in.size());
        kernels->finish[index(dtype)](reinterpret_cast<std::byte*>(back.data()), wide.data(), in.size(), 0, false);
        for (std::size_t i = 0; i < in.size(); ++i) {
          const double expected = read_number(dtype, source, i);
          if (std::isnan(expected)) {
            EXPECT_TRUE(std::isnan(wide[i]));
            EXPECT_TRUE(std::isnan(read_number(dtype, reinterpret_cast<const std::byte*>(back.data()), i)));
          } else {
            EXPECT_EQ(static_cast<double>(wide[i]), expected) << in[i];
            EXPECT_EQ(back[i], in[i]);
          }
        }
      }
    }
  }
}

TEST(Reduce, RoundsToTheNearest16BitFloatTiesToEven) {
  // All float32 of a few exponents around the types' borders, and random ones.
  std::vector<float> values;
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random_bits(3, 0, i));
    float value;
    std::memcpy(&value, &bits, 4);
    if (!std::isnan(value)) values.push_back(value);
  }
  for (const double edge : {65504.0, 65519.996, 65520.0, 65536.0, 0x1p-14, 0x1p-24, 0x1p-25, 0x1.8p-25, 0x1.000002p-25, 0x1p-126, 0x1p-133,
                            0x1p-134, 3.3895313892515355e38, 3.3961775292304601e38, 1.00390625, 1.01171875, 1.00048828125, 1.00146484375}) {
    for (const double sign : {1.0, -1.0}) {
      const auto middle = static_cast<float>(sign * edge);
      values.insert(values.end(), {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 2 * middle)});
    }
  }
  values.insert(values.end(), {0.0F, -0.0F, INFINITY, -INFINITY});
  for (const ReduceKernels* const kernels : all_kernels()) {
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      std::vector<std::uint16_t> out(values.size());
      kernels->finish[index(dtype)](reinterpret_cast<std::byte*>(out.data()), values.data(), values.size(), 0, false);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(read_number(dtype, reinterpret_cast<const std::byte*>(out.data()), i), round_to(dtype, static_cast<double>(values[i])))
            << name_of(dtype) << " of " << values[i];
      }
    }
  }
}

TEST(Reduce, NaNStaysNaN) {
  for (const ReduceKernels* const kernels : all_kernels()) {
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      for (const std::uint32_t bits : {0x7f800001u, 0x7fffffffu, 0x7fc00000u, 0xff800001u, 0xffffffffu}) {
        std::vector<std::byte> out(8);
        kernels->finish[index(dtype)](out.data(), &bits, 1, 0, false);
        EXPECT_TRUE(std::isnan(read_number(dtype, out.data(), 0)));
      }
    }
    for (const Reduction op : {Reduction::kSum, Reduction::kMin, Reduction::kMax}) {
      for (const bool first : {true, false}) {
        const float a = first ? NAN : 1.0F;
        const float b = first ? 1.0F : NAN;
        const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(&a), reinterpret_cast<const std::byte*>(&b)};
        float out = 0;
        kernels->combine[index(DType::kFloat32)][static_cast<std::size_t>(op)](&out, sources, 2, 0, 1);
        EXPECT_TRUE(std::isnan(out));
      }
    }
  }
}

TEST(Reduce, IntegersWrapAround) {
  const auto sum_of = [](DType dtype, auto a, auto b, Reduction op) {
    decltype(a) out{};
    const std::vector<const std::byte*> sources{reinterpret_cast<const std::byte*>(&a), reinterpret_cast<const std::byte*>(&b)};
    reduce({dtype, dtype, op, false}, sources, std::vector<std::byte*>{reinterpret_cast<std::byte*>(&out)}, 1);
    return out;
  };
  EXPECT_EQ(sum_of(DType::kInt8, std::int8_t{127}, std::int8_t{1}, Reduction::kSum), -128);
  EXPECT_EQ(sum_of(DType::kUInt8, std::uint8_t{255}, std::uint8_t{2}, Reduction::kSum), 1);
  EXPECT_EQ(sum_of(DType::kInt16, std::int16_t{-32768}, std::int16_t{-32768}, Reduction::kProduct), 0);
  EXPECT_EQ(sum_of(DType::kInt32, std::int32_t{2147483647}, std::int32_t{1}, Reduction::kSum), std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(sum_of(DType::kInt64, std::numeric_limits<std::int64_t>::max(), std::int64_t{2}, Reduction::kProduct), -2);
}

TEST(Reduce, StoresIntoSeveralTargetsAndAddsWhereAsked) {
  constexpr std::size_t kCount = kReduceBlock + 5;
  std::vector<std::uint16_t> a(kCount, 0x3f80);  // 1
  std::vector<std::uint16_t> b(kCount, 0x3b80);  // 2^-8: the sum needs float32
  std::vector<float> first(kCount, 10.0F);
  std::vector<float> second(kCount, 20.0F);
  const std::vector<const std::byte*> sources{reinterpret_cast<const std::byte*>(a.data()), reinterpret_cast<const std::byte*>(b.data())};
  const std::vector<std::byte*> targets{reinterpret_cast<std::byte*>(first.data()), reinterpret_cast<std::byte*>(second.data())};
  reduce({DType::kBFloat16, DType::kFloat32, Reduction::kSum, true}, sources, targets, kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(first[i], 11.00390625F);
    EXPECT_EQ(second[i], 21.00390625F);
  }
  reduce({DType::kBFloat16, DType::kFloat32, Reduction::kAverage, false}, sources, targets, kCount);
  EXPECT_EQ(first[kCount - 1], 0.501953125F);
  EXPECT_EQ(second[0], 0.501953125F);
}

TEST(Reduce, PastTheCachesHasTheSameBitsAtAnyAddressInPlaceOrApart) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat64, DType::kInt8}) {
    const std::size_t element = size_of(dtype);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{257}, std::size_t{5003}}) {
      for (const std::size_t shift : {std::size_t{0}, std::size_t{1}, std::size_t{4}, std::size_t{60}, std::size_t{64}}) {
        for (const Reduction op : {Reduction::kSum, Reduction::kAverage}) {
          std::vector<std::vector<std::byte>> inputs(3, std::vector<std::byte>(count * element + 200));
          std::vector<const std::byte*> sources;
          for (int r = 0; r < 3; ++r) {
            std::byte* const data = inputs[static_cast<std::size_t>(r)].data() + shift;
            for (std::size_t i = 0; i < count; ++i) write_number(dtype, data, i, input_number(dtype, 11, r, i));
            sources.push_back(data);
          }
          std::vector<std::byte> plain(count * element + 1);
          reduce({dtype, dtype, op, false}, sources, std::vector<std::byte*>{plain.data()}, count);
          std::vector<std::byte> apart(count * element + 400, std::byte{0xee});
          std::byte* const out = apart.data() + 100 + shift;
          std::byte* const in_place = inputs[1].data() + shift;
          reduce({dtype, dtype, op, false}, sources, std::vector<std::byte*>{out, in_place}, count, true);
          EXPECT_EQ(std::memcmp(out, plain.data(), count * element), 0) << name_of(dtype) << ' ' << count << " at " << shift;
          EXPECT_EQ(std::memcmp(in_place, plain.data(), count * element), 0) << name_of(dtype) << ' ' << count << " in place at " << shift;
          for (std::size_t i = 0; i < 100; ++i) {
            ASSERT_EQ(out[-1 - static_cast<std::ptrdiff_t>(i)], std::byte{0xee});
            ASSERT_EQ(out[count * element + i], std::byte{0xee});
          }
        }
      }
    }
  }
}

TEST(Reduce, RefusesWhatItCannotDo) {
  const auto refused = [](ReduceKind kind) {
    try {
      check_reduce_kind(kind, "all_reduce");
    } catch (const Error& error) {
      return error.kind() == ErrorKind::kBadInput && !error.remedy().empty();
    }
    return false;
  };
  EXPECT_TRUE(refused({DType::kFloat32, DType::kFloat32, Reduction::kBitAnd, false}));
  EXPECT_TRUE(refused({DType::kBool, DType::kBool, Reduction::kAverage, false}));
  EXPECT_TRUE(refused({DType::kFloat32, DType::kBFloat16, Reduction::kSum, false}));
  EXPECT_TRUE(refused({DType::kFloat64, DType::kFloat32, Reduction::kSum, false}));
  EXPECT_TRUE(refused({DType::kBFloat16, DType::kBFloat16, Reduction::kSum, true}));
  EXPECT_FALSE(refused({DType::kBFloat16, DType::kFloat32, Reduction::kAverage, true}));
  EXPECT_FALSE(refused({DType::kInt8, DType::kInt8, Reduction::kBitXor, false}));
}

}  // namespace
}  // namespace wirewise::comm
