// Element types that cross module borders: collectives, model shapes, checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace wirewise {

enum class DType : std::uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kUInt8,
  kInt16,
  kInt32,
  kInt64,
  kBool,
};

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64: return 8;
    case DType::kFloat32:
    case DType::kInt32: return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16: return 2;
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kBool: return 1;
  }
  return 0;
}

/// The names users write: float32, float64, float16, bfloat16, int8, uint8, int16, int32, int64, bool.
[[nodiscard]] std::string_view name_of(DType dtype) noexcept;

/// Reads a name as name_of writes it, or the short forms fp32, fp64, fp16, bf16. Empty when unknown.
[[nodiscard]] std::optional<DType> parse_dtype(std::string_view name) noexcept;

[[nodiscard]] constexpr bool is_floating(DType dtype) noexcept {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

}  // namespace wirewise
