// Meeting: whom a rank takes for its peers, whom it refuses, and what it says of those that do not come.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "comm/error_text.h"
#include "comm/ranks.h"
#include "wirewise/base/error.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;
using namespace std::chrono_literals;

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

}  // namespace
}  // namespace wirewise
