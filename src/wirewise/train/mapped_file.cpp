#include "wirewise/train/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"

namespace wirewise {

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  const auto refuse = [&](const std::string& reason, const std::string& remedy) {
    return bad_input(fmt::format("{} {}.", printable(path_.string()), reason), remedy);
  };
  // Non-blocking, so that a pipe in a folder of data is refused instead of waited for.
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw refuse(fmt::format("can't be opened: {}", std::strerror(errno)), "Check data.path.");
  struct stat info {};
  const bool regular = ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  if (regular && info.st_size > 0) {
    size_ = static_cast<std::size_t>(info.st_size);
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    const int failure = errno;
    ::close(descriptor);
    if (mapped == MAP_FAILED) {
      throw refuse(fmt::format("can't be mapped: {}", std::strerror(failure)),
                   failure == ENOMEM ? "With many files, join them into fewer, or raise vm.max_map_count." : "Copy it to a local disk.");
    }
    data_ = static_cast<const std::byte*>(mapped);
    return;
  }
  ::close(descriptor);
  if (!regular) throw refuse("is not a regular file", "Give a file or a folder of files.");
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

}  // namespace wirewise
