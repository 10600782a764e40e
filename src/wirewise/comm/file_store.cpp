// FileStore: a file a key in a folder that only its owner may enter. A value is written aside and renamed, so a reader sees all
// of it or nothing; counters are guarded by a lock on a file beside them.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "wirewise/base/error.h"
#include "wirewise/comm/store.h"
#include "wirewise/comm/unique_fd.h"

namespace wirewise {
namespace {

using comm::UniqueFd;

[[noreturn]] void fail(const std::string& what, const std::filesystem::path& path) {
  throw Error(ErrorKind::kStore, "store: can't " + what + " " + path.string() + ": " + std::strerror(errno) + ".",
              "Give a folder that this user may write.");
}

/// Keys are free text; names of files are letters, digits and %XX.
std::string file_name(const std::string& key) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string name = "k.";
  for (const char c : key) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (plain) {
      name += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      name += '%';
      name += kHex[byte >> 4];
      name += kHex[byte & 15];
    }
  }
  if (name.size() > 200) throw bad_input("store: the key '" + key + "' is too long for a file name.", "Use shorter keys.");
  return name;
}

std::optional<std::string> read_all(const std::filesystem::path& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid()) {
    if (errno == ENOENT) return std::nullopt;
    fail("read", path);
  }
  std::string text;
  char block[4096];
  for (;;) {
    const ssize_t got = ::read(file.get(), block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path);
    if (got == 0) return text;
    text.append(block, static_cast<std::size_t>(got));
  }
}

void write_renamed(const std::filesystem::path& folder, const std::string& name, const std::string& value) {
  static std::atomic<unsigned> counter{0};
  const std::filesystem::path target = folder / name;
  const std::filesystem::path aside =
      folder / ("t." + std::to_string(::getpid()) + "." + std::to_string(counter.fetch_add(1)));
  {
    const UniqueFd file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.valid()) fail("write", aside);
    std::size_t written = 0;
    while (written < value.size()) {
      const ssize_t put = ::write(file.get(), value.data() + written, value.size() - written);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) fail("write", aside);
      written += static_cast<std::size_t>(put);
    }
  }
  if (::rename(aside.c_str(), target.c_str()) != 0) fail("write", target);
}

}  // namespace

FileStore::FileStore(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code ignored;
  std::filesystem::create_directories(folder_.parent_path(), ignored);
  if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) fail("make the folder", folder_);
  struct stat info {};
  if (::stat(folder_.c_str(), &info) != 0) fail("look at", folder_);
  if (!S_ISDIR(info.st_mode)) {
    throw Error(ErrorKind::kStore, "store: " + folder_.string() + " is no folder.", "Give the path of a folder.");
  }
  if (info.st_uid != ::geteuid()) {
    throw Error(ErrorKind::kStore, "store: the folder " + folder_.string() + " belongs to another user.",
                "Give a folder of your own.");
  }
}

void FileStore::set(const std::string& key, const std::string& value) { write_renamed(folder_, file_name(key), value); }

std::string FileStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const std::filesystem::path path = folder_ / file_name(key);
  std::chrono::microseconds pause{200};
  for (;;) {
    if (auto value = read_all(path)) return *value;
    if (::access(folder_.c_str(), F_OK) != 0) {
      throw Error(ErrorKind::kStore, "store: lost " + where() + " while waiting for '" + key + "': it was removed.",
                  "Whoever made it (the launcher) has probably ended: look at its last lines.");
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      throw Error(ErrorKind::kTimeout,
                  "store: the key '" + key + "' was not set within " + std::to_string(timeout.count()) + " ms.",
                  "See whether the rank that sets it runs.");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds{10000});
  }
}

std::int64_t FileStore::add(const std::string& key, std::int64_t amount) {
  const std::string name = file_name(key);
  const std::filesystem::path lock_path = folder_ / ("l." + name);
  const UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) fail("open", lock_path);
  while (::flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) fail("lock", lock_path);
  }
  std::int64_t sum = amount;
  if (const auto value = read_all(folder_ / name)) {
    try {
      sum += std::stoll(*value);
    } catch (const std::exception&) {
      throw Error(ErrorKind::kStore, "store: the key '" + key + "' holds no integer.", "Use add() only on counters.");
    }
  }
  write_renamed(folder_, name, std::to_string(sum));
  return sum;
}

}  // namespace wirewise
