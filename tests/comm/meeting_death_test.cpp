// A rank is killed while ranks of two hosts meet: the others name it, long before the deadline.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "comm/namespaces.h"
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

constexpr auto kDeadline = 120s;

struct Page {
  std::atomic<int> pid{0};
};

const char* strike_at = nullptr;

void strike(const char* what) {
  if (std::string_view(what) == strike_at) ::kill(::getpid(), SIGKILL);
}

class MeetingDeath : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = no_ucx_here(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_F(MeetingDeath, IsNamedLongBeforeTheDeadline) {
  struct Case {
    std::vector<int> hosts;
    int victim;
    const char* phase;
  };
  // A rank that is alone on its host is watched by nobody until its address is known.
  const Case cases[] = {{{0, 0, 1, 1}, 1, "introduced"}, {{0, 0, 1, 1}, 2, "introduced"}, {{0, 0, 1}, 0, "joined"},    {{0, 0, 1, 1}, 3, "joined"},
                        {{0, 0, 1, 1}, 0, "connecting"}, {{0, 1}, 0, "connecting"},       {{0, 1}, 1, "connecting"}};
  for (const Case& one : cases) {
    SCOPED_TRACE(std::string(one.phase) + ", " + std::to_string(one.hosts.size()) + " ranks, victim " + std::to_string(one.victim));
    const Shared<Page> page;
    const TemporaryFolder folder;
    const auto results = run_ranks(
        static_cast<int>(one.hosts.size()),
        [&](int rank) {
          ::setenv("WIREWISE_HOST_ID", ("host" + std::to_string(one.hosts[static_cast<std::size_t>(rank)])).c_str(), 1);
          ::setenv("WIREWISE_NET", "lo", 1);
          if (rank == one.victim) {
            page->pid.store(::getpid());
            strike_at = one.phase;
            comm::phase_hook.store(strike);
          }
          const auto start = Clock::now();
          try {
            const auto comm = make_communicator(std::make_shared<FileStore>(folder.path() / "store"), rank, static_cast<int>(one.hosts.size()), {kDeadline});
          } catch (const Error& error) {
            EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(ErrorKind::kPeerLost));
            EXPECT_LT(Clock::now() - start, kDeadline / 2);
            return std::string(error.what());
          }
          return std::string("no error");
        },
        2 * kDeadline);
    const std::string name = "rank " + std::to_string(one.victim) + " (";
    const std::string process = "pid " + std::to_string(page->pid.load()) + ")";
    for (int r = 0; r < static_cast<int>(one.hosts.size()); ++r) {
      const RankResult& result = results[static_cast<std::size_t>(r)];
      if (r == one.victim) {
        EXPECT_EQ(result.signal, SIGKILL);
        continue;
      }
      EXPECT_TRUE(result.ok() && !result.late) << "rank " << r << ": " << result.output;
      EXPECT_TRUE(result.output.find(name) != std::string::npos && result.output.find(process) != std::string::npos) << "rank " << r << ": " << result.output;
    }
    if (HasFailure()) return;
  }
}

TEST_F(MeetingDeath, WhatIsWrongWithOneRankIsToldToAll) {
  const TemporaryFolder folder;
  const auto results = run_ranks(4, [&](int rank) {
    ::setenv("WIREWISE_HOST_ID", rank < 2 ? "host0" : "host1", 1);
    ::setenv("WIREWISE_NET", rank == 3 ? "nosuch0" : "lo", 1);
    return std::string(make_communicator(std::make_shared<FileStore>(folder.path() / "store"), rank, 4, {kDeadline}) ? "no error" : "");
  }, kDeadline / 2);
  for (int r = 0; r < 4; ++r) {
    const RankResult& result = results[static_cast<std::size_t>(r)];
    EXPECT_FALSE(result.late) << "rank " << r;
    EXPECT_NE(result.output.find("nosuch0"), std::string::npos) << "rank " << r << ": " << result.output;
    if (r != 3) {
      EXPECT_NE(result.output.find("rank 3 ("), std::string::npos) << "rank " << r << ": " << result.output;
    }
  }
}

}  // namespace
}  // namespace wirewise
