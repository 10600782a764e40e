// One rank's side of a communicator: its operations in flight, who drives them, how it waits, and what it does when a peer fails.
//
// Operations are kept in order of issue. Whoever waits drives all of them (so no order of waiting can deadlock); otherwise the progress
// thread of the process does. A waiter spins a little, yields, then sleeps on this rank's bell, and looks whether the peers live and the
// deadlines hold. The first failure of any rank is written to control memory once, and is what every rank reports.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/control.h"
#include "wirewise/comm/engine.h"
#include "wirewise/comm/link.h"
#include "wirewise/comm/mailbox.h"
#include "wirewise/comm/operation.h"
#include "wirewise/comm/overseer.h"
#include "wirewise/comm/peer_memory.h"
#include "wirewise/comm/quick_call.h"

namespace wirewise::comm {

/// Bytes of one round of staged copies, for all destinations together. The staging area holds two rounds of inputs and two of results
/// (which may be twice as wide, but are of one slice only).
inline constexpr std::size_t kRoundBytes = std::size_t{1} << 20;
inline constexpr std::size_t kStageBytes = 4 * kRoundBytes;
/// Copies of small calls: ranks in step need two lanes.
inline constexpr std::size_t kLanes = 4;

/// "all_reduce of 1024 float32 (call 7 of world, 'label')".
[[nodiscard]] std::string describe_call(const Fingerprint& print, const std::string& communicator);

class Group final : public EngineClient, public std::enable_shared_from_this<Group> {
 public:
  Group(Link link, CommunicatorOptions options);
  ~Group() override;

  [[nodiscard]] int rank() const noexcept { return link_.rank; }
  [[nodiscard]] int size() const noexcept { return link_.size; }
  [[nodiscard]] const Link& link() const noexcept { return link_; }
  [[nodiscard]] const Control& control() const noexcept { return control_; }
  [[nodiscard]] const CommunicatorOptions& options() const noexcept { return options_; }
  [[nodiscard]] ProcessContext& context() const noexcept { return *link_.context; }
  /// Peers' memory that isn't shared.
  [[nodiscard]] PeerMemory& peer_memory() noexcept { return peer_memory_; }
  /// Memory at `offset` of rank `r`'s arena.
  [[nodiscard]] std::byte* at(int r, std::uint64_t offset) const noexcept { return link_.bases[static_cast<std::size_t>(r)] + offset; }

  // --- for callers
  Work issue(std::shared_ptr<Work::State> operation);
  /// Runs a collective at once if its peers are in step (quick_call.h).
  [[nodiscard]] Attempt attempt(QuickCall& call);
  /// The operation that goes on with an attempt's call.
  Work issue_announced(std::shared_ptr<Work::State> operation);
  void wait(Work::State& operation, Level level);
  bool test(Work::State& operation);
  void progress();
  void abort(const std::string& reason) noexcept;
  /// The first failure of any rank, once there is one.
  [[nodiscard]] std::optional<Error> recorded_failure() const;
  /// Tells all ranks of a failure, unless there is an earlier one.
  void record_failure(const Error& error) noexcept;
  /// For callers that wait for several things: sleeps until a peer moved something since bell() was read, or the time is over.
  [[nodiscard]] std::uint32_t bell() const noexcept { return control_.rank(rank()).doorbell.load(); }
  void sleep(std::uint32_t bell, std::chrono::nanoseconds most) noexcept;
  /// The rank of a message of this tag that has come and that no receive waits for.
  [[nodiscard]] std::optional<int> probe(std::int32_t tag);
  /// From here on this group serves a communicator across hosts, whose ranks `members` are this host's: errors name those, and calls by
  /// their labels alone.
  void serve(const std::vector<RankIdentity>& identities, const std::vector<int>& members);
  /// Who is asked while its operations are waited for, and before a deadline counts.
  [[nodiscard]] Overseen& overseen() noexcept { return overseen_; }
  /// Ends this rank's part: operations that are not complete fail, here and at the peers.
  void close() noexcept;

  // --- for operations, while they are driven
  /// Tells rank `r` that something moved.
  void ring(int r) noexcept;
  void ring_peers() noexcept;
  /// Whether it is `operation`'s turn with the staging area. Operations that may stage have it in order of issue: any other order could
  /// make ranks wait in a circle.
  [[nodiscard]] bool has_stage(const Work::State* operation) const noexcept {
    return !stage_queue_.empty() && stage_queue_.front() == operation;
  }
  void leave_stage(const Work::State* operation) noexcept;
  /// The staging area's offset in this rank's arena; allocates it on first use.
  [[nodiscard]] std::uint64_t stage_offset();
  /// The offset of a lane for the copies of a small call, free until all ranks have finished `sequence`; 0 while none is free. While issuing.
  [[nodiscard]] std::uint64_t take_lane(std::uint64_t sequence);
  /// Where rank `r`'s copy for a small call lies.
  [[nodiscard]] const std::byte* carried_data(std::uint64_t sequence, int r) const noexcept;
  /// Whether all ranks have called, of a small reduction, without a copy: then each reduces a slice, as of large ones.
  [[nodiscard]] bool all_direct(std::uint64_t sequence) const noexcept;
  /// Reduces this rank's slice where all inputs (and an all_reduce's outputs) lie in shared memory, as the heads of the call say.
  void reduce_slice(const QuickCall& call) const;
  /// Keeps arena memory until all ranks have left.
  void keep_until_closed(void* block) { kept_.push_back(block); }

  /// The state of messages; while driving.
  [[nodiscard]] Mailboxes& mailboxes() noexcept { return mailboxes_; }

  // --- texts
  [[nodiscard]] std::string name_of_rank(int r) const;
  [[nodiscard]] std::string describe(const Fingerprint& print) const;
  /// The error of ranks that called different things.
  [[nodiscard]] Error mismatch(int a, const Fingerprint& first, int b, const Fingerprint& second) const;

  Drive drive_in_background(bool everything) override;

 private:
  struct Passed {
    bool moved = false;
    std::vector<std::shared_ptr<Work::State>> finished;
  };
  /// One round of driving. True when anything moved.
  bool look_once();
  /// Lets go of operations that are over but for their peers' last words, so that calls after them find slots and lanes free.
  void retire_complete();
  // All of these run under drive_mutex_.
  void drive(Passed& passed, const Work::State* until, Level level, bool yield_to_waiters);
  void look_for_failure(Passed& passed);
  void check_health(Passed& passed);
  void fail_all(Passed& passed, const Error& error);
  void fail_open(Passed& passed) noexcept;
  void settle(const std::shared_ptr<Work::State>& operation, Passed& passed);
  void adopt();
  void retire(std::size_t index);
  void post_ready();  // under issue_mutex_
  [[nodiscard]] bool slot_free(std::uint64_t sequence) noexcept;                 // under issue_mutex_, like the next five
  [[nodiscard]] bool all_finished(std::uint64_t sequence) noexcept;
  void finish_sequence(std::uint64_t sequence) noexcept;
  [[nodiscard]] bool name_buffers(const QuickCall& call, CallHead& head) const;
  [[nodiscard]] bool place(QuickCall& call, CallHead& head);
  [[nodiscard]] bool move(const QuickCall& call);
  void finish(Passed& passed) noexcept;
  /// Lets the overseer look; what it finds fails all.
  void be_overseen();
  /// A waiter may have found the operations in this thread's hands and gone to sleep: now it may have them.
  void hand_over() noexcept;
  [[nodiscard]] std::string describe_missing(const Work::State& operation) const;
  /// Names this communicator to the flight recorder; in the constructor.
  void begin_record();
  /// Dumps the flight record, once.
  void record_flight(const Error& error) noexcept;
  [[nodiscard]] std::uint64_t entered_by(int r) const noexcept;

  Link link_;
  Control control_;
  CommunicatorOptions options_;
  PeerMemory peer_memory_;
  bool spin_ = false;
  std::uint32_t flight_id_ = 0;
  std::atomic<bool> flight_told_{false};

  std::mutex issue_mutex_;  // taken after drive_mutex_ where both are
  std::deque<std::shared_ptr<Work::State>> fresh_;     // issued, not yet driven
  std::deque<std::shared_ptr<Work::State>> unposted_;  // issued, waiting for their slot
  std::uint64_t next_sequence_ = 0;
  std::uint64_t finished_ = 0;       // all calls below are over here
  std::uint64_t finished_mask_ = 0;  // bit i: so is finished_ + 1 + i
  std::vector<std::uint64_t> known_finished_;  // by rank: its counter when last heard of
  void* lane_memory_ = nullptr;
  std::uint64_t lane_turn_ = 0;
  std::array<std::uint64_t, kLanes> lane_users_{};  // sequence + 1
  int background_ = 0;
  std::optional<Error> failure_;
  bool closed_ = false;

  std::mutex drive_mutex_;
  std::vector<std::shared_ptr<Work::State>> active_;
  std::atomic<std::size_t> active_count_{0};
  std::deque<const Work::State*> stage_queue_;
  std::chrono::steady_clock::time_point next_health_check_{};
  std::vector<void*> kept_;
  Mailboxes mailboxes_;

  void* stage_ = nullptr;  // under issue_mutex_
  std::atomic<int> waiters_{0};
  Overseen overseen_;
};

}  // namespace wirewise::comm
