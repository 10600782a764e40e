// A rank that is killed, stopped or ends at every phase of every operation: each survivor says who, and in which call.
//
// The victim counts the moments at which peers may have come to rely on it (wirewise/comm/phase.h) and strikes at the k-th; k goes up until
// an operation has no phase left. WIREWISE_FULL=1 tries all of them with more ranks; the short form leaves gaps.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "comm/needs_ucx.h"
#include "comm/ranks.h"
#include "wirewise/base/error.h"
#include "wirewise/comm/phase.h"
#include "wirewise/comm/ucx_network.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

bool full() { return std::getenv("WIREWISE_FULL") != nullptr; }

/// The deadline of calls with a rank that is stopped. Longer than any call without one takes.
constexpr std::chrono::milliseconds kStopDeadline = kPatience * 250ms;

enum class Strike : std::uint8_t { kKill, kStop, kExit };

std::atomic<int> countdown{0};
bool across_hosts = false;  // the upper half of the ranks is told to be on another host; over loopback
Strike strike{};
std::atomic<std::int64_t>* struck_at = nullptr;  // in memory that the survivors see

void on_phase(const char*) {
  if (countdown.fetch_sub(1) != 1) return;
  struck_at->store(Clock::now().time_since_epoch().count());
  switch (strike) {
    case Strike::kKill: ::kill(::getpid(), SIGKILL); break;
    case Strike::kStop: ::kill(::getpid(), SIGSTOP); break;
    case Strike::kExit: ::_exit(7);
  }
}

CommunicatorOptions part_options;  // of communicators that operations make

struct Case {
  const char* name;
  std::function<void(Communicator&, float*, float*, std::size_t)> call;
};

std::vector<Case> cases() {
  constexpr DType kType = DType::kFloat32;
  return {
      {"all_reduce", [](Communicator& comm, float* in, float* out, std::size_t n) { comm.all_reduce({in, kType}, {out, kType}, n).wait(); }},
      {"all_gather", [](Communicator& comm, float* in, float* out, std::size_t n) { comm.all_gather({in, kType}, {out, kType}, n / 4).wait(); }},
      {"reduce_scatter", [](Communicator& comm, float* in, float* out, std::size_t n) { comm.reduce_scatter({in, kType}, {out, kType}, n / 4).wait(); }},
      {"broadcast", [](Communicator& comm, float* in, float*, std::size_t n) { comm.broadcast({in, kType}, n, 0).wait(); }},
      {"reduce", [](Communicator& comm, float* in, float* out, std::size_t n) { comm.reduce({in, kType}, {out, kType}, n, 0).wait(); }},
      {"gather", [](Communicator& comm, float* in, float* out, std::size_t n) { comm.gather({in, kType}, {out, kType}, n / 4, 0).wait(); }},
      {"scatter", [](Communicator& comm, float* in, float* out, std::size_t n) { comm.scatter({in, kType}, {out, kType}, n / 4, 0).wait(); }},
      {"all_to_all",
       [](Communicator& comm, float* in, float* out, std::size_t n) {
         const std::vector<std::size_t> counts(static_cast<std::size_t>(comm.size()), n / 4);
         comm.all_to_all({in, kType}, counts, {out, kType}, counts).wait();
       }},
      {"barrier", [](Communicator& comm, float*, float*, std::size_t) { comm.barrier().wait(); }},
      {"messages",
       [](Communicator& comm, float* in, float* out, std::size_t n) {
         std::vector<Work> works;
         for (int r = 0; r < comm.size(); ++r) {
           if (r != comm.rank()) works.push_back(comm.send({in, kType}, n / 4, r, 3));
         }
         for (int r = 0; r < comm.size(); ++r) {
           if (r != comm.rank()) works.push_back(comm.recv({out + static_cast<std::size_t>(r) * (n / 4), kType}, n / 4, r, 3));
         }
         for (Work& work : works) work.wait();
       }},
      {"split", [](Communicator& comm, float*, float*, std::size_t) { comm.split(0, comm.rank(), part_options)->barrier().wait(); }},
  };
}

struct Size {
  const char* name;
  std::size_t count;
  bool shared;
};
constexpr Size kSizes[] = {{"small", 8, false}, {"medium", 2000, false}, {"staged", 600'000, false}, {"shared", 600'000, true}};

/// Runs the case with a victim that strikes at phase `k`. False when the operation has no such phase.
bool run(const Case& one, const Size& size, int ranks, int victim, Strike how, int k) {
  struct Page {
    std::atomic<std::int64_t> struck{0};
    std::atomic<int> pids[8] = {};
  };
  auto* const page = static_cast<Page*>(::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ::new (page) Page{};
  CommunicatorOptions options;
  options.timeout = how == Strike::kStop ? kStopDeadline : 30s;
  part_options.timeout = options.timeout;
  std::atomic<int>& finished = page->pids[7];
  std::atomic<int>& victim_done = page->pids[6];
  const TemporaryFolder folder;
  const auto results = run_ranks(ranks, [&](int rank) {
    CommunicatorOptions meeting = options;
    page->pids[rank].store(::getpid());
    if (across_hosts) {
      ::setenv("WIREWISE_HOST_ID", 2 * rank < ranks ? "host0" : "host1", 1);
      ::setenv("WIREWISE_NET", "lo", 1);
    }
    const auto store = std::make_shared<FileStore>(folder.path() / "store");
    std::unique_ptr<Communicator> comm;
    {
      // Meeting takes its own time on a busy machine.
      CommunicatorOptions patient = options;
      patient.timeout = 30s;
      patient.name = "outer";
      comm = make_communicator(store, rank, ranks, patient);
      comm->barrier().wait();
      meeting.name = "world";
      auto inner = comm->split(0, rank, meeting);
      comm->barrier().wait();
      comm.swap(inner);
      inner.reset();
    }
    std::vector<float> own;
    const std::size_t bytes = 4 * size.count * sizeof(float);
    auto* in = static_cast<float*>(size.shared ? comm->allocate_shared(bytes) : nullptr);
    auto* out = static_cast<float*>(size.shared ? comm->allocate_shared(bytes) : nullptr);
    if (!size.shared) {
      own.resize(8 * size.count);
      in = own.data();
      out = in + 4 * size.count;
    }
    if (rank == victim) {
      countdown.store(k);
      strike = how;
      struck_at = &page->struck;
      comm::phase_hook.store(on_phase);
    }
    std::string said;
    try {
      one.call(*comm, in, out, size.count);
      comm->barrier().wait();
    } catch (const Error& error) {
      said = std::to_string(static_cast<int>(error.kind())) + " " + error.what();
      const auto took = std::chrono::nanoseconds(Clock::now().time_since_epoch().count() - page->struck.load());
      if (page->struck.load() != 0) {
        EXPECT_LT(took, 20s);
      }
    }
    comm::phase_hook.store(nullptr);
    if (rank == victim) victim_done.store(1);
    // The last survivor ends a victim that is stopped, or is about to be.
    if (rank != victim && finished.fetch_add(1) == ranks - 2 && how == Strike::kStop) {
      while (page->struck.load() == 0 && victim_done.load() == 0) std::this_thread::yield();
      if (page->struck.load() != 0) ::kill(page->pids[victim].load(), SIGKILL);
    }
    return said;
  });
  const bool struck = page->struck.load() != 0;
  const std::string name = "rank " + std::to_string(victim) + " (";
  const std::string process = "pid " + std::to_string(page->pids[victim].load()) + ")";
  const std::string where = std::string(one.name) + ", " + size.name + ", " + std::to_string(ranks) + " ranks, victim " + std::to_string(victim) + ", strike " +
                            std::to_string(static_cast<int>(how)) + " at phase " + std::to_string(k);
  for (int r = 0; r < ranks; ++r) {
    const RankResult& result = results[static_cast<std::size_t>(r)];
    if (r == victim && struck) continue;
    EXPECT_TRUE(result.ok() && !result.late) << where << ", rank " << r << ": " << result.output << result.signal;
    if (!struck) {
      EXPECT_EQ(result.output, "") << where << ", rank " << r;
      continue;
    }
    const ErrorKind kind = how == Strike::kStop ? ErrorKind::kTimeout : ErrorKind::kPeerLost;
    // Having heard all of the victim's last barrier, a survivor may be done before it strikes.
    if (result.output.empty()) continue;
    const std::string& text = result.output;
    EXPECT_EQ(text.substr(0, text.find(' ')), std::to_string(static_cast<int>(kind))) << where << ", rank " << r << ": " << text;
    EXPECT_TRUE(text.find(name) != std::string::npos && text.find(process) != std::string::npos) << where << ", rank " << r << ": " << text;
    EXPECT_TRUE(text.find(" (call ") != std::string::npos || text.find(" with tag 3 (") != std::string::npos ||
                text.find("split into") != std::string::npos)
        << where << ", rank " << r << ": " << text;
  }
  ::munmap(page, sizeof(Page));
  return struck;
}

void strike_everywhere(Strike how, int first, int step) {
  int number = 0;
  for (const Case& one : cases()) {
    for (const Size& size : kSizes) {
      const std::string name = one.name;
      if ((name == "barrier" || name == "split") && size.count > 8) continue;
      ++number;
      const std::vector<int> counts = full() ? std::vector<int>{2, 3, 4} : std::vector<int>{2 + number % 3};
      for (const int ranks : counts) {
        for (const int victim : full() ? std::vector<int>{0, ranks - 1} : std::vector<int>{number % 2 == 0 ? 0 : ranks - 1}) {
          int phases = 0;
          const bool narrow = name == "split";
          const int stride = full() ? 1 : narrow ? std::min(step, 11) : step;
          for (int k = full() ? 1 : first + number % stride; run(one, size, ranks, victim, how, k); k += stride) {
            ++phases;
            if (::testing::Test::HasFailure()) return;
          }
          if (full()) {
            EXPECT_GT(phases, 0) << one.name << " " << size.name;
          }
        }
      }
    }
  }
}

class AtAnyPhaseAcrossHosts : public ::testing::TestWithParam<Strike> {
 protected:
  void SetUp() override {
    if (const std::string why = no_ucx_here(); !why.empty()) GTEST_SKIP() << why;
    across_hosts = true;
  }
  void TearDown() override { across_hosts = false; }
};
INSTANTIATE_TEST_SUITE_P(Strikes, AtAnyPhaseAcrossHosts, ::testing::Values(Strike::kKill, Strike::kStop, Strike::kExit));
TEST_P(AtAnyPhaseAcrossHosts, EverySurvivorNamesTheVictim) { strike_everywhere(GetParam(), 1, GetParam() == Strike::kKill ? 61 : 151); }

TEST(Killed, AtAnyPhaseOfAnyOperationIsNamedByEverySurvivor) { strike_everywhere(Strike::kKill, 1, 9); }
TEST(Stopped, AtAnyPhaseOfAnyOperationIsNamedByEverySurvivor) { strike_everywhere(Strike::kStop, 1, 23); }
TEST(Exited, AtAnyPhaseOfAnyOperationIsNamedByEverySurvivor) { strike_everywhere(Strike::kExit, 1, 23); }

}  // namespace
}  // namespace wirewise
