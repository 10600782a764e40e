#include "wirewise/comm/flight_recorder.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include "wirewise/base/log.h"
#include "wirewise/base/text.h"

namespace wirewise::comm {
namespace {

constexpr std::size_t kMostEntries = 10'000'000;
constexpr std::size_t kMostFailures = 8;
constexpr std::size_t kClosedKept = 256;

std::int64_t steady_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Whether the processor's counter runs at one rate whatever the processor does: reading it takes a third of the time of a clock.
bool counter_is_steady() noexcept {
#if defined(__x86_64__)
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
#else
  return false;
#endif
}

std::uint64_t ticks_now(bool counter) noexcept {
#if defined(__x86_64__)
  if (counter) return __rdtsc();
#else
  (void)counter;
#endif
  return static_cast<std::uint64_t>(steady_ns());
}

const char* dump_folder_variable() noexcept {
  const char* const given = std::getenv("WIREWISE_FLIGHT_DIR");
  return given != nullptr && *given != 0 ? given : nullptr;
}

}  // namespace

std::vector<int> job_ranks(FlightRecorder* recorder, int rank, int size, const CommunicatorOptions& options) {
  const auto ranks = static_cast<std::size_t>(size);
  if (!options.job_ranks.empty() && options.job_ranks.size() != ranks) {
    throw bad_input("communicator: " + std::to_string(options.job_ranks.size()) + " numbers in the job for " + std::to_string(size) + " ranks.",
                    "Give one for each rank.");
  }
  if (recorder == nullptr) return options.job_ranks;
  if (!options.job_ranks.empty()) {
    const int most = *std::max_element(options.job_ranks.begin(), options.job_ranks.end());
    recorder->set_rank(options.job_ranks[static_cast<std::size_t>(rank)], most + 1);
    return options.job_ranks;
  }
  recorder->set_rank(rank, size);
  if (recorder->rank() != rank || recorder->world_size() != size) return {};
  std::vector<int> numbers(ranks);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::size_t FlightRecorder::entries_wanted() {
  const char* const given = std::getenv("WIREWISE_FLIGHT_ENTRIES");
  if (given == nullptr || *given == 0) return kDefaultEntries;
  const auto number = parse_integer(given);
  if (!number || *number < 0 || *number > static_cast<long long>(kMostEntries)) {
    throw bad_input("WIREWISE_FLIGHT_ENTRIES is " + printable(given) + ".", "Give a number of calls up to ten million; 0 records none.");
  }
  return static_cast<std::size_t>(*number);
}

std::shared_ptr<FlightRecorder> FlightRecorder::of_process() {
  // The last calls of a process are one list whatever communicators come and go.
  static std::mutex mutex;
  static std::shared_ptr<FlightRecorder> shared;
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  if (owner != ::getpid()) {
    shared.reset();
    const std::size_t entries = entries_wanted();
    if (entries > 0) shared = std::make_shared<FlightRecorder>(entries);
    owner = ::getpid();
  }
  return shared;
}

FlightRecorder::FlightRecorder(std::size_t entries)
    : capacity_(std::max<std::size_t>(entries, 1)),
      mask_(std::bit_ceil(capacity_) - 1),
      counter_(counter_is_steady()),
      started_ticks_(ticks_now(counter_)),
      started_(steady_ns()),
      slots_(mask_ + 1) {}

std::uint64_t FlightRecorder::now() const noexcept { return ticks_now(counter_); }

// --- communicators

void FlightRecorder::set_rank(int rank, int world_size) {
  const std::lock_guard lock(mutex_);
  if (rank_ >= 0) return;
  rank_ = rank;
  world_size_ = world_size;
}

int FlightRecorder::rank() const {
  const std::lock_guard lock(mutex_);
  return rank_;
}

int FlightRecorder::world_size() const {
  const std::lock_guard lock(mutex_);
  return world_size_;
}

std::uint32_t FlightRecorder::add(const std::string& name, int rank, std::vector<FlightMember> members) {
  std::string key = name;
  for (const FlightMember& member : members) key += "\n" + std::to_string(member.rank) + " " + member.host + " " + std::to_string(member.pid);
  const std::lock_guard lock(mutex_);
  // Those that are closed, and of whose calls none is left.
  if (parties_.size() > kClosedKept) {
    const std::uint64_t next = next_.load(std::memory_order_relaxed);
    const std::uint64_t oldest = next > capacity_ ? next - capacity_ : 0;
    std::erase_if(parties_, [&](const auto& party) {
      const auto said = [&](const Failure& failure) { return failure.what.communicator == party.first; };
      return party.second.closed_at <= oldest && std::none_of(failures_.begin(), failures_.end(), said);
    });
  }
  const std::uint32_t id = next_party_++;
  parties_[id] = Party{name, rank, std::move(members), instances_[key]++, kNoCall};
  return id;
}

void FlightRecorder::close(std::uint32_t communicator) noexcept {
  const std::lock_guard lock(mutex_);
  if (const auto found = parties_.find(communicator); found != parties_.end()) {
    found->second.closed_at = next_.load(std::memory_order_relaxed);
  }
}

// --- calls

std::uint64_t FlightRecorder::issued(std::uint32_t communicator, const CallNumbers& print, std::string_view label, const char* how,
                                     std::uint64_t ticks) noexcept {
  const std::uint64_t call = next_.fetch_add(1, std::memory_order_relaxed);
  Slot& slot = slots_[call & mask_];
  slot.claim.store(0, std::memory_order_relaxed);
  // Released one by one: a reader that sees any of them sees that the entry has no owner yet.
  constexpr auto kOrder = std::memory_order_release;
  slot.sequence.store(print.sequence, kOrder);
  slot.count.store(print.count, kOrder);
  slot.issued.store(ticks != 0 ? ticks : now(), kOrder);
  slot.driven.store(0, kOrder);
  slot.output.store(0, kOrder);
  slot.ended.store(0, kOrder);
  slot.communicator.store(communicator, kOrder);
  slot.parts.store(print.parts, kOrder);
  slot.kinds.store(static_cast<std::uint64_t>(print.operation) | static_cast<std::uint64_t>(print.in) << 8 |
                       static_cast<std::uint64_t>(print.out) << 16 | static_cast<std::uint64_t>(print.reduction) << 24 |
                       static_cast<std::uint64_t>(print.accumulate) << 32,
                   kOrder);
  slot.hash.store(print.hash, kOrder);
  slot.how.store(how, kOrder);
  slot.root.store(print.root, kOrder);
  slot.failed.store(false, kOrder);
  // Up to the word that holds the end of the label: most have none.
  label = label.substr(0, sizeof(Fingerprint::label) - 1);
  for (std::size_t i = 0; i <= label.size() / 8; ++i) {
    std::uint64_t word = 0;
    if (8 * i < label.size()) std::memcpy(&word, label.data() + 8 * i, std::min<std::size_t>(8, label.size() - 8 * i));
    slot.label[i].store(word, kOrder);
  }
  slot.claim.store(call + 1, kOrder);
  return call;
}

bool FlightRecorder::failed(std::uint64_t call) noexcept {
  Slot* const slot = find(call);
  if (slot == nullptr) return false;
  slot->failed.store(true, std::memory_order_relaxed);
  slot->ended.store(now(), std::memory_order_relaxed);
  return true;
}

// --- dumps

void FlightRecorder::set_folder(std::filesystem::path folder) {
  const std::lock_guard lock(mutex_);
  folder_ = std::move(folder);
}

std::filesystem::path FlightRecorder::folder() const {
  if (const char* const given = dump_folder_variable()) return given;
  const std::lock_guard lock(mutex_);
  return folder_;
}

void FlightRecorder::failed(const FlightFailure& failure, const Error& error) noexcept {
  try {
    const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    {
      const std::lock_guard lock(mutex_);
      if (failures_.size() < kMostFailures) failures_.push_back({failure, error.kind(), error.sentence(), error.remedy(), time});
    }
  } catch (...) {
    // No memory for it: the record itself is still worth writing.
  }
  dump_again();
}

void FlightRecorder::dump_again() noexcept {
  try {
    const std::filesystem::path where = folder();
    const bool told = [this] {
      const std::lock_guard lock(mutex_);
      return !failures_.empty();
    }();
    if (told && !where.empty()) dump(where);
  } catch (const std::exception& cause) {
    try {
      const std::lock_guard lock(mutex_);
      if (!warned_) log_warn(std::string("the flight record was not written: ") + cause.what());
      warned_ = true;
    } catch (...) {
      // What failed is told by its own error.
    }
  }
}

}  // namespace wirewise::comm
