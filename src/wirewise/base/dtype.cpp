#include "wirewise/base/dtype.h"

#include <array>
#include <utility>

namespace wirewise {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 10> kNames{{
    {DType::kFloat32, "float32"},
    {DType::kFloat64, "float64"},
    {DType::kFloat16, "float16"},
    {DType::kBFloat16, "bfloat16"},
    {DType::kInt8, "int8"},
    {DType::kUInt8, "uint8"},
    {DType::kInt16, "int16"},
    {DType::kInt32, "int32"},
    {DType::kInt64, "int64"},
    {DType::kBool, "bool"},
}};

constexpr std::array<std::pair<DType, std::string_view>, 4> kShortNames{{
    {DType::kFloat32, "fp32"},
    {DType::kFloat64, "fp64"},
    {DType::kFloat16, "fp16"},
    {DType::kBFloat16, "bf16"},
}};

}  // namespace

std::string_view name_of(DType dtype) noexcept {
  for (const auto& [value, name] : kNames) {
    if (value == dtype) return name;
  }
  return "unknown";
}

std::optional<DType> parse_dtype(std::string_view text) noexcept {
  for (const auto& [value, name] : kNames) {
    if (name == text) return value;
  }
  for (const auto& [value, name] : kShortNames) {
    if (name == text) return value;
  }
  return std::nullopt;
}

}  // namespace wirewise
