#include "wirewise/comm/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>
#include <string>

#include "wirewise/base/error.h"
#include "wirewise/base/sanitizers.h"
#include "wirewise/base/units.h"

namespace wirewise::comm {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAddressSpace = std::size_t{1} << 45;  // a quarter of what x86-64 gives a process

std::string system_error(const std::string& what) { return "shared memory: " + what + ": " + std::strerror(errno) + "."; }

std::size_t physical_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page) : std::size_t{1} << 34;
}

/// Address space for one arena: four times the memory (room for fragments), within what `ranks` mappings may take.
std::size_t arena_bytes(int ranks) {
  constexpr std::size_t kMost = kThreadSanitizer ? std::size_t{1} << 33 : kAddressSpace;  // the sanitizer shadows every mapping
  const std::size_t mappings = static_cast<std::size_t>(std::max(ranks, 1));
  std::size_t bytes = std::min({4 * physical_bytes(), kAddressSpace / mappings, kMost});
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    bytes = std::min<std::size_t>(bytes, limit.rlim_cur / (2 * (mappings + 1)));
  }
  return std::bit_floor(std::max(bytes, std::size_t{1} << 26));
}

/// What the machine can still give, by its own account; all ones when it doesn't say.
std::size_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::size_t value = 0;
  std::string unit;
  while (file >> key >> value) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return value * 1024;
  }
  return ~std::size_t{0};
}

std::size_t group_limit_bytes() {
  std::ifstream most("/sys/fs/cgroup/memory.max");
  std::ifstream now("/sys/fs/cgroup/memory.current");
  std::size_t limit = 0;
  std::size_t used = 0;
  if (!(most >> limit) || !(now >> used)) return ~std::size_t{0};
  return limit > used ? limit - used : 0;
}

std::byte* map_shared(int file, std::size_t bytes) {
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (address == MAP_FAILED) return nullptr;
  ::madvise(address, bytes, MADV_HUGEPAGE);
  ::madvise(address, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(address);
}

}  // namespace

ArenaId random_id() {
  ArenaId id;
  if (::getrandom(&id, sizeof id, 0) != static_cast<ssize_t>(sizeof id)) {
    throw Error(ErrorKind::kFailed, system_error("no random numbers"), "Check that getrandom is allowed here.");
  }
  return id;
}

Arena::Arena(int ranks) : file_(::memfd_create("wirewise", MFD_CLOEXEC | MFD_ALLOW_SEALING)), id_(random_id()) {
  if (!file_.valid()) {
    throw Error(ErrorKind::kFailed, system_error("memfd_create failed"), "Raise the limit on open files, or allow memfd_create.");
  }
  for (size_ = arena_bytes(ranks);; size_ /= 2) {
    if (::ftruncate(file_.get(), static_cast<off_t>(size_)) == 0) base_ = map_shared(file_.get(), size_);
    if (base_ != nullptr) break;
    if (size_ <= (std::size_t{1} << 26)) {
      throw Error(ErrorKind::kFailed, system_error("can't map " + format_bytes(size_)), "Raise the limit on address space (ulimit -v).");
    }
  }
  if (::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const Error error(ErrorKind::kFailed, system_error("can't seal a memfd"), "Allow memfd seals (Linux 3.17 or newer).");
    ::munmap(base_, size_);
    throw error;
  }
  unbacked_.emplace(kPage, size_ - kPage);
  try {
    reserve(0, kPage);
  } catch (...) {
    ::munmap(base_, size_);
    throw;
  }
  ::new (base_) ArenaHeader{};
}

Arena::~Arena() { ::munmap(base_, size_); }

void Arena::reserve(std::uint64_t offset, std::size_t bytes) {
  std::size_t room = ~std::size_t{0};
  // The kernel would rather end a process than refuse: large requests are held against what it says it has.
  if (bytes >= (std::size_t{1} << 24)) room = std::min(available_bytes(), group_limit_bytes());
  int failed = bytes > room ? ENOMEM : 0;
  if (failed == 0) {
    while (::fallocate(file_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
      if (errno == EINTR) continue;
      failed = errno;
      break;
    }
  }
  if (failed != 0) {
    errno = failed;
    std::string what = "can't reserve " + format_bytes(bytes);
    if (bytes > room) what += " where " + format_bytes(room) + " are left";
    throw Error(ErrorKind::kFailed, system_error(what), "Free memory, use smaller buffers, or shard further.");
  }
#if defined(MADV_POPULATE_WRITE)
  ::madvise(base_ + offset, bytes, MADV_POPULATE_WRITE);  // one call instead of a fault a page; older kernels fault
#endif
}

void Arena::release_pages(std::uint64_t offset, std::size_t bytes) noexcept {
  // A hole takes the pages out of every mapping at once, the peers' included.
  ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes));
}

void Arena::give_back(std::uint64_t offset, std::size_t bytes) noexcept {
  auto next = unbacked_.lower_bound(offset);
  if (next != unbacked_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      unbacked_.erase(before);
    }
  }
  if (next != unbacked_.end() && offset + bytes == next->first) {
    bytes += next->second;
    unbacked_.erase(next);
  }
  unbacked_.emplace(offset, bytes);
}

void Arena::trim(std::size_t keep) noexcept {
  while (cached_bytes_ > keep) {
    const auto oldest = std::min_element(cached_.begin(), cached_.end(),
                                         [](const auto& a, const auto& b) { return a.second.freed < b.second.freed; });
    const std::uint64_t offset = oldest->first;
    const std::size_t bytes = oldest->second.size;
    cached_.erase(oldest);
    cached_bytes_ -= bytes;
    release_pages(offset, bytes);
    give_back(offset, bytes);
  }
}

void* Arena::allocate(std::size_t bytes) {
  if (bytes > size_) {
    throw Error(ErrorKind::kFailed, "shared memory: " + format_bytes(bytes) + " is more than the " + format_bytes(size_) + " that one process has addresses for.",
                "Use smaller buffers, or shard further. Where addresses are limited (ulimit -v), raise that limit.");
  }
  const std::size_t wanted = std::max<std::size_t>(round_up(bytes, kPage), kPage);
  const std::lock_guard lock(mutex_);
  auto best = cached_.end();
  for (auto it = cached_.begin(); it != cached_.end(); ++it) {
    const std::size_t have = it->second.size;
    if (have < wanted || have > wanted + wanted / 8) continue;
    if (best == cached_.end() || have < best->second.size) best = it;
    if (have == wanted) break;
  }
  std::uint64_t offset = 0;
  std::size_t size = wanted;
  if (best != cached_.end()) {
    offset = best->first;
    size = best->second.size;
    cached_bytes_ -= size;
    cached_.erase(best);
  } else {
    const auto range = std::find_if(unbacked_.begin(), unbacked_.end(), [&](const auto& r) { return r.second >= wanted; });
    if (range == unbacked_.end()) {
      trim(0);
      throw Error(ErrorKind::kFailed, "shared memory: no room for " + format_bytes(wanted) + " in the arena of " + format_bytes(size_) + ".",
                  "Free shared buffers, or raise the limit on address space (ulimit -v).");
    }
    offset = range->first;
    try {
      reserve(offset, wanted);
    } catch (const Error&) {
      if (cached_bytes_ == 0) throw;
      trim(0);
      reserve(offset, wanted);
    }
    // trim() may have joined ranges: find the one that holds the offset now.
    const auto holder = std::prev(unbacked_.upper_bound(offset));
    const std::uint64_t start = holder->first;
    const std::size_t length = holder->second;
    unbacked_.erase(holder);
    if (offset > start) unbacked_.emplace(start, offset - start);
    if (start + length > offset + wanted) unbacked_.emplace(offset + wanted, start + length - offset - wanted);
  }
  used_.emplace(offset, size);
  used_bytes_ += size;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return base_ + offset;
}

void Arena::free(void* pointer) noexcept {
  if (pointer == nullptr) return;
  const auto offset = static_cast<std::uint64_t>(static_cast<std::byte*>(pointer) - base_);
  const std::lock_guard lock(mutex_);
  const auto it = used_.find(offset);
  if (it == used_.end()) return;
  cached_.emplace(offset, Cached{it->second, frees_++});
  cached_bytes_ += it->second;
  used_bytes_ -= it->second;
  used_.erase(it);
  trim(peak_bytes_);
}

std::uint64_t Arena::offset_of(const void* pointer, std::size_t bytes) const noexcept {
  const auto* const at = static_cast<const std::byte*>(pointer);
  if (std::less<>{}(at, base_) || !std::less<>{}(at, base_ + size_)) return 0;
  const auto offset = static_cast<std::uint64_t>(at - base_);
  const std::lock_guard lock(mutex_);
  auto it = used_.upper_bound(offset);
  if (it == used_.begin()) return 0;
  --it;
  return offset + bytes <= it->first + it->second ? offset : 0;
}

PeerArena::PeerArena(const UniqueFd& file, std::size_t size) : size_(size) {
  struct stat info {};
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (::fstat(file.get(), &info) != 0 || static_cast<std::size_t>(info.st_size) != size || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    throw Error(ErrorKind::kFailed, "shared memory: a peer sent a descriptor that is no sealed segment of " + format_bytes(size) + ".",
                "Start all ranks from one build of wirewise.");
  }
  base_ = map_shared(file.get(), size);
  if (base_ == nullptr) {
    throw Error(ErrorKind::kFailed, system_error("can't map a peer's " + format_bytes(size)), "Raise the limit on address space (ulimit -v).");
  }
}

PeerArena::~PeerArena() { ::munmap(base_, size_); }

}  // namespace wirewise::comm
