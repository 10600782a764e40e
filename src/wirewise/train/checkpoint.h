// Sharded checkpoints: fragments of global unpadded tensors in safetensors files with checksums, an index, and a completion marker written
// last. A folder step-N appears under its final name only when everything in it is on disk; a torn save never hides an older one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "wirewise/base/dtype.h"
#include "wirewise/base/units.h"

namespace wirewise {

/// A run of elements of a global tensor, flattened in row-major order.
struct Fragment {
  std::string tensor;                 // "model/transformer.h.0.attn.c_attn.weight", "exp_avg/…", "exp_avg_sq/…"
  std::vector<std::int64_t> shape;    // of the global tensor
  std::uint64_t offset = 0;           // first element
  std::uint64_t length = 0;           // elements
  DType dtype = DType::kFloat32;
  const void* data = nullptr;         // length elements
};

/// What besides tensors makes a resume exact. Free-form strings so that later features need no new format; numbers as text.
using TrainState = std::map<std::string, std::string>;

/// Called between the phases of a save by all ranks: waits for all, and throws on every rank when any rank passes a failure text. `text` empty: fine.
using AgreeFunction = std::function<void(const std::string& failure)>;

/// Writes this rank's fragments and, on rank 0, the index; collective through `agree`. `folder` is the parent: the result is
/// folder/step-N. Keeps the `keep` newest complete checkpoints (0: all). Returns the final path. On any failure throws with the cause on
/// every rank, and removes what it wrote; older checkpoints stay.
std::filesystem::path save_checkpoint(const std::filesystem::path& folder, std::uint64_t step, int rank, int ranks,
                                      const std::vector<Fragment>& fragments, const TrainState& state, int keep,
                                      const AgreeFunction& agree);

/// The newest complete checkpoint under `folder`; empty when there is none.
[[nodiscard]] std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder);

class CheckpointReader {
 public:
  /// Opens the index. Throws bad input for an incomplete, truncated or hostile checkpoint (names out of the folder, overlapping or
  /// missing ranges).
  explicit CheckpointReader(std::filesystem::path checkpoint);
  struct TensorInfo { std::vector<std::int64_t> shape; DType dtype = DType::kFloat32; std::uint64_t numel = 0; };
  [[nodiscard]] const std::map<std::string, TensorInfo>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] const TrainState& state() const noexcept { return state_; }
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// Reads elements [offset, offset + length) of a tensor into `out`: only the byte ranges needed. Throws bad input when it is absent
  /// or its shape differs from `shape` (naming both), kFailed naming tensor and file when a checksum differs.
  void read(const std::string& tensor, const std::vector<std::int64_t>& shape, std::uint64_t offset, std::uint64_t length, void* out) const;
  /// Reads everything and compares all checksums; returns the tensors (with their files) that differ.
  [[nodiscard]] std::vector<std::string> verify() const;
  /// Bytes read from files so far by this reader.
  [[nodiscard]] Bytes bytes_read() const noexcept { return bytes_read_; }

 private:
  struct Piece;
  std::filesystem::path folder_;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::vector<Piece>> pieces_;
  TrainState state_;
  std::uint64_t step_ = 0;
  int ranks_ = 0;
  mutable Bytes bytes_read_ = 0;
};

}  // namespace wirewise
