// What a rank called last, kept so that a run that fails can say where its ranks parted: a ring of its last calls over all its
// communicators, written as JSON when one of them fails. `wirewise doctor flight` reads the files of all ranks together.
//
// Recording takes no lock and no memory: a call claims the next entry and fills it, whoever drives it adds times. Nothing here knows how
// ranks are joined, so communicators within a host, between hosts and of threads use it alike. docs/failures.md describes the files.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/control.h"

namespace wirewise::comm {

/// A rank of a communicator as the job knows it.
struct FlightMember {
  int rank = -1;  // in the job; -1: unknown, the process tells
  std::string host;
  long pid = 0;
};

/// What is known of a communicator's failure besides its error.
struct FlightFailure {
  struct Absent {
    int rank = 0;          // in the communicator
    bool arrived = false;  // it has called, but not finished its part
  };
  std::uint32_t communicator = 0;
  std::optional<Fingerprint> call;  // this rank's oldest call in flight
  std::vector<Absent> missing;      // whom that call waits for
  std::vector<std::uint64_t> entered;  // by rank: collectives that it had called, as this rank saw; empty: unknown
};

class FlightRecorder;

/// The job's numbers of the ranks of a communicator that a program makes: as its options say, else its own where it is the first of the
/// process or as large as that, else unknown. Tells the recorder (may be null) which rank this is.
[[nodiscard]] std::vector<int> job_ranks(FlightRecorder* recorder, int rank, int size, const CommunicatorOptions& options);

class FlightRecorder {
 public:
  static constexpr std::size_t kDefaultEntries = 2000;
  static constexpr std::uint64_t kNoCall = ~std::uint64_t{0};

  /// WIREWISE_FLIGHT_ENTRIES, or the default. 0: record nothing. Throws bad input for what is no number, or more than ten million.
  [[nodiscard]] static std::size_t entries_wanted();
  /// The recorder of this process, made on first use; null where nothing is to be recorded. A forked child has its own.
  [[nodiscard]] static std::shared_ptr<FlightRecorder> of_process();

  explicit FlightRecorder(std::size_t entries);

  // --- communicators
  /// Says which rank of the job this is. The first word counts.
  void set_rank(int rank, int world_size);
  /// The rank in the job, -1 before set_rank().
  [[nodiscard]] int rank() const;
  [[nodiscard]] int world_size() const;
  /// Names a communicator that calls will be of. Ranks make communicators of equal name and members in one order.
  [[nodiscard]] std::uint32_t add(const std::string& name, int rank, std::vector<FlightMember> members);
  /// No more calls will be of it.
  void close(std::uint32_t communicator) noexcept;

  // --- calls
  /// Enters a call; returns its number, by which the functions below know it. `ticks`: when, as now() said; 0: now.
  std::uint64_t issued(std::uint32_t communicator, const Fingerprint& call, const char* how) noexcept {
    return issued(communicator, call, call.label, how, 0);
  }
  std::uint64_t issued(std::uint32_t communicator, const CallNumbers& call, std::string_view label, const char* how, std::uint64_t ticks) noexcept;
  void driven(std::uint64_t call) noexcept {
    if (Slot* const slot = find(call)) slot->driven.store(now(), std::memory_order_relaxed);
  }
  void output(std::uint64_t call) noexcept {
    if (Slot* const slot = find(call)) slot->output.store(now(), std::memory_order_relaxed);
  }
  void completed(std::uint64_t call) noexcept {
    if (Slot* const slot = find(call)) slot->ended.store(now(), std::memory_order_relaxed);
  }
  /// False when the call has been overwritten by later ones.
  bool failed(std::uint64_t call) noexcept;
  /// How the call went: a word that lives for ever, such as "shared".
  void how(std::uint64_t call, const char* word) noexcept {
    if (Slot* const slot = find(call)) slot->how.store(word, std::memory_order_relaxed);
  }
  /// Ticks of the recorder's clock.
  [[nodiscard]] std::uint64_t now() const noexcept;

  // --- dumps
  /// Where failures are dumped. WIREWISE_FLIGHT_DIR wins over it. Empty: nowhere.
  void set_folder(std::filesystem::path folder);
  [[nodiscard]] std::filesystem::path folder() const;
  /// Keeps the failure for dumps, and dumps to the folder if there is one. A folder that can't be written is logged.
  void failed(const FlightFailure& failure, const Error& error) noexcept;
  /// Dumps to the folder once more where there is one and a failure was told: a call has come that belongs to it.
  void dump_again() noexcept;
  /// Writes `folder`/rank-N.json: aside, then renamed. One at a time: the file is never an older state than one before it. Returns its path. Throws Failed when it can't.
  std::filesystem::path dump(const std::filesystem::path& folder);
  /// The same as text.
  [[nodiscard]] std::string text() const;

 private:
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> claim{0};  // call + 1 while the fields are that call's
    std::atomic<std::uint64_t> sequence{0};
    std::atomic<std::uint64_t> count{0};
    std::atomic<std::uint64_t> issued{0};  // ticks; 0: not yet
    std::atomic<std::uint64_t> driven{0};
    std::atomic<std::uint64_t> output{0};
    std::atomic<std::uint64_t> ended{0};
    std::atomic<std::uint32_t> communicator{0};
    std::atomic<std::uint32_t> parts{0};
    std::atomic<std::uint64_t> kinds{0};  // operation, types, reduction, accumulate: a byte each
    std::atomic<std::uint64_t> hash{0};
    std::atomic<const char*> how{nullptr};
    std::atomic<std::int32_t> root{0};
    std::atomic<bool> failed{false};
    std::atomic<std::uint64_t> label[sizeof(Fingerprint::label) / 8] = {};
  };
  struct Entry;  // a slot read as a whole
  struct Party {
    std::string name;
    int rank = 0;
    std::vector<FlightMember> members;
    std::uint64_t instance = 0;  // how many of equal name and members came before
    std::uint64_t closed_at = kNoCall;
  };
  struct Failure {
    FlightFailure what;
    ErrorKind kind;
    std::string sentence;
    std::string remedy;
    std::int64_t time = 0;
  };
  [[nodiscard]] Slot* find(std::uint64_t call) noexcept {
    if (call == kNoCall) return nullptr;
    Slot& slot = slots_[call & mask_];
    return slot.claim.load(std::memory_order_relaxed) == call + 1 ? &slot : nullptr;
  }
  [[nodiscard]] bool read(std::uint64_t call, Entry& entry) const;

  const std::size_t capacity_;
  const std::uint64_t mask_;
  const bool counter_;  // the clock is the processor's own
  const std::uint64_t started_ticks_;
  const std::int64_t started_;  // ns of the steady clock
  std::vector<Slot> slots_;
  std::atomic<std::uint64_t> next_{0};

  std::mutex dumping_;  // taken before mutex_
  mutable std::mutex mutex_;
  int rank_ = -1;
  int world_size_ = 0;
  std::uint32_t next_party_ = 0;
  std::map<std::uint32_t, Party> parties_;
  std::map<std::string, std::uint64_t> instances_;
  std::filesystem::path folder_;
  std::vector<Failure> failures_;
  bool warned_ = false;
};

}  // namespace wirewise::comm
