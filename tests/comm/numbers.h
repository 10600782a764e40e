// Numbers of every type for tests: written and read through double, rounded independently of the library, and reduced by a plain reference
// of the canonical order.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "wirewise/base/dtype.h"
#include "wirewise/comm/communicator.h"

namespace wirewise::testing {

inline constexpr DType kAllTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt8,
                                      DType::kUInt8,   DType::kInt16,   DType::kInt32,   DType::kInt64,    DType::kBool};
inline constexpr Reduction kAllReductions[] = {Reduction::kSum, Reduction::kAverage, Reduction::kProduct, Reduction::kMin,
                                               Reduction::kMax, Reduction::kBitAnd,  Reduction::kBitOr,   Reduction::kBitXor};

[[nodiscard]] inline bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

[[nodiscard]] inline bool is_bitwise(Reduction op) {
  return op == Reduction::kBitAnd || op == Reduction::kBitOr || op == Reduction::kBitXor;
}

[[nodiscard]] inline bool exists(DType dtype, Reduction op) {
  return !(is_bitwise(op) && is_floating(dtype)) && !(op == Reduction::kAverage && dtype == DType::kBool);
}

/// Rounds to a binary format of `digits` significant bits whose smallest normal exponent is `lowest` (value 2^lowest), to nearest even.
[[nodiscard]] inline double rounded_to(double value, int digits, int lowest, double largest) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);  // value = m * 2^exponent, 0.5 <= m < 1
  const int unit = std::max(exponent, lowest + 1) - digits;
  const double result = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  return std::fabs(result) > largest ? std::copysign(std::numeric_limits<double>::infinity(), value) : result;
}

[[nodiscard]] inline double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::kFloat16: return rounded_to(value, 11, -14, 65504.0);
    case DType::kBFloat16: return rounded_to(value, 8, -126, 3.3895313892515355e38);
    case DType::kFloat32: return static_cast<double>(static_cast<float>(value));
    default: return value;
  }
}

/// The value of a 16-bit float by its fields.
[[nodiscard]] inline double half_value(std::uint16_t bits, int fraction_bits, int bias) {
  const int exponent_bits = 15 - fraction_bits;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

template <typename T>
[[nodiscard]] T read_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void write_as(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

/// Element `i` of a buffer; int64 beyond 2^53 loses digits.
[[nodiscard]] inline double read_number(DType dtype, const std::byte* base, std::size_t i) {
  const std::byte* const at = base + i * size_of(dtype);
  switch (dtype) {
    case DType::kFloat32: return static_cast<double>(read_as<float>(at));
    case DType::kFloat64: return read_as<double>(at);
    case DType::kFloat16: return half_value(read_as<std::uint16_t>(at), 10, 15);
    case DType::kBFloat16: return half_value(read_as<std::uint16_t>(at), 7, 127);
    case DType::kInt8: return read_as<std::int8_t>(at);
    case DType::kUInt8: return read_as<std::uint8_t>(at);
    case DType::kInt16: return read_as<std::int16_t>(at);
    case DType::kInt32: return read_as<std::int32_t>(at);
    case DType::kInt64: return static_cast<double>(read_as<std::int64_t>(at));
    case DType::kBool: return read_as<std::uint8_t>(at) != 0 ? 1 : 0;
  }
  return 0;
}

/// Writes a value that the type can hold.
inline void write_number(DType dtype, std::byte* base, std::size_t i, double value) {
  std::byte* const at = base + i * size_of(dtype);
  const auto half = [&](int fraction_bits, int bias) {
    const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
    const double magnitude = std::fabs(value);
    if (magnitude == 0) return sign;
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    const int unit = std::max(exponent - 1, 1 - bias);  // the exponent of a normal number with these digits
    auto bits = static_cast<int>(std::ldexp(magnitude, fraction_bits - unit));
    // Normal numbers carry their hidden bit into the exponent field.
    bits += (unit + bias - 1) << fraction_bits;
    return static_cast<std::uint16_t>(sign | bits);
  };
  switch (dtype) {
    case DType::kFloat32: return write_as(at, static_cast<float>(value));
    case DType::kFloat64: return write_as(at, value);
    case DType::kFloat16: return write_as(at, half(10, 15));
    case DType::kBFloat16: return write_as(at, half(7, 127));
    case DType::kInt8: return write_as(at, static_cast<std::int8_t>(value));
    case DType::kUInt8: return write_as(at, static_cast<std::uint8_t>(value));
    case DType::kInt16: return write_as(at, static_cast<std::int16_t>(value));
    case DType::kInt32: return write_as(at, static_cast<std::int32_t>(value));
    case DType::kInt64: return write_as(at, static_cast<std::int64_t>(value));
    case DType::kBool: return write_as(at, static_cast<std::uint8_t>(value != 0 ? 1 : 0));
  }
}

/// A number for (seed, rank, element), the same wherever it is asked for: splitmix64.
[[nodiscard]] inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t rank, std::uint64_t i) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15u + rank * 0xd1342543de82ef95u + i * 0x2545f4914f6cdd1du + 1;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// The input of one rank: floats in (-2, 2) of the type's precision, integers small enough that no reduction here wraps around.
[[nodiscard]] inline double input_number(DType dtype, std::uint64_t seed, int rank, std::size_t i) {
  const std::uint64_t bits = random_bits(seed, static_cast<std::uint64_t>(rank), i);
  if (is_floating(dtype)) return round_to(dtype, static_cast<double>(bits >> 11) * 0x1p-51 - 2.0);
  if (dtype == DType::kBool) return static_cast<double>(bits & 1);
  if (dtype == DType::kUInt8) return static_cast<double>(bits % 3);
  return static_cast<double>(bits % 3) - 1;
}

/// Combines two numbers in the type that sums are kept in.
[[nodiscard]] inline double combine(DType dtype, Reduction op, double a, double b) {
  const auto bits = [&](auto function) { return static_cast<double>(function(static_cast<std::int64_t>(a), static_cast<std::int64_t>(b))); };
  const bool truth = dtype == DType::kBool;
  double result = 0;
  switch (op) {
    case Reduction::kSum:
    case Reduction::kAverage: result = truth ? std::fmax(a, b) : a + b; break;
    case Reduction::kProduct: result = a * b; break;
    case Reduction::kMin: result = std::fmin(a, b); break;
    case Reduction::kMax: result = std::fmax(a, b); break;
    case Reduction::kBitAnd: result = bits([](auto x, auto y) { return x & y; }); break;
    case Reduction::kBitOr: result = bits([](auto x, auto y) { return x | y; }); break;
    case Reduction::kBitXor: result = bits([](auto x, auto y) { return x ^ y; }); break;
  }
  if (dtype == DType::kInt8) return static_cast<double>(static_cast<std::int8_t>(static_cast<std::int64_t>(result)));
  if (dtype == DType::kUInt8) return static_cast<double>(static_cast<std::uint8_t>(static_cast<std::int64_t>(result)));
  // Sums and products of two float32 (and of two 16-bit floats) are rounded once by going through double.
  return dtype == DType::kFloat64 || !is_floating(dtype) ? result : static_cast<double>(static_cast<float>(result));
}

/// The canonical tree, written as its definition.
[[nodiscard]] inline double tree(DType dtype, Reduction op, const std::vector<double>& values, std::size_t low, std::size_t high) {
  const std::size_t n = high - low;
  if (n == 1) return values[low];
  std::size_t half = 1;
  while (half * 2 < n) half *= 2;
  return combine(dtype, op, tree(dtype, op, values, low, low + half), tree(dtype, op, values, low + half, high));
}

/// What a reduction of one element over all ranks gives, unrounded for 16-bit types.
[[nodiscard]] inline double reduced_number(DType dtype, Reduction op, const std::vector<double>& values) {
  double result = tree(dtype, op, values, 0, values.size());
  if (op == Reduction::kAverage) {
    result /= static_cast<double>(values.size());
    if (!is_floating(dtype)) return std::trunc(result);
    if (dtype != DType::kFloat64) result = static_cast<double>(static_cast<float>(result));
  }
  return result;
}

}  // namespace wirewise::testing
