// A file mapped read-only into memory. Private to train/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace wirewise {

class MappedFile {
 public:
  /// Throws bad input naming the file when it is missing, unreadable or not a regular file. An empty file maps to nothing.
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace wirewise
