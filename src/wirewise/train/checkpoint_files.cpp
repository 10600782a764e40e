#include "wirewise/train/checkpoint_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"

namespace wirewise::checkpoint {
namespace {

Error failed(const char* what, const std::filesystem::path& path, int number) {
  const char* remedy = number == ENOSPC || number == EDQUOT ? "Free space there, or write elsewhere."
                       : number == EACCES || number == EROFS ? "Check its permissions."
                                                             : "Check the disk.";
  return Error(ErrorKind::kFailed, fmt::format("checkpoint: {} {}: {}.", what, printable(path.string()), std::strerror(number)), remedy);
}

Error unreadable(const std::filesystem::path& path, const std::string& reason) {
  return bad_input(fmt::format("checkpoint file {} {}.", printable(path.string()), reason), "Use another checkpoint.");
}

}  // namespace

int FileOperations::create(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor < 0) throw failed("can't create", path, errno);
  return descriptor;
}

void FileOperations::write(int descriptor, const void* data, std::size_t bytes, const std::filesystem::path& path) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw failed("can't write", path, written == 0 ? EIO : errno);
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void FileOperations::sync(int descriptor, const std::filesystem::path& path) {
  if (::fsync(descriptor) != 0) throw failed("can't sync", path, errno);
}

void FileOperations::sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw failed("can't open", folder, errno);
  // Some file systems refuse to sync a folder (EINVAL) because they need not.
  const int result = ::fsync(descriptor);
  const int number = errno;
  ::close(descriptor);
  if (result != 0 && number != EINVAL) throw failed("can't sync", folder, number);
}

void FileOperations::make_folder(const std::filesystem::path& folder) {
  if (::mkdir(folder.c_str(), 0755) != 0) throw failed("can't create", folder, errno);
}

void FileOperations::rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw failed("can't rename to", to, errno);
}

bool FileOperations::exchange(const std::filesystem::path& a, const std::filesystem::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno == EINVAL || errno == ENOSYS) return false;
  throw failed("can't exchange", b, errno);
}

Output::~Output() { ::close(descriptor_); }

void write_file(FileOperations& files, const std::filesystem::path& path, std::string_view text) {
  Output out(files, path);
  out.write(text.data(), text.size());
  out.finish();
}

FolderLock::FolderLock(const std::filesystem::path& folder)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw failed("can't open", folder, errno);
  held_ = ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
  if (!held_ && errno == EWOULDBLOCK) {
    ::close(descriptor_);
    throw bad_input(fmt::format("another process is saving into {}.", printable(folder.string())), "Give each run its own --out.");
  }
}

FolderLock::~FolderLock() { ::close(descriptor_); }

Input::Input(const std::filesystem::path& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor_ < 0) throw unreadable(path, errno == ELOOP ? "is a link" : fmt::format("can't be opened: {}", std::strerror(errno)));
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(descriptor_);
    throw unreadable(path, "is not a regular file");
  }
  size_ = static_cast<std::uint64_t>(info.st_size);
}

Input::~Input() { ::close(descriptor_); }

void Input::read(std::uint64_t position, void* out, std::size_t bytes) const {
  auto* next = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor_, next, bytes, static_cast<off_t>(position));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw failed("can't read", path_, errno);
    if (got == 0) throw Error(ErrorKind::kFailed, fmt::format("checkpoint: {} ends early.", printable(path_.string())), "Use another checkpoint.");
    next += got;
    position += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

std::string read_file(const std::filesystem::path& path, std::uint64_t limit) {
  const Input input(path);
  if (input.size() > limit) throw unreadable(path, fmt::format("holds {} bytes, above the limit of {}", input.size(), limit));
  std::string text(static_cast<std::size_t>(input.size()), '\0');
  input.read(0, text.data(), text.size());
  return text;
}

}  // namespace wirewise::checkpoint
