// Communicators across hosts over the real network: processes of this machine that are told to be different hosts, over loopback.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "comm/namespaces.h"
#include "comm/needs_ucx.h"
#include "comm/ranks.h"
#include "wirewise/base/error.h"
#include "wirewise/comm/ucx_network.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;
using namespace std::chrono_literals;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Runs body on `hosts.size()` ranks, rank r on pretended host hosts[r], over loopback.
std::vector<RankResult> run_hosts(const std::vector<int>& hosts, const std::function<std::string(Communicator&)>& body,
                                  CommunicatorOptions options = {20s}, std::chrono::milliseconds deadline = 60s) {
  const TemporaryFolder folder;
  return run_ranks(
      static_cast<int>(hosts.size()),
      [&](int rank) {
        ::setenv("WIREWISE_HOST_ID", ("host" + std::to_string(hosts[static_cast<std::size_t>(rank)])).c_str(), 1);
        ::setenv("WIREWISE_NET", "lo", 1);
        const auto store = std::make_shared<FileStore>(folder.path() / "store");
        const auto communicator = make_communicator(store, rank, static_cast<int>(hosts.size()), options);
        return body(*communicator);
      },
      deadline);
}

class AcrossHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = no_ucx_here(); !why.empty()) GTEST_SKIP() << why;
  }
};

/// Sums of small integers are exact in every order: element i of rank r is i % 7 + r.
float given(int rank, std::size_t i) { return static_cast<float>(i % 7 + static_cast<std::size_t>(rank)); }
float sum_of(int ranks, std::size_t i) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += given(r, i);
  return sum;
}

std::string every_collective(Communicator& comm) {
  const auto n = static_cast<std::size_t>(comm.size());
  const auto me = static_cast<std::size_t>(comm.rank());
  for (const bool shared : {true, false}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{1'000'003}}) {
      std::vector<float> own_in(count * n);
      std::vector<float> own_out(count * n);
      float* const in = shared ? static_cast<float*>(comm.allocate_shared(count * n * 4)) : own_in.data();
      float* const out = shared ? static_cast<float*>(comm.allocate_shared(count * n * 4)) : own_out.data();
      const auto expect = [&](const char* what, const float* got, std::size_t i, float wanted) {
        if (*got != wanted) {
          throw std::runtime_error(std::string(what) + ": element " + std::to_string(i) + " of " + std::to_string(count) + " is " +
                                   std::to_string(*got) + ", not " + std::to_string(wanted));
        }
      };
      const auto fill = [&](std::size_t length) {
        for (std::size_t i = 0; i < length; ++i) in[i] = given(comm.rank(), i);
        std::fill(out, out + count * n, -1.0f);
      };
      fill(count);
      comm.all_reduce({in, DType::kFloat32}, {out, DType::kFloat32}, count).wait();
      for (std::size_t i = 0; i < count; ++i) expect("all_reduce", out + i, i, sum_of(comm.size(), i));

      fill(count * n);
      comm.reduce_scatter({in, DType::kFloat32}, {out, DType::kFloat32}, count).wait();
      for (std::size_t i = 0; i < count; ++i) expect("reduce_scatter", out + i, i, sum_of(comm.size(), me * count + i));

      fill(count);
      comm.all_gather({in, DType::kFloat32}, {out, DType::kFloat32}, count).wait();
      for (std::size_t i = 0; i < count * n; ++i) expect("all_gather", out + i, i, given(static_cast<int>(i / count), i % count));

      for (int root = 0; root < comm.size(); ++root) {
        fill(count);
        comm.broadcast({in, DType::kFloat32}, count, root).wait();
        for (std::size_t i = 0; i < count; ++i) expect("broadcast", in + i, i, given(root, i));
        fill(count);
        comm.reduce({in, DType::kFloat32}, {out, DType::kFloat32}, count, root).wait();
        if (comm.rank() == root) {
          for (std::size_t i = 0; i < count; ++i) expect("reduce", out + i, i, sum_of(comm.size(), i));
        }
        fill(count);
        comm.gather({in, DType::kFloat32}, {out, DType::kFloat32}, count, root).wait();
        if (comm.rank() == root) {
          for (std::size_t i = 0; i < count * n; ++i) expect("gather", out + i, i, given(static_cast<int>(i / count), i % count));
        }
        fill(count * n);
        comm.scatter({in, DType::kFloat32}, {out, DType::kFloat32}, count, root).wait();
        for (std::size_t i = 0; i < count; ++i) expect("scatter", out + i, i, given(root, me * count + i));
      }

      fill(count * n);
      const std::vector<std::size_t> counts(n, count);
      comm.all_to_all({in, DType::kFloat32}, counts, {out, DType::kFloat32}, counts).wait();
      for (std::size_t i = 0; i < count * n; ++i) {
        expect("all_to_all", out + i, i, given(static_cast<int>(i / count), me * count + i % count));
      }

      // A ring of messages, both ways.
      fill(count);
      const int next = static_cast<int>((me + 1) % n);
      const int before = static_cast<int>((me + n - 1) % n);
      Work sent = comm.send({in, DType::kFloat32}, count, next, 5);
      comm.recv({out, DType::kFloat32}, count, before, 5).wait();
      sent.wait();
      for (std::size_t i = 0; i < count; ++i) expect("recv", out + i, i, given(before, i));
      comm.barrier().wait();
      if (shared) {
        comm.free_shared(in);
        comm.free_shared(out);
      }
    }
  }
  return "";
}

TEST_F(AcrossHosts, CollectivesGiveTheSumsOfTheirRanks) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 1}, {0, 0, 1, 1}, {0, 1, 2}, {0, 0, 0, 1, 1}}) {
    expect_all_ok(run_hosts(hosts, every_collective));
    if (HasFailure()) return;
  }
}

TEST_F(AcrossHosts, AReceiveFromAnyRankTakesThoseOfBothHosts) {
  expect_all_ok(run_hosts({0, 0, 1, 1}, [](Communicator& comm) {
    // Small ones travel with their header, large ones after it.
    for (const std::size_t count : {std::size_t{1}, std::size_t{100'000}}) {
      std::vector<float> data(count, static_cast<float>(comm.rank()));
      if (comm.rank() == 1) {
        std::set<int> senders;
        for (int i = 0; i < 3; ++i) {
          Work work = comm.recv({data.data(), DType::kFloat32}, count, kAnySource, 7);
          work.wait();
          EXPECT_TRUE(senders.insert(work.source()).second);
          EXPECT_EQ(data.back(), static_cast<float>(work.source()));
        }
        EXPECT_EQ(senders, (std::set<int>{0, 2, 3}));
      } else {
        comm.send({data.data(), DType::kFloat32}, count, 1, 7).wait();
      }
      comm.barrier().wait();
    }
    return std::string();
  }));
}

TEST_F(AcrossHosts, BackgroundOperationsCompleteWithoutAWaiter) {
  expect_all_ok(run_hosts({0, 0, 1, 1}, [](Communicator& comm) {
    std::vector<float> data(100'000, 1.0f);
    std::atomic<bool> done{false};
    Work work = comm.all_reduce({data.data(), DType::kFloat32}, {data.data(), DType::kFloat32}, data.size());
    work.then([&](std::exception_ptr error) { done = error == nullptr; });
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!done && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_TRUE(done);
    EXPECT_EQ(data[77], 4.0f);
    comm.barrier().wait();
    return std::string();
  }));
}

TEST_F(AcrossHosts, SplitsHaveTheirOwnRanksAndWires) {
  expect_all_ok(run_hosts({0, 0, 1, 1}, [](Communicator& comm) {
    const auto sum = [](Communicator& group, float value) {
      group.all_reduce({&value, DType::kFloat32}, {&value, DType::kFloat32}, 1).wait();
      return value;
    };
    // Within hosts, across hosts, reversed, and one rank alone.
    const auto same_host = comm.split(comm.rank() / 2, 0, {20s, "same host"});
    EXPECT_EQ(sum(*same_host, static_cast<float>(comm.rank())), comm.rank() < 2 ? 1.0f : 5.0f);
    const auto rail = comm.split(comm.rank() % 2, 0, {20s, "rail"});
    EXPECT_EQ(sum(*rail, static_cast<float>(comm.rank())), comm.rank() % 2 == 0 ? 2.0f : 4.0f);
    const auto reversed = comm.split(0, -comm.rank(), {20s, "reversed"});
    EXPECT_EQ(reversed->rank(), 3 - comm.rank());
    EXPECT_EQ(sum(*reversed, 1.0f), 4.0f);
    const auto three = comm.split(comm.rank() == 3 ? -1 : 0, 0, {20s, "three"});
    EXPECT_EQ(three == nullptr, comm.rank() == 3);
    if (three) {
      EXPECT_EQ(sum(*three, 1.0f), 3.0f);
    }
    comm.barrier().wait();
    return std::string();
  }));
}

TEST_F(AcrossHosts, DisagreementNamesBothSidesOnAllRanks) {
  // Rank 3 is on the other host than rank 0, and asks for one element more.
  const auto results = run_hosts({0, 0, 1, 1}, [](Communicator& comm) {
    std::vector<float> data(100'001, 1.0f);
    const std::size_t count = comm.rank() >= 2 ? 100'001 : 100'000;
    comm.all_reduce({data.data(), DType::kFloat32}, {data.data(), DType::kFloat32}, count).wait();
    return std::string("no error");
  });
  for (const RankResult& result : results) {
    EXPECT_TRUE(contains(result.output, "100001 float32") && contains(result.output, "100000 float32")) << result.output;
    EXPECT_FALSE(result.late);
  }
}

/// The ranks' own WIREWISE_ALGO, set before they meet.
std::vector<RankResult> run_with_algorithms(const std::vector<std::string>& algorithms, const std::function<std::string(Communicator&)>& body) {
  const TemporaryFolder folder;
  return run_ranks(static_cast<int>(algorithms.size()), [&](int rank) {
    const auto i = static_cast<std::size_t>(rank);
    ::setenv("WIREWISE_HOST_ID", ("host" + std::to_string(rank / 2)).c_str(), 1);
    ::setenv("WIREWISE_NET", "lo", 1);
    if (!algorithms[i].empty()) ::setenv("WIREWISE_ALGO", algorithms[i].c_str(), 1);
    const auto store = std::make_shared<FileStore>(folder.path() / "store");
    return body(*make_communicator(store, rank, static_cast<int>(algorithms.size()), {20s}));
  });
}

TEST_F(AcrossHosts, WishedAlgorithmsGiveTheSumsOfTheirRanks) {
  const std::string wish = "all_reduce=doubling,reduce_scatter=doubling,all_gather=ring,broadcast=chain";
  expect_all_ok(run_with_algorithms({wish, wish, wish, wish}, every_collective));
}

TEST_F(AcrossHosts, DisagreeingWishesForAlgorithmsAreNamedOnAllRanks) {
  const auto body = [](Communicator&) { return std::string("no error"); };
  for (const RankResult& result : run_with_algorithms({"all_reduce=direct", "all_reduce=direct", "all_reduce=doubling", ""}, body)) {
    EXPECT_TRUE(contains(result.output, "rank 0 (") && contains(result.output, "WIREWISE_ALGO=all_reduce=direct")) << result.output;
    EXPECT_TRUE(contains(result.output, "rank 2 (") && contains(result.output, "WIREWISE_ALGO=all_reduce=doubling")) << result.output;
    EXPECT_FALSE(result.late);
  }
  for (const RankResult& result : run_with_algorithms({"all_reduce=ring", "all_reduce=ring", "all_reduce=ring", "all_reduce=ring"}, body)) {
    EXPECT_TRUE(contains(result.output, "names no algorithm of all_reduce")) << result.output;
  }
}

TEST_F(AcrossHosts, ADeathIsNamedOnEveryHostWithinASecond) {
  for (const int victim : {0, 1, 3}) {
    const auto results = run_hosts({0, 0, 1, 1}, [victim](Communicator& comm) {
      comm.barrier().wait();
      std::vector<float> data(1'000'000, 1.0f);
      if (comm.rank() == victim) ::raise(SIGKILL);
      const auto start = std::chrono::steady_clock::now();
      try {
        comm.all_reduce({data.data(), DType::kFloat32}, {data.data(), DType::kFloat32}, data.size()).wait();
      } catch (const Error& error) {
        const bool soon = std::chrono::steady_clock::now() - start < 1s;
        return std::string(soon ? "soon: " : "late: ") + error.what();
      }
      return std::string("no error");
    });
    for (int r = 0; r < 4; ++r) {
      const RankResult& result = results[static_cast<std::size_t>(r)];
      if (r == victim) {
        EXPECT_EQ(result.signal, SIGKILL);
        continue;
      }
      EXPECT_TRUE(contains(result.output, "soon: rank " + std::to_string(victim) + " (")) << "rank " << r << ": " << result.output;
      EXPECT_TRUE(contains(result.output, "all_reduce of 1000000 float32")) << result.output;
    }
  }
}

TEST_F(AcrossHosts, AnAbsenteeIsNamedByAllWhenTheDeadlinePasses) {
  // Rank 2 never calls: it waits for the others to end, which shows as a closed pipe of its own deadline.
  const auto results = run_hosts(
      {0, 0, 1, 1},
      [](Communicator& comm) {
        comm.barrier().wait();
        float value = 1;
        if (comm.rank() == 2) {
          ::raise(SIGSTOP);
          return std::string("stopped");
        }
        CallOptions options;
        options.timeout = 1500ms;
        comm.all_reduce({&value, DType::kFloat32}, {&value, DType::kFloat32}, 1, Reduction::kSum, options).wait();
        return std::string("no error");
      },
      {20s}, 8s);
  for (int r = 0; r < 4; ++r) {
    if (r == 2) continue;
    const RankResult& result = results[static_cast<std::size_t>(r)];
    EXPECT_FALSE(result.late) << "rank " << r;
    EXPECT_TRUE(contains(result.output, "timed out after 1500 ms: rank 2 (")) << "rank " << r << ": " << result.output;
  }
}

TEST_F(AcrossHosts, AbortEndsTheWaitsOfAllHosts) {
  const auto results = run_hosts({0, 0, 1, 1}, [](Communicator& comm) {
    comm.barrier().wait();
    if (comm.rank() == 1) {
      comm.abort("enough");
      return std::string("enough");
    }
    float value = 1;
    comm.all_reduce({&value, DType::kFloat32}, {&value, DType::kFloat32}, 1).wait();
    return std::string("no error");
  });
  for (const RankResult& result : results) {
    EXPECT_TRUE(contains(result.output, "enough")) << result.output;
    EXPECT_FALSE(result.late);
  }
}

TEST_F(AcrossHosts, APulledCableFailsTheOperationByItsDeadlineOnBothHosts) {
  const TwoHosts cable;
  if (!cable.made()) GTEST_SKIP() << "network namespaces need root and the ip command";
  const TemporaryFolder folder;
  const auto results = run_ranks(
      4,
      [&](int rank) {
        cable.enter(rank / 2);
        ::unsetenv("MASTER_ADDR");
        // Namespaces are hosts of their own: nothing says so but the namespace.
        const auto store = std::make_shared<FileStore>(folder.path() / "store");
        const auto comm = make_communicator(store, rank, 4, {20s});
        std::vector<float> data(4'000'000, 1.0f);
        comm->all_reduce({data.data(), DType::kFloat32}, {data.data(), DType::kFloat32}, data.size()).wait();
        EXPECT_EQ(data.back(), 4.0f);
        // The first call is over on all ranks: rank 0 may be done while what it sent is still under way.
        store->set("test/first_call_of_" + std::to_string(rank), "done");
        if (rank == 0) {
          for (int r = 1; r < 4; ++r) store->get("test/first_call_of_" + std::to_string(r), 20s);
          EXPECT_TRUE(TwoHosts::run("ip link set " + cable.interface(0) + " down"));
        }
        CallOptions options;
        options.timeout = 3s;
        const auto start = std::chrono::steady_clock::now();
        try {
          for (int i = 0; i < 1000; ++i) {
            comm->all_reduce({data.data(), DType::kFloat32}, {data.data(), DType::kFloat32}, data.size(), Reduction::kSum, options).wait();
          }
        } catch (const Error& error) {
          const bool in_time = std::chrono::steady_clock::now() - start < 10s;
          return std::string(in_time ? "in time: " : "too late: ") + error.what();
        }
        return std::string("no error");
      },
      60s);
  for (int r = 0; r < 4; ++r) {
    const std::string& text = results[static_cast<std::size_t>(r)].output;
    EXPECT_TRUE(contains(text, "in time: ") && contains(text, "all_reduce of 4000000 float32")) << text;
    // Each side names a rank of the other.
    const bool named = r < 2 ? contains(text, "rank 2 (") || contains(text, "rank 3 (") : contains(text, "rank 0 (") || contains(text, "rank 1 (");
    EXPECT_TRUE(named) << text;
  }
}

}  // namespace
}  // namespace wirewise
