// The loops themselves, in plain C++. Each instruction set's file includes this text inside a namespace and target of its own, so the
// compiler vectorises one source several times. No include here: what the text needs stands above the inclusion.

#if defined(__clang__)
#define WIREWISE_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define WIREWISE_LOOP _Pragma("GCC ivdep")
#endif

// Elements at any address, of memory that callers know under other types.
template <typename T>
struct Loose {
  typedef T type __attribute__((aligned(1), may_alias));
};

struct Half {
  std::uint16_t bits;
};
struct BFloat {
  std::uint16_t bits;
};
struct Truth {
  std::uint8_t bits;
};

template <typename T>
struct Element {  // float, double and the integers: stored as they are combined
  using Stored = T;
  using Accumulator = T;
  static Accumulator load(Stored value) { return value; }
  static Stored store(Accumulator value) { return value; }
};

template <>
struct Element<BFloat> {
  using Stored = std::uint16_t;
  using Accumulator = float;
  static float load(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  static std::uint16_t store(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const std::uint32_t quiet = (bits >> 16) | 0x40u;
    return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
};

template <>
struct Element<Half> {
  using Stored = std::uint16_t;
  using Accumulator = float;
  static float load(std::uint16_t bits) {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fffu) << 13;
    const std::uint32_t normal = magnitude + (112u << 23);
    // A subnormal half is m * 2^-24: put m below the exponent of 2^-14 and take 2^-14 away; no float32 subnormal is met.
    const auto subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude + (113u << 23)) - std::bit_cast<float>(113u << 23));
    const std::uint32_t special = magnitude | 0x7f800000u;
    std::uint32_t result = magnitude < (1u << 23) ? subnormal : normal;
    result = magnitude >= (31u << 23) ? special : result;
    return std::bit_cast<float>(result | sign);
  }
  static std::uint16_t store(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    // Normal: drop 13 bits to nearest even, rebias the exponent; a carry moves up into the exponent, at the top into infinity.
    const std::uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
    // Below 2^-14: adding 0.5 aligns the last kept bit with float32's, so the addition itself rounds to nearest even.
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - (126u << 23);
    const std::uint32_t quiet = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    std::uint32_t result = magnitude < (113u << 23) ? subnormal : normal;
    result = magnitude >= 0x477ff000u ? 0x7c00u : result;  // 65520 and above round to infinity
    result = magnitude > 0x7f800000u ? quiet : result;
    return static_cast<std::uint16_t>(result | sign);
  }
};

template <>
struct Element<Truth> {
  using Stored = std::uint8_t;
  using Accumulator = std::uint8_t;
  static std::uint8_t load(std::uint8_t value) { return value != 0 ? 1 : 0; }
  static std::uint8_t store(std::uint8_t value) { return value; }
};

// Integers wrap around: they are combined as unsigned numbers no narrower than int.
template <typename T>
using Wrapping = std::conditional_t<(sizeof(T) > 4), std::uint64_t, std::uint32_t>;

struct Sum {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return a + b;
    } else {
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    }
  }
};
struct Product {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return a * b;
    } else {
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    }
  }
};
struct Min {  // NaN where either is
  template <typename T>
  static T apply(T a, T b) {
    return (a < b || a != a) ? a : b;
  }
};
struct Max {
  template <typename T>
  static T apply(T a, T b) {
    return (a > b || a != a) ? a : b;
  }
};
struct BitAnd {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct BitOr {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct BitXor {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

template <typename T, typename Op>
struct Tree {
  using Stored = typename Loose<typename Element<T>::Stored>::type;
  using Accumulator = typename Element<T>::Accumulator;
  using Out = typename Loose<Accumulator>::type;

  static const Stored* at(const std::byte* source, std::size_t first) { return reinterpret_cast<const Stored*>(source) + first; }

  static void combine(void* accumulators, const std::byte* const* sources, int ranks, std::size_t first, std::size_t count) {
    Out* const out = static_cast<Out*>(accumulators);
    const Stored* const a = at(sources[0], first);
    if (ranks == 1) {
      WIREWISE_LOOP
      for (std::size_t i = 0; i < count; ++i) out[i] = Element<T>::load(a[i]);
      return;
    }
    const Stored* const b = at(sources[1], first);
    if (ranks == 2) {
      WIREWISE_LOOP
      for (std::size_t i = 0; i < count; ++i) out[i] = Op::template apply<Accumulator>(Element<T>::load(a[i]), Element<T>::load(b[i]));
      return;
    }
    if (ranks == 4) {
      const Stored* const c = at(sources[2], first);
      const Stored* const d = at(sources[3], first);
      WIREWISE_LOOP
      for (std::size_t i = 0; i < count; ++i) {
        const Accumulator left = Op::template apply<Accumulator>(Element<T>::load(a[i]), Element<T>::load(b[i]));
        const Accumulator right = Op::template apply<Accumulator>(Element<T>::load(c[i]), Element<T>::load(d[i]));
        out[i] = Op::template apply<Accumulator>(left, right);
      }
      return;
    }
    int half = 1;
    while (half * 2 < ranks) half *= 2;
    // Both halves go to scratch first: `accumulators` may be a source of the right half.
    Accumulator left[kReduceBlock];
    Accumulator right[kReduceBlock];
    combine(left, sources, half, first, count);
    combine(right, sources + half, ranks - half, first, count);
    WIREWISE_LOOP
    for (std::size_t i = 0; i < count; ++i) out[i] = Op::template apply<Accumulator>(left[i], right[i]);
  }
};

template <typename Accumulator>
Accumulator divided(Accumulator value, int divisor) {
  return static_cast<Accumulator>(value / static_cast<Accumulator>(divisor));
}

// To: the element type that is stored. 16-bit floats also store as float.
template <typename From, typename To>
void finish(std::byte* bytes, const void* accumulators, std::size_t count, int divisor, bool accumulate) {
  using Accumulator = typename Element<From>::Accumulator;
  using Stored = typename Loose<typename Element<To>::Stored>::type;
  using Read = typename Loose<Accumulator>::type;
  Stored* const out = reinterpret_cast<Stored*>(bytes);
  const Read* const in = static_cast<const Read*>(accumulators);
  if constexpr (std::is_same_v<To, float>) {
    if (accumulate) {
      if (divisor != 0) {
        WIREWISE_LOOP
        for (std::size_t i = 0; i < count; ++i) out[i] = out[i] + divided<Accumulator>(in[i], divisor);
      } else {
        WIREWISE_LOOP
        for (std::size_t i = 0; i < count; ++i) out[i] = out[i] + in[i];
      }
      return;
    }
  }
  (void)accumulate;
  if (divisor != 0) {
    WIREWISE_LOOP
    for (std::size_t i = 0; i < count; ++i) out[i] = Element<To>::store(divided<Accumulator>(in[i], divisor));
  } else {
    WIREWISE_LOOP
    for (std::size_t i = 0; i < count; ++i) out[i] = Element<To>::store(in[i]);
  }
}

template <typename T, bool kBits>
void fill(ReduceKernels& kernels, DType dtype) {
  auto& row = kernels.combine[static_cast<std::size_t>(dtype)];
  const auto set = [&row](Reduction op, ReduceKernels::Combine function) { row[static_cast<std::size_t>(op)] = function; };
  set(Reduction::kSum, &Tree<T, Sum>::combine);
  set(Reduction::kAverage, &Tree<T, Sum>::combine);
  set(Reduction::kProduct, &Tree<T, Product>::combine);
  set(Reduction::kMin, &Tree<T, Min>::combine);
  set(Reduction::kMax, &Tree<T, Max>::combine);
  if constexpr (kBits) {
    set(Reduction::kBitAnd, &Tree<T, BitAnd>::combine);
    set(Reduction::kBitOr, &Tree<T, BitOr>::combine);
    set(Reduction::kBitXor, &Tree<T, BitXor>::combine);
  }
  kernels.finish[static_cast<std::size_t>(dtype)] = &finish<T, T>;
  if constexpr (std::is_same_v<typename Element<T>::Accumulator, float>) {
    kernels.finish_float32[static_cast<std::size_t>(dtype)] = &finish<T, float>;
  }
}

inline ReduceKernels make_kernels() {
  ReduceKernels kernels;
  fill<float, false>(kernels, DType::kFloat32);
  fill<double, false>(kernels, DType::kFloat64);
  fill<Half, false>(kernels, DType::kFloat16);
  fill<BFloat, false>(kernels, DType::kBFloat16);
  fill<std::int8_t, true>(kernels, DType::kInt8);
  fill<std::uint8_t, true>(kernels, DType::kUInt8);
  fill<std::int16_t, true>(kernels, DType::kInt16);
  fill<std::int32_t, true>(kernels, DType::kInt32);
  fill<std::int64_t, true>(kernels, DType::kInt64);
  fill<Truth, true>(kernels, DType::kBool);
  // Truth values: a sum is true where any is, a product where all are; there is no average.
  auto& truth = kernels.combine[static_cast<std::size_t>(DType::kBool)];
  truth[static_cast<std::size_t>(Reduction::kSum)] = &Tree<Truth, BitOr>::combine;
  truth[static_cast<std::size_t>(Reduction::kAverage)] = nullptr;
  return kernels;
}

#undef WIREWISE_LOOP
