// One rank's side of a communicator across hosts: the group of its host, the wires to the others, its operations and who drives them.
//
// Collectives run one after another, in order of issue: so the calls that they make on the host's group come in one order on all its
// ranks. Messages run beside them. Whoever waits drives; a thread takes background operations that nobody waits for.
//
// A failure is recorded in the host's control memory and told to the other hosts; the first one that a host learns of is what all its
// ranks report.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/flight_recorder.h"
#include "wirewise/comm/host_map.h"
#include "wirewise/comm/local_communicator.h"
#include "wirewise/comm/overseer.h"
#include "wirewise/comm/wires.h"

namespace wirewise::comm {

class SpanningOperation;

/// Where calls are recorded, and the ranks' numbers in the job.
struct FlightTicket {
  std::shared_ptr<FlightRecorder> recorder;  // null: nowhere
  std::vector<int> job_ranks;                // empty: unknown
  [[nodiscard]] int job_rank(int r) const noexcept {
    return static_cast<std::size_t>(r) < job_ranks.size() ? job_ranks[static_cast<std::size_t>(r)] : -1;
  }
};

class SpanningGroup final : public std::enable_shared_from_this<SpanningGroup> {
 public:
  SpanningGroup(HostMap hosts, int rank, std::vector<RankIdentity> identities, std::unique_ptr<LocalCommunicator> local, Wires wires,
                FlightTicket flight, CommunicatorOptions options);
  ~SpanningGroup();
  SpanningGroup(const SpanningGroup&) = delete;
  SpanningGroup& operator=(const SpanningGroup&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return hosts_.ranks(); }
  [[nodiscard]] const HostMap& hosts() const noexcept { return hosts_; }
  [[nodiscard]] int host() const noexcept { return hosts_.host_of(rank_); }
  [[nodiscard]] int place() const noexcept { return hosts_.place_of(rank_); }
  [[nodiscard]] const std::vector<int>& rails() const noexcept { return rails_; }
  [[nodiscard]] LocalCommunicator& local() noexcept { return *local_; }
  [[nodiscard]] const std::shared_ptr<Group>& local_group() noexcept { return local_->group(); }
  [[nodiscard]] Network& network() noexcept { return *wires_.network; }
  [[nodiscard]] const CommunicatorOptions& options() const noexcept { return options_; }
  [[nodiscard]] const std::vector<RankIdentity>& identities() const noexcept { return identities_; }

  [[nodiscard]] const FlightTicket& flight() const noexcept { return flight_; }

  /// The next call is number 0, and the first to be recorded. Where nothing is in flight.
  void count_from_here();

  Work issue(std::shared_ptr<SpanningOperation> operation);
  void wait(SpanningOperation& operation, Level level);
  bool test(SpanningOperation& operation);
  void progress();
  void abort(const std::string& reason) noexcept;
  void close() noexcept;

  /// Looks whether ranks have died or told of a failure while this one does something that is no operation, "split into part". Throws it.
  void look_after(const std::string& doing);
  /// What to say where such a thing ends with `found`: the first cause where one is known; for a deadline that has passed, the ranks that
  /// look after nothing, on any host, which all ranks are told. nullopt while they are still being asked, `found` where all answer. Never waits.
  [[nodiscard]] std::optional<Error> blame(const Error& found, const std::string& doing);
  /// Who is asked while its operations are waited for, and before a deadline counts.
  [[nodiscard]] Overseen& overseen() noexcept { return overseen_; }
  /// The first cause where `found` ended something that is no operation: what others tell of, a death, or else `found`, which all are told.
  [[nodiscard]] Error first_cause(const Error& found, const std::string& doing) noexcept;

  /// The network says that a peer is gone.
  void note_lost(int r) { lost_.insert(r); }
  /// Keeps memory that peers may still use after a failure, until all have left.
  void keep(void* block) noexcept { kept_.push_back(block); }

  [[nodiscard]] std::string name_of_rank(int r) const;
  [[nodiscard]] Error mismatch(int a, const Fingerprint& first, int b, const Fingerprint& second) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Passed {
    bool moved = false;
    std::vector<std::shared_ptr<SpanningOperation>> finished;
  };
  /// Ranks by name, as a list.
  struct Stragglers {
    std::string absent;   // have not entered, and look after nothing
    std::string silent;   // have entered, but look after nothing
    std::string waiting;  // have not entered, since they wait for others
    void add(const Stragglers& others);
    /// Those who hold up the others: "rank 3 (node1, pid 4711) did not arrive"; empty where nobody does.
    [[nodiscard]] std::string describe() const;
  };
  struct Question {  // what became of asking who is missing in a call
    std::uint64_t sequence = 0;
    Clock::time_point asked;
    bool again = false;                  // asked a second time: whom silence marks is known by then
    std::map<int, Stragglers> answers;   // by rank asked, of its host
  };
  struct alignas(64) Entered {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<Clock::rep> driven{0};  // when this rank last looked after its operations
  };

  // Under drive_mutex_.
  void drive(Passed& passed);
  bool advance(Passed& passed, const std::shared_ptr<SpanningOperation>& operation);
  void check_health(Passed& passed);
  void hear(Passed& passed);
  void look_at_peers(Passed& passed, Clock::time_point now);
  [[nodiscard]] bool overdue(int r, Clock::time_point now, Clock::duration grace);
  /// True when a rank has died: then all has failed.
  bool find_deaths(Passed& passed, Clock::time_point now, const std::string& during);
  void look_at_deadlines(Passed& passed, Clock::time_point now);
  [[nodiscard]] std::optional<Stragglers> ask(std::uint64_t sequence, Clock::time_point now);
  [[nodiscard]] std::optional<std::string> who_is_missing(const SpanningOperation& operation, Clock::time_point now);
  [[nodiscard]] Stragglers stragglers_here(std::uint64_t sequence) const;
  void fail_all(Passed& passed, const Error& error);
  void record_flight(const Error& error) noexcept;
  [[nodiscard]] const SpanningOperation* oldest_open() const;

  void finish(Passed& passed) noexcept;
  /// Lets the overseer look; what it finds fails all.
  void be_overseen();
  void idle(int& spins, Clock::time_point& since, std::uint32_t bell);
  void run_in_background();

  HostMap hosts_;
  int rank_;
  std::vector<RankIdentity> identities_;
  std::unique_ptr<LocalCommunicator> local_;
  Wires wires_;
  FlightTicket flight_;
  std::uint32_t flight_id_ = 0;
  CommunicatorOptions options_;
  std::vector<int> rails_;
  Entered* board_ = nullptr;  // by place on this host; in the memory of its first rank
  void* board_block_ = nullptr;
  bool spin_ = false;

  std::mutex issue_mutex_;  // taken after drive_mutex_ where both are
  std::deque<std::shared_ptr<SpanningOperation>> fresh_;
  std::uint64_t next_sequence_ = 0;
  std::optional<Error> failure_;
  bool closed_ = false;

  std::mutex drive_mutex_;
  std::deque<std::shared_ptr<SpanningOperation>> collectives_;
  std::vector<std::shared_ptr<SpanningOperation>> messages_;
  Clock::time_point next_health_check_{};
  std::optional<Question> question_;
  std::vector<void*> kept_;
  std::set<int> departed_;
  std::set<int> lost_;  // as the network says
  std::map<int, Clock::time_point> missed_since_;  // by rank: when it was first seen dead or departed

  std::atomic<int> waiters_{0};
  std::atomic<int> background_{0};  // operations that the thread looks after
  std::atomic<bool> on_network_{false};  // what is open waits for the network, too
  std::atomic<bool> on_host_{false};     // the collective that runs waits for ranks of this host, too
  std::mutex thread_mutex_;
  std::condition_variable thread_wanted_;
  std::thread thread_;
  bool stop_ = false;
  std::condition_variable passed_;  // with thread_mutex_: something was driven
  Overseen overseen_;
};

}  // namespace wirewise::comm
