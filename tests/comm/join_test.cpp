// Meeting when it goes wrong in ways people meet: a store of an earlier run, two ranks on one device, very many ranks at once; and ending
// from any thread, at any time.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "comm/error_text.h"
#include "comm/open_files.h"
#include "comm/ranks.h"
#include "wirewise/base/error.h"
#include "wirewise/comm/cuda_library.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;
using namespace std::chrono_literals;

TEST(Join, AStoreOfAnEarlierRunIsNamedWithWhatToDo) {
  const TemporaryFolder folder;
  const auto join = [&](int rank) {
    return kind_and_text([&] { make_communicator(std::make_shared<FileStore>(folder.path() / "s"), rank, 2)->barrier().wait(); });
  };
  for (const RankResult& result : run_ranks(2, join)) EXPECT_EQ(result.output, "no error");
  for (const RankResult& result : run_ranks(2, join)) {
    EXPECT_TRUE(contains(result.output, kind(ErrorKind::kBadInput)) && contains(result.output, "left by an earlier run") &&
                contains(result.output, (folder.path() / "s").string()) && contains(result.output, "Remove it"))
        << result.output;
  }
}

TEST(Join, TwoRanksOnOneDeviceAreNamedToAll) {
  for (const bool same : {true, false}) {
    const TemporaryFolder folder;
    const auto results = run_ranks(3, [&](int rank) {
      CommunicatorOptions options;
      options.timeout = 30s;
      options.device = rank == 0 ? "" : same ? "cuda:1" : "cuda:" + std::to_string(rank);
      return kind_and_text([&] { static_cast<void>(make_communicator(std::make_shared<FileStore>(folder.path() / "s"), rank, 3, options)); });
    });
    for (const RankResult& result : results) {
      if (!same) {
        EXPECT_EQ(result.output, "no error");
        continue;
      }
      EXPECT_TRUE(contains(result.output, kind(ErrorKind::kBadInput)) && contains(result.output, "rank 1 (") && contains(result.output, "rank 2 (") &&
                  contains(result.output, "cuda:1"))
          << result.output;
    }
  }
}

/// A device whose own collectives can't be reached: asking for them is how a test sees that nothing was refused before.
struct OneOfSome final : Accelerator {
  explicit OneOfSome(std::string address) : address_(std::move(address)) {}
  int index() const noexcept override { return 0; }  // as CUDA_VISIBLE_DEVICES numbers it: 0 in every process
  std::string describe() const override { return "a device"; }
  std::string identity() const override { return address_; }
  void* allocate(std::size_t) override { return nullptr; }
  void free(void*) noexcept override {}
  void pin(void*, std::size_t) override {}
  void unpin(void*) noexcept override {}
  std::unique_ptr<DeviceStream> make_stream() override { return nullptr; }
  void make_current() override {}
  void synchronize() override {}
  std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Store>, int, int, CommunicatorOptions) override { throw Error(ErrorKind::kFailed, "reached the device."); }
  std::string address_;
};

TEST(Join, RanksOfOneHostWithOnePciAddressAreAllListedBeforeNcclMeets) {
  // Ranks 1 and 3, and 2 and 5, have one GPU each pair, though each calls it number 0.
  const std::vector<std::string> shared{"0000:1a:00.0", "0000:34:00.0", "0000:b1:00.0", "0000:34:00.0", "0000:3d:00.0", "0000:b1:00.0"};
  for (const bool own : {false, true}) {
    const TemporaryFolder folder;
    const auto results = run_ranks(6, [&](int rank) {
      CommunicatorOptions options;
      options.timeout = 30s;
      const auto device = std::make_shared<OneOfSome>(own ? "0000:" + std::to_string(10 + rank) + ":00.0" : shared[static_cast<std::size_t>(rank)]);
      return kind_and_text([&] { static_cast<void>(join_device(device, CudaComm::kNccl, std::make_shared<FileStore>(folder.path() / "s"), rank, 6, options)); });
    });
    for (const RankResult& result : results) {
      if (own) {
        EXPECT_TRUE(contains(result.output, "reached the device")) << result.output;
        continue;
      }
      EXPECT_TRUE(contains(result.output, kind(ErrorKind::kBadInput))) << result.output;
      for (const char* part : {"rank 1 (", " and rank 3 (", "0000:34:00.0", "rank 2 (", " and rank 5 (", "0000:b1:00.0", "LOCAL_RANK"}) EXPECT_TRUE(contains(result.output, part)) << part << " in " << result.output;
      for (const char* part : {"rank 0 (", "rank 4 (", "WIREWISE_HOST_ID"}) EXPECT_FALSE(contains(result.output, part)) << part << " in " << result.output;
    }
  }
}

TEST(Join, OnePciAddressOnTwoHostsIsTwoDevices) {
  // "9 and 1 on 34000": two hosts that are taken for one are said to be the reason.
  for (const bool apart : {true, false}) {
    const TemporaryFolder folder;
    const auto results = run_ranks(2, [&](int rank) {
      ::setenv("WIREWISE_HOST_ID", apart && rank == 1 ? "host1" : "host0", 1);
      CommunicatorOptions options;
      options.timeout = 30s;
      return kind_and_text([&] { static_cast<void>(join_device(std::make_shared<OneOfSome>("0000:34:00.0"), CudaComm::kNccl, std::make_shared<FileStore>(folder.path() / "s"), rank, 2, options)); });
    });
    for (const RankResult& result : results) {
      EXPECT_TRUE(contains(result.output, apart ? "reached the device" : "WIREWISE_HOST_ID says wrongly")) << result.output;
    }
  }
}

TEST(Join, TwoHundredProcessesAtOnce) {
  constexpr int kRanks = kAddressSanitizer || kThreadSanitizer ? 40 : 200;  // a sanitizer takes its own memory in each
  const auto results = run_communicators(kRanks, [](Communicator& comm) {
    std::int64_t sum = comm.rank();
    comm.all_reduce({&sum, DType::kInt64}, {&sum, DType::kInt64}, 1).wait();
    EXPECT_EQ(sum, kRanks * (kRanks - 1) / 2);
    // A socket and a process handle for each peer, and little else: what joining took is given back.
    EXPECT_LE(open_files(), 3U * kRanks + 64);
    comm.barrier().wait();
    return std::string();
  }, {}, 240s);
  expect_all_ok(results);
}

// --- abort

TEST(Abort, FromAnyThreadDuringAWaitEndsIt) {
  expect_all_ok(run_communicators(2, [](Communicator& comm) {
    std::thread other;
    if (comm.rank() == 0) {
      other = std::thread([&] {
        comm.abort("first");
        comm.abort("second");
      });
    }
    const std::string text = kind_and_text([&] {
      float value = 0;
      comm.recv({&value, DType::kFloat32}, 1, 1 - comm.rank(), 0).wait();
    });
    EXPECT_TRUE(contains(text, kind(ErrorKind::kAborted)) && contains(text, "first")) << text;
    if (other.joinable()) other.join();
    return std::string();
  }));
}

TEST(Abort, WithPeersThatAreDeadDoesNotHang) {
  const auto results = run_communicators(3, [](Communicator& comm) {
    comm.barrier().wait();
    if (comm.rank() == 2) ::kill(::getpid(), SIGKILL);
    std::vector<float> data(500'000);
    // The death may be heard of before the call is made, or after.
    EXPECT_NE(kind_and_text([&] {
                Work work = comm.all_reduce({data.data(), DType::kFloat32}, {data.data(), DType::kFloat32}, data.size());
                comm.abort("enough");
                comm.abort("twice");
                work.wait();
              }),
              "no error");
    EXPECT_NE(kind_and_text([&] { comm.barrier().wait(); }), "no error");
    return std::string();
  });
  for (std::size_t r = 0; r < 2; ++r) EXPECT_TRUE(results[r].ok() && !results[r].late) << results[r].output;
}

// --- what the dead leave

TEST(Killed, RanksLeaveNoSocketAndNoSharedMemory) {
  const TemporaryFolder folder;
  const auto listing = [](const char* path) {
    std::vector<std::string> names;
    if (DIR* const directory = ::opendir(path)) {
      while (const dirent* const entry = ::readdir(directory)) names.emplace_back(entry->d_name);
      ::closedir(directory);
    }
    return names;
  };
  const auto results = run_ranks(3, [&](int rank) {
    const auto comm = make_communicator(std::make_shared<FileStore>(folder.path() / "store"), rank, 3);
    static_cast<void>(comm->allocate_shared(1 << 20));
    comm->barrier().wait();
    // The inodes of this process's sockets.
    std::ofstream inodes(folder.path() / ("sockets" + std::to_string(rank)));
    for (const std::string& name : listing("/proc/self/fd")) {
      char target[256] = {};
      if (::readlink(("/proc/self/fd/" + name).c_str(), target, sizeof target - 1) > 0 && contains(target, "socket:[")) {
        const std::string text(target);
        inodes << text.substr(8, text.size() - 9) << "\n";
      }
    }
    inodes.close();
    comm->barrier().wait();
    ::kill(::getpid(), SIGKILL);
    return std::string();
  });
  for (const RankResult& result : results) EXPECT_EQ(result.signal, SIGKILL);
  std::ifstream table("/proc/net/unix");
  const std::string sockets((std::istreambuf_iterator<char>(table)), {});
  int seen = 0;
  for (int r = 0; r < 3; ++r) {
    std::ifstream inodes(folder.path() / ("sockets" + std::to_string(r)));
    for (std::string inode; std::getline(inodes, inode); ++seen) EXPECT_FALSE(contains(sockets, " " + inode + " ") || contains(sockets, " " + inode + "\n")) << inode;
  }
  EXPECT_GE(seen, 6) << "each rank has a socket to each peer";
  for (const std::string& name : listing("/dev/shm")) EXPECT_FALSE(contains(name, "wirewise")) << name;
}

}  // namespace
}  // namespace wirewise
