// Sharded checkpoints: fragments of global unpadded tensors in safetensors files with checksums, an index, and a completion marker written
// last. A folder step-N appears under its final name only when everything in it is on disk; a torn save never hides an older one.
//
// folder/step-000012/
//   rank-00000.safetensors …   one a rank: its fragments, "name" where it holds a whole tensor, else "name[begin:end]" of the flat tensor
//   index.json                 step, ranks, state, files, tensors, and of each fragment its place and checksums (XXH3-128 of every 256 KiB)
//   COMPLETE                   the checksum of index.json
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

/// What besides tensors makes a resume exact. Free-form strings (UTF-8) so that later features need no new format; numbers as text.
using TrainState = std::map<std::string, std::string>;

/// Called between the phases of a save by all ranks: waits for all, and throws on every rank when any rank passes a failure text, naming that
/// rank. Empty: fine.
using AgreeFunction = std::function<void(const std::string& failure)>;

/// Writes this rank's fragments and, on rank 0, the index; collective through `agree`. `folder` is the parent: the result is
/// folder/step-N, which takes the place of an older checkpoint of that step at once. Over all ranks the fragments must hold each element of
/// each tensor exactly once: what several ranks hold alike, one passes. Keeps the `keep` newest complete checkpoints (0: all). Returns the
/// final path. On any failure throws with the cause on every rank, and removes what it wrote; older checkpoints stay. Leftovers of saves
/// that were killed are removed. Throws bad input when another process is saving into the same folder.
std::filesystem::path save_checkpoint(const std::filesystem::path& folder, std::uint64_t step, int rank, int ranks,
                                      const std::vector<Fragment>& fragments, const TrainState& state, int keep,
                                      const AgreeFunction& agree);

/// The newest complete checkpoint under `folder` (its marker is there and fits its index); empty when there is none.
[[nodiscard]] std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder);

/// All complete checkpoints under `folder`, oldest step first.
[[nodiscard]] std::vector<std::filesystem::path> complete_checkpoints(const std::filesystem::path& folder);

/// Reads a checkpoint. Not safe for use by several threads at once.
class CheckpointReader {
 public:
  /// Opens the index. Throws bad input for an incomplete, truncated or hostile checkpoint (names out of the folder, overlapping or
  /// missing ranges, no ranks).
  explicit CheckpointReader(std::filesystem::path checkpoint);
  struct TensorInfo {
    std::vector<std::int64_t> shape;
    DType dtype = DType::kFloat32;
    std::uint64_t numel = 0;
  };
  [[nodiscard]] const std::map<std::string, TensorInfo>& tensors() const noexcept { return tensors_; }
  [[nodiscard]] const TrainState& state() const noexcept { return state_; }
  [[nodiscard]] std::uint64_t step() const noexcept { return step_; }
  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(files_.size()); }
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  /// Reads elements [offset, offset + length) of a tensor into `out`, in the tensor's dtype: only the byte ranges needed, widened to whole
  /// checksummed chunks. Throws bad input when it is absent or its shape differs from `shape` (naming both), kFailed naming tensor and
  /// file when a checksum differs.
  void read(const std::string& tensor, const std::vector<std::int64_t>& shape, std::uint64_t offset, std::uint64_t length, void* out) const;
  /// Reads everything and compares all checksums; returns what differs: "model/x (rank-00001.safetensors)".
  [[nodiscard]] std::vector<std::string> verify() const;
  /// Bytes read from the ranks' files so far by this reader.
  [[nodiscard]] Bytes bytes_read() const noexcept { return bytes_read_; }
  /// Bytes of all files of tensors.
  [[nodiscard]] Bytes bytes() const noexcept;

 private:
  struct File {
    std::string name;
    Bytes bytes = 0;
    std::string header_checksum;   // of the safetensors header, its length included
  };
  struct Piece {
    std::uint64_t offset = 0, length = 0;   // elements of the tensor
    std::size_t file = 0;
    std::uint64_t position = 0;             // first byte in the file
    std::vector<std::string> checksums;     // one a chunk
  };
  void read_piece(const std::string& tensor, const Piece& piece, std::size_t element, std::uint64_t from, std::uint64_t count,
                  unsigned char* out) const;

  std::filesystem::path folder_;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::vector<Piece>> pieces_;   // of each tensor, ascending
  std::vector<File> files_;
  TrainState state_;
  std::uint64_t step_ = 0;
  std::uint64_t chunk_ = 0;                            // bytes of a checksummed chunk
  mutable Bytes bytes_read_ = 0;
};

}  // namespace wirewise
