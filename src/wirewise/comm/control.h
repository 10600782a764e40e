// The memory that the ranks of one communicator coordinate through: a cell a rank, a ring of call slots with a cell a rank, the first
// failure, and the table of message channels. Each cell is written by its owner only (bells, the failure and
// claims excepted).
//
// A call takes slot (sequence mod kSlots). Its owner fills its cell and stores `issued` = sequence + 1 (release); peers that read that
// (acquire) may read the rest of the cell. All that a small call needs lies in the cell's first cache line: the digest of its fingerprint
// beside up to kCellBytes of data, or the places where the data lies. The slot is free for the next lap once every rank's `finished` has
// passed its sequence; that number travels in the first line too, so ranks in step never read each other's counters.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>

#include "wirewise/base/dtype.h"
#include "wirewise/comm/communicator.h"

namespace wirewise::comm {

inline constexpr std::uint64_t kSlots = 64;
inline constexpr std::size_t kInlineWords = 4;
inline constexpr std::size_t kCellBytes = kInlineWords * sizeof(std::uint64_t);
inline constexpr std::uint64_t kEverything = ~std::uint64_t{0};  // a counter that has passed all rounds

enum class Operation : std::uint8_t {
  kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce, kGather, kScatter, kAllToAll, kBarrier, kSend, kRecv,
};

/// What ranks must agree on.
struct CallNumbers {
  Operation operation = Operation::kBarrier;
  DType in = DType::kUInt8;
  DType out = DType::kUInt8;
  Reduction reduction = Reduction::kSum;
  bool accumulate = false;
  std::int32_t root = -1;
  std::uint32_t parts = 0;
  std::uint64_t count = 0;  // of all parts
  std::uint64_t hash = 0;   // of each part's count and types, where there are several
  std::uint64_t sequence = 0;

  /// Equal for numbers that agree, and for others with a chance of 2^-64.
  [[nodiscard]] std::uint64_t digest() const noexcept {
    const auto byte = [](auto value) { return static_cast<std::uint64_t>(static_cast<std::uint8_t>(value)); };
    const std::uint64_t types = byte(operation) | byte(in) << 8 | byte(operation == Operation::kReduce ? in : out) << 16 | byte(reduction) << 24 |
                                byte(accumulate) << 32;
    const std::uint64_t shape = static_cast<std::uint64_t>(static_cast<std::uint32_t>(root)) << 32 | parts;
    std::uint64_t value = (types + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    value = ((value ^ (value >> 29)) + shape) * 0x94d049bb133111ebu;
    value = ((value ^ (value >> 31)) + count) * 0xbf58476d1ce4e5b9u;
    value = ((value ^ (value >> 29)) + hash) * 0x94d049bb133111ebu;
    return value ^ (value >> 32);
  }
  [[nodiscard]] bool agrees_with(const CallNumbers& other) const noexcept {
    // Of a reduce only the root knows the output's type.
    return operation == other.operation && in == other.in && (out == other.out || operation == Operation::kReduce) &&
           reduction == other.reduction && accumulate == other.accumulate && root == other.root && parts == other.parts &&
           count == other.count && hash == other.hash && sequence == other.sequence;
  }
};

/// The same with what errors tell besides: the caller's label, which may differ.
struct Fingerprint : CallNumbers {
  char label[96] = {};

  Fingerprint() = default;
  Fingerprint(const CallNumbers& numbers) noexcept : CallNumbers(numbers) {}
  /// All but the label, whose place a peer reads in errors only.
  void take_numbers(const CallNumbers& numbers) noexcept { static_cast<CallNumbers&>(*this) = numbers; }
  void set_label(std::string_view text) noexcept {
    const std::size_t length = text.size() < sizeof label ? text.size() : sizeof label - 1;
    std::memcpy(label, text.data(), length);
    label[length] = 0;
  }
};

struct alignas(64) RankCell {
  // Read by peers with every call, written seldom.
  std::atomic<std::uint32_t> doorbell{0};    // peers count it up for those who sleep on it
  std::atomic<std::uint32_t> sleepers{0};    // threads of this rank that do
  std::atomic<std::uint32_t> background{0};  // this rank's progress thread wants to hear of news
  std::atomic<std::uint32_t> departed{0};    // this rank has closed its communicator
  // How peers try whether they reach this process's memory (peer_memory.h).
  std::atomic<std::uint64_t> probe{0};
  std::atomic<std::uint64_t> probe_nonce{0};
  std::atomic<std::uint32_t> reaches{0};
  alignas(64) std::atomic<std::uint64_t> finished{0};  // all calls below are over for this rank: it reads nobody's cell of them
};

/// What peers read of a call first. Written at once, with `issued` last: a peer that looks for it takes the line away at any moment between.
struct CallHead {
  enum Flags : std::uint32_t { kStagedIn = 1, kStagedOut = 2, kCarried = 4, kTabled = 8, kDirect = 16 };

  std::uint64_t digest = 0;    // of the fingerprint
  std::uint64_t finished = 0;  // the owner's counter when it issued
  std::uint32_t flags = 0;     // StagedIn: the inputs come through the staging area; StagedOut: results reach this rank through its peers'
                               // staging areas; Carried: `words` are the data itself; Tabled: words lie at `table`; Direct: a small
                               // reduction without a copy yet (small_operation.h)
  std::uint32_t count = 0;     // of words
  std::uint64_t words[kInlineWords] = {};  // offsets of the parts' buffers (0: not shared), then counts
};

struct alignas(64) CallCell : CallHead {
  std::atomic<std::uint64_t> issued{0};  // sequence + 1

  alignas(64) std::atomic<std::uint64_t> published{0};  // rounds of this rank's inputs that lie in its staging area
  std::atomic<std::uint64_t> reduced{0};                // rounds of its slice that this rank has reduced
  std::atomic<std::uint64_t> consumed{0};               // rounds that this rank has taken from its peers' staging areas
  std::atomic<std::uint64_t> done{0};                   // sequence + 1: this rank no longer touches its peers' memory
  std::atomic<std::uint64_t> claims{0};                 // chunks of this rank's input that are taken on, by whichever rank (fan.h)
  std::uint64_t stage = 0;   // offset of this rank's staging area, where inputs are staged
  std::uint64_t result = 0;  // the same where results are; written before the first `reduced`
  std::uint64_t table = 0;   // offset of the words where they are more than fit
  alignas(64) Fingerprint fingerprint;

  void issue(const CallHead& head, std::uint64_t sequence) noexcept {
    static_cast<CallHead&>(*this) = head;
    issued.store(sequence + 1, std::memory_order_release);
  }
  [[nodiscard]] bool staged_in() const noexcept { return (flags & kStagedIn) != 0; }
  [[nodiscard]] bool staged_out() const noexcept { return (flags & kStagedOut) != 0; }
};

struct alignas(64) ControlHeader {
  std::atomic<std::uint32_t> failure{0};  // 0 none, 1 being written, 2 written
  std::uint32_t failure_kind = 0;
  char failure_sentence[1400] = {};
  char failure_remedy[400] = {};
};

/// A view of the control memory, laid out for `size` ranks.
class Control {
 public:
  Control() = default;
  Control(std::byte* base, int size) : base_(base), size_(static_cast<std::size_t>(size)) {}

  [[nodiscard]] static std::size_t bytes(int size) noexcept {
    const auto n = static_cast<std::size_t>(size);
    return sizeof(ControlHeader) + n * sizeof(RankCell) + kSlots * n * sizeof(CallCell) + n * n * sizeof(std::atomic<std::uint64_t>);
  }
  /// Makes the objects; done once, by the rank that owns the memory, before peers look.
  void construct() {
    ::new (base_) ControlHeader{};
    for (std::size_t i = 0; i < size_; ++i) ::new (&rank(static_cast<int>(i))) RankCell{};
    for (std::size_t i = 0; i < kSlots * size_; ++i) ::new (&calls()[i]) CallCell{};
    for (std::size_t i = 0; i < size_ * size_; ++i) ::new (&channels()[i]) std::atomic<std::uint64_t>{0};
  }

  [[nodiscard]] ControlHeader& header() const noexcept { return *reinterpret_cast<ControlHeader*>(base_); }
  [[nodiscard]] RankCell& rank(int r) const noexcept {
    return reinterpret_cast<RankCell*>(base_ + sizeof(ControlHeader))[static_cast<std::size_t>(r)];
  }
  [[nodiscard]] CallCell& call(std::uint64_t sequence, int r) const noexcept {
    return calls()[(sequence % kSlots) * size_ + static_cast<std::size_t>(r)];
  }
  /// Offset, in the sender's arena, of the channel of messages from `source` to `target`; 0 before its first.
  [[nodiscard]] std::atomic<std::uint64_t>& channel(int source, int target) const noexcept {
    return channels()[static_cast<std::size_t>(source) * size_ + static_cast<std::size_t>(target)];
  }

 private:
  [[nodiscard]] CallCell* calls() const noexcept {
    return reinterpret_cast<CallCell*>(base_ + sizeof(ControlHeader) + size_ * sizeof(RankCell));
  }
  [[nodiscard]] std::atomic<std::uint64_t>* channels() const noexcept {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(reinterpret_cast<std::byte*>(calls()) + kSlots * size_ * sizeof(CallCell));
  }

  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace wirewise::comm
