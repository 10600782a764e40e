#include "wirewise/train/checkpoint_format.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <limits>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/train/checkpoint_files.h"

namespace wirewise::checkpoint {
namespace {

bool is_numbered(const std::string& name, std::string_view before, std::string_view after) {
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after)) return false;
  const auto digits = std::string_view(name).substr(before.size(), name.size() - before.size() - after.size());
  return std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<std::pair<std::uint64_t, std::filesystem::path>> folders_by_step(const std::filesystem::path& folder) {
  std::vector<std::pair<std::uint64_t, std::filesystem::path>> found;
  std::error_code error;
  std::filesystem::directory_iterator item(folder, error);
  for (const std::filesystem::directory_iterator end; !error && item != end; item.increment(error)) {
    const auto step = step_of(item->path().filename().string());
    if (step) found.emplace_back(*step, item->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::string folder_name(std::uint64_t step) { return fmt::format("step-{:06}", step); }

std::optional<std::uint64_t> step_of(const std::string& name) {
  if (!is_numbered(name, "step-", "")) return std::nullopt;
  const auto step = parse_integer(std::string_view(name).substr(5));
  if (!step || *step < 0 || folder_name(static_cast<std::uint64_t>(*step)) != name) return std::nullopt;
  return static_cast<std::uint64_t>(*step);
}

bool is_temporary(const std::string& name) {
  const auto infix = name.find(kTemporaryInfix);
  return name.starts_with(".") && infix != std::string::npos && step_of(name.substr(1, infix - 1)).has_value();
}

std::string tensors_name(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }
std::string list_name(int rank) { return fmt::format("rank-{:05}.json", rank); }

bool is_own_file(const std::string& name) {
  return name == kIndexName || name == kMarkerName || is_numbered(name, "rank-", ".safetensors") || is_numbered(name, "rank-", ".json");
}

std::string checksum(const void* data, std::size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string marker_text(std::string_view index) {
  return fmt::format("wirewise checkpoint 1\nindex {}\n", checksum(index.data(), index.size()));
}

bool is_complete(const std::filesystem::path& checkpoint) {
  try {
    return read_file(checkpoint / kMarkerName, 4096) == marker_text(read_file(checkpoint / kIndexName, kMostIndex));
  } catch (const Error&) {
    return false;
  }
}

std::string_view safetensors_dtype(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat32: return "F32";
    case DType::kFloat64: return "F64";
    case DType::kFloat16: return "F16";
    case DType::kBFloat16: return "BF16";
    case DType::kInt8: return "I8";
    case DType::kUInt8: return "U8";
    case DType::kInt16: return "I16";
    case DType::kInt32: return "I32";
    case DType::kInt64: return "I64";
    case DType::kBool: return "BOOL";
  }
  return "U8";
}

std::optional<std::uint64_t> numel_of(const std::vector<std::int64_t>& shape, DType dtype) noexcept {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  std::uint64_t numel = 1;
  bool empty = false;
  for (const auto extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) empty = true;
    if (extent > 0 && __builtin_mul_overflow(numel, static_cast<std::uint64_t>(extent), &numel)) return std::nullopt;
  }
  if (numel > kMost / size_of(dtype)) return std::nullopt;
  return empty ? 0 : numel;
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace wirewise::checkpoint

namespace wirewise {

std::vector<std::filesystem::path> complete_checkpoints(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> out;
  for (const auto& [step, path] : checkpoint::folders_by_step(folder)) {
    if (checkpoint::is_complete(path)) out.push_back(path);
  }
  return out;
}

std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder) {
  auto found = checkpoint::folders_by_step(folder);
  for (auto item = found.rbegin(); item != found.rend(); ++item) {
    if (checkpoint::is_complete(item->second)) return item->second;
  }
  return std::nullopt;
}

}  // namespace wirewise
