// The file operations of a save, behind a seam so that tests can make any one of them fail. Private to train/.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/train/checkpoint.h"

namespace wirewise::checkpoint {

/// Throw kFailed naming the file and the system's reason.
class FileOperations {
 public:
  virtual ~FileOperations() = default;
  /// Creates `path`, which must not exist, for writing. Returns a descriptor.
  virtual int create(const std::filesystem::path& path);
  virtual void write(int descriptor, const void* data, std::size_t bytes, const std::filesystem::path& path);
  virtual void sync(int descriptor, const std::filesystem::path& path);
  virtual void sync_folder(const std::filesystem::path& folder);
  virtual void make_folder(const std::filesystem::path& folder);
  /// `to` must not exist.
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to);
  /// Swaps two folders at once. False where the file system can't.
  virtual bool exchange(const std::filesystem::path& a, const std::filesystem::path& b);
};

/// A file being written: closed on destruction, whole and on disk after finish().
class Output {
 public:
  Output(FileOperations& files, std::filesystem::path path) : files_(files), path_(std::move(path)), descriptor_(files_.create(path_)) {}
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  void write(const void* data, std::size_t bytes) { files_.write(descriptor_, data, bytes, path_); }
  void finish() { files_.sync(descriptor_, path_); }

 private:
  FileOperations& files_;
  std::filesystem::path path_;
  int descriptor_;
};

void write_file(FileOperations& files, const std::filesystem::path& path, std::string_view text);

/// Holds `folder` against saves of other processes, by flock on the folder itself, so nothing is left behind.
class FolderLock {
 public:
  /// Throws bad input naming the folder when another process holds it. Where the file system has no locks, holds nothing.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  [[nodiscard]] bool held() const noexcept { return held_; }

 private:
  int descriptor_;
  bool held_ = false;
};

/// A regular file opened for reading that is no link. Throws bad input naming it.
class Input {
 public:
  explicit Input(const std::filesystem::path& path);
  ~Input();
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Throws kFailed when the file ends before.
  void read(std::uint64_t position, void* out, std::size_t bytes) const;

 private:
  std::filesystem::path path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

/// The whole of a file of at most `limit` bytes.
[[nodiscard]] std::string read_file(const std::filesystem::path& path, std::uint64_t limit);

/// save_checkpoint over given file operations.
std::filesystem::path save(FileOperations& files, const std::filesystem::path& folder, std::uint64_t step, int rank, int ranks,
                           const std::vector<Fragment>& fragments, const TrainState& state, int keep, const AgreeFunction& agree);

}  // namespace wirewise::checkpoint
