// What goes wrong between ranks, and that every survivor says so, with the same first cause.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "comm/ranks.h"
#include "wirewise/base/error.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;
using namespace std::chrono_literals;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Runs a call that must fail; returns the error's text, with its kind checked.
std::string failing(ErrorKind kind, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.what();
    EXPECT_FALSE(error.sentence().empty());
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

// --- ranks that disagree

struct Disagreement {
  const char* name;
  std::function<Work(Communicator&, std::vector<double>&)> first;   // rank 0
  std::function<Work(Communicator&, std::vector<double>&)> second;  // the others
  const char* says_first;
  const char* says_second;
};

std::vector<Disagreement> disagreements() {
  const auto all_reduce = [](std::size_t count, DType dtype, Reduction op) {
    return [=](Communicator& comm, std::vector<double>& data) { return comm.all_reduce({data.data(), dtype}, {data.data(), dtype}, count, op); };
  };
  const auto broadcast = [](int root) {
    return [=](Communicator& comm, std::vector<double>& data) { return comm.broadcast({data.data(), DType::kFloat32}, 8, root); };
  };
  return {
      {"operation", all_reduce(1024, DType::kFloat32, Reduction::kSum), [](Communicator& comm, std::vector<double>&) { return comm.barrier(); },
       "all_reduce of 1024 float32 (call 0 of world)", "barrier (call 0 of world)"},
      {"count", all_reduce(10, DType::kFloat32, Reduction::kSum), all_reduce(11, DType::kFloat32, Reduction::kSum), "of 10 float32", "of 11 float32"},
      {"type", all_reduce(10, DType::kFloat32, Reduction::kSum), all_reduce(10, DType::kInt32, Reduction::kSum), "of 10 float32", "of 10 int32"},
      {"reduction", all_reduce(10, DType::kFloat32, Reduction::kSum), all_reduce(10, DType::kFloat32, Reduction::kMax), "of 10 float32 (", "float32, max"},
      {"root", broadcast(0), broadcast(1), "root 0", "root 1"},
      {"parts",
       [](Communicator& comm, std::vector<double>& data) {
         const std::vector<ReducePart> parts{{{data.data(), DType::kFloat32}, {data.data(), DType::kFloat32}, 4},
                                             {{data.data() + 8, DType::kFloat32}, {data.data() + 8, DType::kFloat32}, 6}};
         return comm.all_reduce(parts);
       },
       [](Communicator& comm, std::vector<double>& data) {
         const std::vector<ReducePart> parts{{{data.data(), DType::kFloat32}, {data.data(), DType::kFloat32}, 6},
                                             {{data.data() + 8, DType::kFloat32}, {data.data() + 8, DType::kFloat32}, 4}};
         return comm.all_reduce(parts);
       },
       "in 2 parts", "in 2 parts"},
  };
}

TEST(Mismatch, IsAnErrorOnAllRanksThatNamesBothSides) {
  for (const int ranks : {2, 3, 5}) {
    for (const Disagreement& wrong : disagreements()) {
      std::vector<std::string> texts(static_cast<std::size_t>(ranks));
      expect_no_errors(run_threads(ranks, [&](Communicator& comm) {
        std::vector<double> data(1024);
        texts[static_cast<std::size_t>(comm.rank())] = failing(ErrorKind::kMismatch, [&] {
          (comm.rank() == 0 ? wrong.first : wrong.second)(comm, data).wait();
          // A rank whose part was over before the others disagreed hears it with its next call.
          comm.barrier().wait();
        });
      }));
      for (const std::string& text : texts) {
        EXPECT_TRUE(contains(text, "rank 0 (") && contains(text, wrong.says_first) && contains(text, wrong.says_second)) << wrong.name << ": " << text;
        EXPECT_EQ(text, texts.front()) << "the first cause is the same for all";
      }
    }
  }
}

TEST(Mismatch, InAllToAllCountsNamesThePair) {
  expect_no_errors(run_threads(2, [](Communicator& comm) {
    std::vector<float> in(16);
    std::vector<float> out(16);
    const std::vector<std::size_t> send{2, 2};
    const std::vector<std::size_t> recv = comm.rank() == 0 ? std::vector<std::size_t>{2, 3} : std::vector<std::size_t>{2, 2};
    const std::string text = failing(ErrorKind::kMismatch, [&] {
      comm.all_to_all({in.data(), DType::kFloat32}, send, {out.data(), DType::kFloat32}, recv).wait();
      comm.barrier().wait();
    });
    EXPECT_TRUE(contains(text, "rank 1 (") && contains(text, "sends 2 elements to rank 0") && contains(text, "expects 3")) << text;
  }));
}

TEST(Mismatch, LaterCallsFailWithTheSameCause) {
  expect_no_errors(run_threads(2, [](Communicator& comm) {
    float value = 0;
    const auto wrong = [&] { comm.broadcast({&value, DType::kFloat32}, 1, comm.rank()).wait(); comm.barrier().wait(); };
    const std::string first = failing(ErrorKind::kMismatch, wrong);
    EXPECT_EQ(failing(ErrorKind::kMismatch, [&] { comm.barrier().wait(); }), first);
  }));
}

// --- deadlines

TEST(Deadline, NamesTheRanksThatDidNotArriveAndTheCall) {
  CommunicatorOptions options;
  options.timeout = 200ms;
  std::atomic<bool> over{false};
  expect_no_errors(run_threads(3, [&](Communicator& comm) {
    float value = 1;
    if (comm.rank() == 2) {
      while (!over.load()) std::this_thread::yield();
      failing(ErrorKind::kTimeout, [&] { comm.barrier().wait(); });
      return;
    }
    CallOptions call;
    call.label = "loss of step 3";
    const std::string text = failing(ErrorKind::kTimeout, [&] { comm.all_reduce({&value, DType::kFloat32}, {&value, DType::kFloat32}, 1, Reduction::kSum, call).wait(); });
    over.store(true);
    EXPECT_TRUE(contains(text, "all_reduce of 1 float32") && contains(text, "'loss of step 3'") && contains(text, "200 ms")) << text;
    EXPECT_TRUE(contains(text, "rank 2 (") && contains(text, "did not arrive") && !contains(text, "rank 1 (")) << text;
  }, options));
}

TEST(Deadline, OfOneCallOverridesTheCommunicators) {
  std::atomic<bool> over{false};
  expect_no_errors(run_threads(2, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      while (!over.load()) std::this_thread::yield();
      return;
    }
    CallOptions call;
    call.timeout = 100ms;
    std::vector<float> data(4);
    EXPECT_TRUE(contains(failing(ErrorKind::kTimeout, [&] { comm.recv({data.data(), DType::kFloat32}, 4, 1, 9, call).wait(); }), "recv of 4 float32 from rank 1 with tag 9"));
    over.store(true);
  }));
}

TEST(Deadline, HoldsForBackgroundOperationsThatNobodyWaitsFor) {
  std::atomic<bool> over{false};
  expect_no_errors(run_threads(2, [&](Communicator& comm) {
    if (comm.rank() == 0) {
      CallOptions call;
      call.timeout = 100ms;
      comm.barrier(call).then([&](const std::exception_ptr& error) {
        EXPECT_NE(error, nullptr);
        over.store(true);
      });
    }
    while (!over.load()) std::this_thread::yield();
  }));
}

TEST(Deadline, EachWaiterGetsAnExceptionOfItsOwn) {
  std::atomic<bool> over{false};
  expect_no_errors(run_threads(2, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      while (!over.load()) std::this_thread::yield();
      return;
    }
    CallOptions call;
    call.timeout = 100ms;
    Work work = comm.barrier(call);
    std::atomic<int> waiting{2};
    const Error* seen[2] = {};
    std::string texts[2];
    std::vector<std::thread> waiters;
    for (int i = 0; i < 2; ++i) {
      waiters.emplace_back([&, i, own = work]() mutable {
        try {
          own.wait();
        } catch (const Error& error) {
          seen[i] = &error;
          texts[i] = error.what();
          // Both are held at once.
          waiting.fetch_sub(1);
          while (waiting.load() != 0) std::this_thread::yield();
        }
      });
    }
    for (std::thread& waiter : waiters) waiter.join();
    EXPECT_TRUE(contains(texts[0], "rank 1 (") && texts[0] == texts[1]) << texts[0] << " / " << texts[1];
    EXPECT_NE(seen[0], seen[1]);
    over.store(true);
  }));
}

// --- ends

TEST(Abort, FailsPendingAndLaterOperationsOnAllRanksWithTheReason) {
  expect_no_errors(run_threads(3, [](Communicator& comm) {
    if (comm.rank() == 1) comm.abort("loss is not finite");
    const auto pending = [&] { comm.barrier().wait(); };
    for (int i = 0; i < 2; ++i) {
      const std::string text = failing(ErrorKind::kAborted, pending);
      EXPECT_TRUE(contains(text, "rank 1 (") && contains(text, "loss is not finite")) << text;
    }
  }));
}

TEST(Leaving, WithAnOperationMissingIsNamedByThoseWhoWait) {
  expect_no_errors(run_threads(3, [](Communicator& comm) {
    if (comm.rank() == 2) return;
    const std::string text = failing(ErrorKind::kPeerLost, [&] { comm.barrier().wait(); });
    EXPECT_TRUE(contains(text, "rank 2 (") && contains(text, "has left world") && contains(text, "barrier")) << text;
  }));
}

TEST(Leaving, WithAnOperationInFlightIsAnAbort) {
  expect_no_errors(run_threads(2, [](Communicator& comm) {
    std::vector<float> data(8);
    if (comm.rank() == 1) {
      static_cast<void>(comm.recv({data.data(), DType::kFloat32}, 8, 0, 0));
      return;
    }
    const std::string text = failing(ErrorKind::kAborted, [&] { comm.recv({data.data(), DType::kFloat32}, 8, 1, 0).wait(); });
    EXPECT_TRUE(contains(text, "rank 1 (") && contains(text, "closed its communicator with recv of 8 float32")) << text;
  }));
}

// --- processes that die

struct Death {
  const char* name;
  std::function<void(Communicator&)> before;  // by the victim, before it dies
  std::function<void(Communicator&)> call;    // by the survivors
};

std::vector<Death> deaths() {
  const auto large = [](Communicator& comm) {
    std::vector<float> data(3'000'000);
    for (int i = 0; i < 1000; ++i) comm.all_reduce({data.data(), DType::kFloat32}, {data.data(), DType::kFloat32}, data.size()).wait();
  };
  const auto nothing = [](Communicator&) {};
  return {
      {"before it calls", nothing, [](Communicator& comm) { comm.barrier().wait(); }},
      {"after it called, in staged rounds",
       [](Communicator& comm) {
         static std::vector<float> data(3'000'000);
         CallOptions options;
         options.progress = CallOptions::Progress::kOnWait;
         static Work work = comm.all_reduce({data.data(), DType::kFloat32}, {data.data(), DType::kFloat32}, data.size(), Reduction::kSum, options);
         comm.progress();
       },
       large},
      {"before it sends", nothing,
       [](Communicator& comm) {
         float value = 0;
         comm.recv({&value, DType::kFloat32}, 1, comm.size() - 1, 0).wait();
       }},
      {"before it receives a large message", nothing,
       [](Communicator& comm) {
         std::vector<float> data(3'000'000);
         comm.send({data.data(), DType::kFloat32}, data.size(), comm.size() - 1, 0).wait();
       }},
      {"while the progress thread works", nothing,
       [](Communicator& comm) {
         Work work = comm.barrier();
         while (!work.test()) std::this_thread::yield();
       }},
  };
}

TEST(Death, OfARankIsAnErrorOnEverySurvivorThatNamesIt) {
  for (const int ranks : {2, 3}) {
    for (const Death& death : deaths()) {
      const auto results = run_communicators(ranks, [&](Communicator& comm) {
        if (comm.rank() == comm.size() - 1) {
          comm.barrier().wait();
          death.before(comm);
          ::kill(::getpid(), SIGKILL);
        }
        comm.barrier().wait();
        return failing(ErrorKind::kPeerLost, [&] { death.call(comm); });
      });
      EXPECT_EQ(results.back().signal, SIGKILL);
      for (std::size_t r = 0; r + 1 < results.size(); ++r) {
        EXPECT_TRUE(results[r].ok() && !results[r].late) << death.name << ": exit " << results[r].exit_code << ", " << results[r].output;
        EXPECT_TRUE(contains(results[r].output, "rank " + std::to_string(ranks - 1) + " (")) << death.name << ": " << results[r].output;
        EXPECT_TRUE(contains(results[r].output, "died during")) << death.name << ": " << results[r].output;
      }
    }
  }
}

TEST(Death, IsNoticedThoughAChildOfTheRankHoldsItsSockets) {
  const auto results = run_communicators(2, [&](Communicator& comm) {
    comm.barrier().wait();
    if (comm.rank() == 1) {
      int ends[2];
      EXPECT_EQ(::pipe(ends), 0);
      const pid_t child = ::fork();
      if (child == 0) {
        // Keeps every descriptor open until the parent of all has gone on: rank 0 says so by ending.
        ::alarm(20);
        const pid_t starter = ::getppid();
        while (::getppid() == starter) ::usleep(1000);
        ::usleep(500'000);
        ::_exit(0);
      }
      ::kill(::getpid(), SIGKILL);
    }
    return failing(ErrorKind::kPeerLost, [&] { comm.barrier().wait(); });
  });
  EXPECT_TRUE(results[0].ok()) << results[0].output;
  EXPECT_TRUE(contains(results[0].output, "rank 1 (")) << results[0].output;
}

}  // namespace
}  // namespace wirewise
