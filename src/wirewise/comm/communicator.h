// The communicator: collectives over a group of ranks, on raw pointers, with deadlines, fingerprints and errors that name ranks.
//
// Semantics shared by all operations:
// * Calls of one communicator are matched by the order in which each rank issues them. Each call carries a fingerprint (operation,
//   dtypes, counts, root, reduction, sequence number); a difference is a Mismatch error on every rank that names both sides.
// * Sums follow one canonical tree over ranks: a range of n ranks splits at the largest power of two below n. 16-bit types are
//   summed in float32 and rounded once. So the bits depend on neither size, path nor arrival.
// * Every wait has a deadline. A rank that dies is named (rank, host, pid) within a second.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "wirewise/base/dtype.h"
#include "wirewise/comm/store.h"

namespace wirewise {

struct ConstBuffer {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
};

struct Buffer {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  operator ConstBuffer() const { return {data, dtype}; }
};

enum class Reduction : std::uint8_t { kSum, kAverage, kProduct, kMin, kMax, kBitAnd, kBitOr, kBitXor };

/// A recv from whichever rank sends first.
inline constexpr int kAnySource = -1;

struct CallOptions {
  std::chrono::milliseconds timeout{0};  // 0: the communicator's default
  /// Reductions to float32 only: adds the result to what `out` holds (out += sum) instead of replacing it.
  bool accumulate = false;
  /// Who runs the operation: kBackground lets the progress thread take it; kOnWait leaves it to progress() and wait() of the caller,
  /// which is right where a second thread would only compete for the rank's core.
  enum class Progress : std::uint8_t { kBackground, kOnWait } progress = Progress::kBackground;
  std::string label;  // what the caller is doing, for errors: "gather of transformer.h.3"
};

/// Handle of an operation in flight. The buffers belong to the operation until wait() returned.
class Work {
 public:
  class State;  // private to comm/
  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// The handle of a call that is over already.
  [[nodiscard]] static Work completed(std::uint64_t sequence) {
    Work work;
    work.completed_ = sequence + 1;
    return work;
  }

  /// Waits until this rank's outputs are complete (inputs may still be read by peers).
  void wait_output();
  /// Waits until outputs are complete and no peer uses this rank's buffers any more. Throws the operation's error.
  void wait();
  /// True when wait() would return at once. Throws the operation's error.
  [[nodiscard]] bool test();
  /// Runs `callback` once the operation completed or failed (error null on success), on the thread that completes it.
  void then(std::function<void(std::exception_ptr)> callback);
  [[nodiscard]] bool valid() const noexcept { return state_ != nullptr || completed_ != 0; }
  [[nodiscard]] const State* state() const noexcept { return state_.get(); }  // for comm/; null for a call that is complete already
  [[nodiscard]] std::uint64_t sequence() const noexcept;
  /// Of a recv that is complete: the rank that sent; else -1.
  [[nodiscard]] int source() const noexcept;

 private:
  std::shared_ptr<State> state_;
  std::uint64_t completed_ = 0;  // sequence + 1 of a call without a state
};

/// One part of a coalesced call: the parts of a call run as one operation with one synchronisation.
struct AllGatherPart {
  ConstBuffer shard;  // count elements; may lie inside `full` at rank * count
  Buffer full;        // size * count elements
  std::size_t count = 0;
};
struct ReducePart {     // all_reduce: count elements in, count out. reduce_scatter: size * count in, count out
  ConstBuffer in;
  Buffer out;           // same dtype, or float32 where `in` is 16 bit (the unrounded sum)
  std::size_t count = 0;
};

struct CommunicatorOptions {
  std::chrono::milliseconds timeout{std::chrono::minutes(10)};
  std::string name = "world";
  /// Folder to which the flight record of this process is dumped when a communicator fails. WIREWISE_FLIGHT_DIR wins over it; empty: none.
  std::filesystem::path flight_dir{};
  /// By rank: its number in the job, where this communicator is a part of the job. Empty: its own ranks are the job's.
  std::vector<int> job_ranks{};
  /// The device that is this rank's alone, such as "cuda:0": two ranks of one host that name the same are bad input. Empty: none.
  std::string device{};
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;

  virtual Work all_reduce(std::span<const ReducePart> parts, Reduction op = Reduction::kSum, CallOptions options = {}) = 0;
  virtual Work all_gather(std::span<const AllGatherPart> parts, CallOptions options = {}) = 0;
  virtual Work reduce_scatter(std::span<const ReducePart> parts, Reduction op = Reduction::kSum, CallOptions options = {}) = 0;
  /// `buffer` of `root` to all others' `buffer`.
  virtual Work broadcast(Buffer buffer, std::size_t count, int root, CallOptions options = {}) = 0;
  /// `out` is written on `root` only.
  virtual Work reduce(ConstBuffer in, Buffer out, std::size_t count, int root, Reduction op = Reduction::kSum,
                      CallOptions options = {}) = 0;
  /// Each rank's count elements into size * count elements at `root`, in rank order.
  virtual Work gather(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options = {}) = 0;
  /// size * count elements at `root`; each rank receives its count elements.
  virtual Work scatter(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options = {}) = 0;
  /// Uneven all-to-all: send_counts[j] elements go to rank j from `in` (in rank order, back to back), recv_counts[j] come from
  /// rank j into `out`. What rank i sends to j must equal what j expects from i.
  virtual Work all_to_all(ConstBuffer in, std::span<const std::size_t> send_counts, Buffer out,
                          std::span<const std::size_t> recv_counts, CallOptions options = {}) = 0;
  /// Point to point. Messages between two ranks with the same tag match in order. wait() of a send means received or buffered.
  virtual Work send(ConstBuffer in, std::size_t count, int peer, int tag, CallOptions options = {}) = 0;
  /// A recv's `peer` may be kAnySource: it takes the first message that no earlier recv of this rank takes.
  virtual Work recv(Buffer out, std::size_t count, int peer, int tag, CallOptions options = {}) = 0;
  virtual Work barrier(CallOptions options = {}) = 0;

  /// Advances pending kOnWait operations as far as possible without blocking.
  virtual void progress() = 0;

  /// A communicator of the ranks that pass the same colour (>= 0), ordered by (key, rank); null for colour < 0. Collective.
  [[nodiscard]] virtual std::unique_ptr<Communicator> split(int colour, int key, CommunicatorOptions options = {}) = 0;

  /// Ends the communicator everywhere: pending and later operations fail on all ranks with `reason`. Never blocks.
  virtual void abort(const std::string& reason) noexcept = 0;

  /// Writes this rank's last calls to `folder`/rank-N.json, N being its number in the job, and returns that path. Failures do it by
  /// themselves where a folder is set. Throws BadInput where calls are not recorded, Failed when the file can't be written.
  virtual std::filesystem::path dump_flight(const std::filesystem::path& folder);

  /// Memory that peers on this host can map, so that operations on it copy nothing twice. Freed with free_shared(); at most
  /// until the communicator dies. Pages are reserved at allocation: a full machine is an error here, never a later SIGBUS.
  [[nodiscard]] virtual void* allocate_shared(std::size_t bytes) = 0;
  virtual void free_shared(void* pointer) noexcept = 0;

  /// True where all ranks are on one host, so that they can share one buffer.
  [[nodiscard]] virtual bool one_host() const noexcept { return false; }
  /// One buffer that all ranks read and write: it lies in the memory of rank `owner`, and each rank gets the address at which it sees it.
  /// Who may touch what when is the callers' affair (barrier()). Contents are undefined. Each rank gives it back with free_shared(); the
  /// memory goes when all have, or have died. Collective. Throws bad input where ranks are on several hosts, Mismatch when they disagree,
  /// Failed on every rank when the owner has no room.
  [[nodiscard]] virtual void* allocate_group_shared(std::size_t bytes, int owner);

  // Single-part forms.
  Work all_reduce(ConstBuffer in, Buffer out, std::size_t count, Reduction op = Reduction::kSum, CallOptions options = {}) {
    const ReducePart part{in, out, count};
    return all_reduce(std::span(&part, 1), op, std::move(options));
  }
  Work all_gather(ConstBuffer shard, Buffer full, std::size_t count, CallOptions options = {}) {
    const AllGatherPart part{shard, full, count};
    return all_gather(std::span(&part, 1), std::move(options));
  }
  Work reduce_scatter(ConstBuffer in, Buffer out, std::size_t count, Reduction op = Reduction::kSum, CallOptions options = {}) {
    const ReducePart part{in, out, count};
    return reduce_scatter(std::span(&part, 1), op, std::move(options));
  }
};

/// Joins `size` processes of one host into a communicator over shared memory (memfd segments passed over an abstract Unix socket;
/// /dev/shm and ptrace are not needed). Collective over the store's ranks; keys are prefixed with the options' name.
[[nodiscard]] std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Store> store, int rank, int size,
                                                              CommunicatorOptions options = {});

/// `size` communicators whose ranks are threads of this process, over one mapping: for tests under thread sanitizers, and for
/// programs that run ranks as threads.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size, CommunicatorOptions options = {});

/// The same with ranks spread over pretended hosts, host_of_rank[r] being rank r's: they meet as hosts do, over queues in memory in place of
/// a network.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> make_thread_communicators(const std::vector<int>& host_of_rank,
                                                                                  CommunicatorOptions options = {});

}  // namespace wirewise
