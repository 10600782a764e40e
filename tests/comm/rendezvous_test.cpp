// Meeting, splitting, and what a long run leaves behind.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "comm/error_text.h"
#include "comm/ranks.h"
#include "wirewise/base/error.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;
using namespace std::chrono_literals;

// --- the store

TEST(FileStore, KeepsValuesOfAnyBytesUnderAnyKey) {
  const TemporaryFolder folder;
  FileStore store(folder.path() / "s");
  const std::string value("a\0b\n\xff", 5);
  store.set("rank/0 ../x%", value);
  store.set("", "empty key");
  FileStore other(folder.path() / "s");
  EXPECT_EQ(other.get("rank/0 ../x%", 1ms), value);
  EXPECT_EQ(other.get("", 1ms), "empty key");
  store.set("", "");
  EXPECT_EQ(other.get("", 1ms), "");
}

TEST(FileStore, GetTimesOutNamingTheKey) {
  const TemporaryFolder folder;
  FileStore store(folder.path() / "s");
  const std::string text = kind_and_text([&] { static_cast<void>(store.get("absent", 5ms)); });
  EXPECT_TRUE(contains(text, kind(ErrorKind::kTimeout)) && contains(text, "'absent'")) << text;
}

TEST(FileStore, ItsEndIsNoticedByThoseWhoWait) {
  const TemporaryFolder folder;
  FileStore store(folder.path() / "s");
  store.set("present", "");
  std::filesystem::remove_all(folder.path() / "s");
  const auto start = std::chrono::steady_clock::now();
  const std::string text = kind_and_text([&] { static_cast<void>(store.get("absent", 300s)); });
  EXPECT_TRUE(contains(text, kind(ErrorKind::kStore)) && contains(text, (folder.path() / "s").string())) << text;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 100s);
}

TEST(FileStore, AddIsAtomicAcrossProcesses) {
  const TemporaryFolder folder;
  expect_all_ok(run_ranks(4, [&](int) {
    FileStore store(folder.path() / "s");
    for (int i = 0; i < 200; ++i) store.add("n", 2);
    return std::string();
  }));
  FileStore store(folder.path() / "s");
  EXPECT_EQ(store.add("n", 0), 4 * 200 * 2);
}

TEST(FileStore, ItsFolderIsPrivate) {
  const TemporaryFolder folder;
  const FileStore store(folder.path() / "s");
  struct stat info {};
  ASSERT_EQ(::stat((folder.path() / "s").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
}

// --- meeting

TEST(Rendezvous, RefusesASecondProcessOfOneRank) {
  const TemporaryFolder folder;
  CommunicatorOptions options;
  options.timeout = 500ms;
  const auto results = run_ranks(2, [&](int) {
    return kind_and_text([&] { static_cast<void>(make_communicator(std::make_shared<FileStore>(folder.path() / "s"), 0, 2, options)); });
  });
  // One has the rank and waits in vain; the other is told who has it.
  const bool first = contains(results[0].output, "is taken by");
  EXPECT_TRUE(contains(results[first ? 0 : 1].output, kind(ErrorKind::kBadInput))) << results[0].output << results[1].output;
  EXPECT_TRUE(contains(results[first ? 1 : 0].output, kind(ErrorKind::kTimeout))) << results[0].output << results[1].output;
}

TEST(Rendezvous, RefusesSizesThatDiffer) {
  const TemporaryFolder folder;
  CommunicatorOptions options;
  options.timeout = 20s;
  const auto results = run_ranks(2, [&](int rank) {
    return kind_and_text([&] { static_cast<void>(make_communicator(std::make_shared<FileStore>(folder.path() / "s"), rank, 2 + rank, options)); });
  });
  for (const RankResult& result : results) {
    EXPECT_TRUE(contains(result.output, kind(ErrorKind::kMismatch)) && contains(result.output, "counts 2") && contains(result.output, "counts 3"))
        << result.output;
  }
}

TEST(Rendezvous, NamesTheRanksThatDoNotCome) {
  const TemporaryFolder folder;
  CommunicatorOptions options;
  options.timeout = 200ms;
  const std::string text = kind_and_text([&] { static_cast<void>(make_communicator(std::make_shared<FileStore>(folder.path() / "s"), 1, 4, options)); });
  EXPECT_TRUE(contains(text, kind(ErrorKind::kTimeout)) && contains(text, "ranks 0, 2, 3 of 4")) << text;
}

TEST(Rendezvous, NamesAnInterfaceThatIsNotThereWhereRanksAreOnSeveralHosts) {
  const TemporaryFolder folder;
  const auto results = run_ranks(2, [&](int rank) {
    ::setenv("WIREWISE_HOST_ID", std::to_string(rank).c_str(), 1);
    ::setenv("WIREWISE_NET", "nosuch0", 1);
    return kind_and_text([&] { static_cast<void>(make_communicator(std::make_shared<FileStore>(folder.path() / "s"), rank, 2)); });
  });
  for (const RankResult& result : results) {
    EXPECT_TRUE(contains(result.output, kind(ErrorKind::kBadInput)) && contains(result.output, "nosuch0")) << result.output;
  }
}

/// A store that is reached as the user who started the test, whoever the rank pretends to be.
class StoreAsRoot final : public Store {
 public:
  explicit StoreAsRoot(std::filesystem::path folder) : store_(std::move(folder)) {}
  void set(const std::string& key, const std::string& value) override {
    const AsRoot root;
    store_.set(key, value);
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    const AsRoot root;
    return store_.get(key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    const AsRoot root;
    return store_.add(key, amount);
  }

 private:
  struct AsRoot {
    uid_t user = ::geteuid();
    AsRoot() { EXPECT_EQ(::seteuid(0), 0); }
    ~AsRoot() { EXPECT_EQ(::seteuid(user), 0); }
  };
  FileStore store_;
};

TEST(Rendezvous, RefusesRanksOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can start ranks as another user";
  const TemporaryFolder folder;
  CommunicatorOptions options;
  options.timeout = 20s;
  const auto results = run_ranks(2, [&](int rank) {
    const auto store = std::make_shared<StoreAsRoot>(folder.path() / "s");
    if (rank == 1) {
      EXPECT_EQ(::seteuid(65534), 0);
    }
    return kind_and_text([&] { static_cast<void>(make_communicator(store, rank, 2, options)); });
  });
  for (const RankResult& result : results) {
    EXPECT_TRUE(contains(result.output, "user 65534") && contains(result.output, "user 0")) << result.output;
  }
}

TEST(Rendezvous, AStrangersConnectionDoesNotDisturbIt) {
  const TemporaryFolder folder;
  const auto results = run_ranks(3, [&](int rank) {
    const auto store = std::make_shared<FileStore>(folder.path() / "s");
    if (rank < 2) {
      // The last rank comes once the stranger has been there.
      if (rank == 1) store->get("stranger", 20s);
      const auto comm = make_communicator(store, rank, 2);
      comm->barrier().wait();
      return std::string("met");
    }
    std::istringstream card(store->get("world/card/1/0", 20s));
    std::string word;
    for (int i = 0; i < 6; ++i) card >> word;  // size, pid, user, host, machine, socket
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(word.begin(), word.end(), address.sun_path + 1);
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + word.size())), 0);
    const std::string noise(4096, 'x');
    EXPECT_GT(::send(socket, noise.data(), noise.size(), MSG_NOSIGNAL), 0);
    store->set("stranger", "was here");
    return std::string();
  });
  expect_all_ok(results);
  EXPECT_EQ(results[0].output + results[1].output, "metmet");
}

// Rank 1 shows a card as a rank does, and is gone before it joins: as a process that nobody has waited for yet, and as none any more.
TEST(Rendezvous, ARankThatDiesWhileOthersMeetIsNoticedAtOnce) {
  for (const bool waited_for : {false, true}) {
    const int ranks = waited_for ? 2 : 3;
    const std::string size = std::to_string(ranks);
    const TemporaryFolder folder;
    const auto results = run_ranks(ranks, [&](int rank) {
      const auto store = std::make_shared<FileStore>(folder.path() / "s");
      if (rank == 1) {
        const auto show_card = [&] {
          store->set("world/card/1/1", size + " " + std::to_string(::getpid()) + " " + std::to_string(::geteuid()) + " given:h machine wirewise-none 00000000000000000000000000000000 here cpus,0");
        };
        if (!waited_for) {
          show_card();
        } else if (const pid_t child = ::fork(); child == 0) {
          show_card();
          ::_exit(0);
        } else {
          ::waitpid(child, nullptr, 0);
        }
        return std::string();
      }
      ::setenv("WIREWISE_HOST_ID", "h", 1);
      const auto start = std::chrono::steady_clock::now();
      const std::string text = kind_and_text([&] { static_cast<void>(make_communicator(store, rank, ranks, {300s})); });
      EXPECT_LT(std::chrono::steady_clock::now() - start, 100s);
      return text;
    }, 200s);
    for (std::size_t r = 0; r < results.size(); ++r) {
      if (r == 1) continue;
      EXPECT_TRUE(results[r].ok() && !results[r].late) << results[r].output;
      EXPECT_TRUE(contains(results[r].output, kind(ErrorKind::kPeerLost))) << results[r].output;
    }
  }
}

TEST(Rendezvous, AProcessMayMakeSeveralCommunicatorsOfOneName) {
  const TemporaryFolder folder;
  expect_all_ok(run_ranks(2, [&](int rank) {
    const auto store = std::make_shared<FileStore>(folder.path() / "s");
    const auto first = make_communicator(store, rank, 2);
    const auto second = make_communicator(store, rank, 2);
    first->barrier().wait();
    // Memory of one is shared memory for the other.
    auto* const data = static_cast<float*>(first->allocate_shared(4'000'000));
    std::fill_n(data, 1'000'000, 1.0F);
    second->all_reduce({data, DType::kFloat32}, {data, DType::kFloat32}, 1'000'000).wait();
    EXPECT_EQ(data[999'999], 2.0F);
    return std::string();
  }));
}

// --- splitting

void check_split(Communicator& comm) {
  // Even and odd ranks, in reverse order; the last rank stays out.
  const bool out = comm.size() > 1 && comm.rank() == comm.size() - 1;
  CommunicatorOptions options;
  options.name = "parity";
  const auto part = comm.split(out ? -1 : comm.rank() % 2, -comm.rank(), options);
  if (out) {
    EXPECT_EQ(part, nullptr);
  } else {
    std::vector<int> members;
    for (int r = comm.size() - (comm.size() > 1 ? 2 : 1); r >= 0; --r) {
      if (r % 2 == comm.rank() % 2) members.push_back(r);
    }
    ASSERT_EQ(part->size(), static_cast<int>(members.size()));
    EXPECT_EQ(members[static_cast<std::size_t>(part->rank())], comm.rank());
    std::vector<std::int32_t> numbers(members.size());
    const std::int32_t own = comm.rank();
    part->all_gather({&own, DType::kInt32}, {numbers.data(), DType::kInt32}, 1).wait();
    EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), members.begin()));
    // Memory of the whole is shared memory for the part.
    auto* const data = static_cast<std::int64_t*>(comm.allocate_shared(8 * 100'000));
    std::fill_n(data, 100'000, 1);
    part->all_reduce({data, DType::kInt64}, {data, DType::kInt64}, 100'000).wait();
    EXPECT_EQ(data[99'999], part->size());
    // A part of the part outlives both its parents.
    comm.free_shared(data);
  }
  comm.barrier().wait();
}

TEST(Split, GroupsByColourInOrderOfKey) {
  for (const int ranks : {1, 2, 3, 5}) {
    expect_no_errors(run_threads(ranks, check_split));
    expect_all_ok(run_communicators(ranks, [](Communicator& comm) {
      check_split(comm);
      return std::string();
    }));
  }
}

TEST(Split, AnAbortOfThePartLeavesTheWholeAlone) {
  expect_no_errors(run_threads(4, [](Communicator& comm) {
    const auto part = comm.split(comm.rank() % 2, 0);
    comm.barrier().wait();
    if (comm.rank() == 0) part->abort("on purpose");
    if (comm.rank() % 2 == 0) {
      EXPECT_THROW(part->barrier().wait(), Error);
    } else {
      part->barrier().wait();
    }
    comm.barrier().wait();
  }));
}

TEST(Split, ThePartOutlivesTheWhole) {
  expect_all_ok(run_communicators(3, [](Communicator& whole) {
    auto part = whole.split(0, whole.rank());
    auto inner = part->split(0, whole.rank());
    part.reset();
    for (int i = 0; i < 100; ++i) inner->barrier().wait();
    return std::string();
  }));
}

// --- what a long run holds

std::size_t open_files() {
  std::size_t count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

std::size_t lines_of_maps() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

std::size_t resident_pages() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  file >> total >> resident;
  return resident;
}

TEST(LongRun, KeepsFilesMappingsAndMemoryFlat) {
  constexpr int kSteps = 2000 / kPatience;
  expect_all_ok(run_communicators(2, [](Communicator& comm) {
    std::vector<float> own(20'000, 1.0F);
    const auto step = [&](int i) {
      // Buffers come and go, as in training; so do groups.
      const std::size_t count = 50'000 + static_cast<std::size_t>(i % 7) * 10'000;
      auto* const data = static_cast<float*>(comm.allocate_shared(count * 4));
      std::fill_n(data, count, 1.0F);
      comm.all_reduce({data, DType::kFloat32}, {data, DType::kFloat32}, count).wait();
      EXPECT_EQ(data[count - 1], 2.0F);
      comm.all_reduce({own.data(), DType::kFloat32}, {own.data(), DType::kFloat32}, own.size(), Reduction::kAverage).wait();
      Work sent = comm.send({own.data(), DType::kFloat32}, 5000, 1 - comm.rank(), i);
      std::vector<float> in(5000);
      comm.recv({in.data(), DType::kFloat32}, 5000, 1 - comm.rank(), i).wait();
      sent.wait();
      if (i % 20 == 0) comm.split(0, 0)->barrier().wait();
      comm.free_shared(data);
    };
    for (int i = 0; i < kSteps / 10; ++i) step(i);
    comm.barrier().wait();
    const std::size_t files = open_files();
    const std::size_t maps = lines_of_maps();
    const std::size_t pages = resident_pages();
    for (int i = 0; i < kSteps; ++i) step(i);
    comm.barrier().wait();
    EXPECT_EQ(open_files(), files);
    EXPECT_LE(lines_of_maps(), maps + 2);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers keep what is freed
    EXPECT_LE(resident_pages(), pages + 500) << "of 4 KiB";
#else
    static_cast<void>(pages);
#endif
    return std::string();
  }));
}

TEST(LongRun, ThousandsOfAllocationsNeedNoDescriptors) {
  expect_all_ok(run_communicators(2, [](Communicator& comm) {
    const rlimit few{64, 64};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    std::vector<char*> blocks;
    for (int i = 0; i < 3000; ++i) {
      blocks.push_back(static_cast<char*>(comm.allocate_shared(100)));
      *blocks.back() = static_cast<char>(i);
    }
    for (std::size_t i = 0; i < blocks.size(); i += 100) {
      comm.broadcast({blocks[i], DType::kInt8}, 100, 0).wait();
      EXPECT_EQ(*blocks[i], static_cast<char>(i));
    }
    return std::string();
  }));
}

TEST(SharedMemory, MoreThanTheMachineHasIsAnErrorThatSaysSo) {
  const auto communicators = make_thread_communicators(1);
  const std::string text = kind_and_text([&] { static_cast<void>(communicators[0]->allocate_shared(std::size_t{1} << 46)); });
  EXPECT_TRUE(contains(text, kind(ErrorKind::kFailed)) && contains(text, "64.00 TiB is more than") && contains(text, "ulimit -v")) << text;
#if !defined(__SANITIZE_THREAD__)  // which leaves it fewer addresses than the machine has memory
  const auto pages = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
  const std::string full = kind_and_text([&] { static_cast<void>(communicators[0]->allocate_shared(pages * 4096)); });
  EXPECT_TRUE(contains(full, kind(ErrorKind::kFailed)) && contains(full, "are left")) << full;
#endif
  // It still works afterwards.
  void* const pointer = communicators[0]->allocate_shared(10);
  EXPECT_NE(pointer, nullptr);
  communicators[0]->free_shared(pointer);
}

}  // namespace
}  // namespace wirewise
