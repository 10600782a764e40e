// Names, checksums and the index of a checkpoint: what the writer and the reader must agree on. Private to train/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/base/dtype.h"
#include "wirewise/train/checkpoint.h"

namespace wirewise::checkpoint {

inline constexpr std::uint64_t kChunk = 256 * kKiB;                 // bytes under one checksum
inline constexpr std::uint64_t kMostHeader = 100'000'000;           // safetensors' own limit
inline constexpr std::uint64_t kMostIndex = 4 * kGiB;
inline constexpr std::string_view kIndexName = "index.json";
inline constexpr std::string_view kMarkerName = "COMPLETE";
inline constexpr std::string_view kTemporaryInfix = ".tmp-";        // ".step-000012.tmp-…"

[[nodiscard]] std::string folder_name(std::uint64_t step);          // "step-000012"
[[nodiscard]] std::optional<std::uint64_t> step_of(const std::string& folder_name);
[[nodiscard]] bool is_temporary(const std::string& folder_name);    // ".step-….tmp-…"
[[nodiscard]] std::string tensors_name(int rank);                   // "rank-00000.safetensors"
[[nodiscard]] std::string list_name(int rank);                      // "rank-00000.json": for rank 0, until the index stands
/// True for the names of the files that a checkpoint folder may hold.
[[nodiscard]] bool is_own_file(const std::string& name);

/// XXH3-128 in 32 hexadecimal digits.
[[nodiscard]] std::string checksum(const void* data, std::size_t bytes);
[[nodiscard]] std::string marker_text(std::string_view index);      // contents of COMPLETE

/// The folder holds a marker that fits its index.
[[nodiscard]] bool is_complete(const std::filesystem::path& checkpoint);

[[nodiscard]] std::string_view safetensors_dtype(DType dtype) noexcept;  // "F32"

/// Elements of a shape. Empty when an extent is negative, or elements or their bytes don't fit in 63 bits.
[[nodiscard]] std::optional<std::uint64_t> numel_of(const std::vector<std::int64_t>& shape, DType dtype) noexcept;

/// "[64, 768]".
[[nodiscard]] std::string shape_text(const std::vector<std::int64_t>& shape);

/// A fragment as an index lists it.
struct Entry {
  std::string tensor;
  std::vector<std::int64_t> shape;
  DType dtype = DType::kFloat32;
  std::uint64_t offset = 0, length = 0;
  std::size_t file = 0;
  std::uint64_t position = 0;
  std::vector<std::string> checksums;
};

struct FileEntry {
  std::string name;
  Bytes bytes = 0;
  std::string header_checksum;
};

struct Index {
  std::uint64_t step = 0;
  std::uint64_t chunk = kChunk;
  TrainState state;
  std::vector<FileEntry> files;   // by rank
  std::vector<Entry> entries;     // sorted by tensor and offset once checked
};

[[nodiscard]] std::string write_index(const Index& index);
/// Throws bad input naming `origin` when the text is no index of ours.
[[nodiscard]] Index read_index(std::string_view text, const std::string& origin);

/// Sorts the entries and proves: every tensor has one shape and dtype, and its elements are held exactly once; names of files are plain;
/// positions are bounded and disjoint; checksums are as many as chunks. Throws bad input naming `origin`, tensor and range.
void check_index(Index& index, const std::string& origin);

}  // namespace wirewise::checkpoint
