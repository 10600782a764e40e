// A save that fails or is killed at any point leaves the older checkpoint, and nothing half-named.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "train/checkpoint_ranks.h"
#include "train/temporary_folder.h"
#include "wirewise/train/checkpoint_files.h"
#include "wirewise/train/checkpoint_format.h"

namespace wirewise::testing {
namespace {

using checkpoint::FileOperations;
using std::filesystem::path;

/// Counts the operations of all ranks; at the chosen one does what the test wants: fail, or die before or after it.
class Faulty final : public FileOperations {
 public:
  enum class Fault { kFail, kDieBefore, kDieAfter };
  Faulty(int at, Fault fault, int number = EIO) : at_(at), fault_(fault), number_(number) {}

  int create(const path& file) override {
    const Turn turn(*this);
    return FileOperations::create(file);
  }
  void write(int descriptor, const void* data, std::size_t bytes, const path& file) override {
    try {
      const Turn turn(*this);
      FileOperations::write(descriptor, data, bytes, file);
    } catch (const Error&) {
      FileOperations::write(descriptor, data, bytes / 2, file);  // a failing write often leaves a part
      throw;
    }
  }
  void sync(int descriptor, const path& file) override {
    const Turn turn(*this);
    FileOperations::sync(descriptor, file);
  }
  void sync_folder(const path& folder) override {
    const Turn turn(*this);
    FileOperations::sync_folder(folder);
  }
  void make_folder(const path& folder) override {
    const Turn turn(*this);
    FileOperations::make_folder(folder);
  }
  void rename(const path& from, const path& to) override {
    const Turn turn(*this);
    FileOperations::rename(from, to);
  }
  bool exchange(const path& a, const path& b) override {
    if (without_exchange) return false;
    const Turn turn(*this);
    return FileOperations::exchange(a, b);
  }
  [[nodiscard]] int count() const { return count_; }
  bool without_exchange = false;

 private:
  struct Turn {
    explicit Turn(Faulty& owner) : mine(owner.count_++ == owner.at_), fault(owner.fault_) {
      if (mine && fault == Fault::kDieBefore) ::raise(SIGKILL);
      if (mine && fault == Fault::kFail) throw Error(ErrorKind::kFailed, std::string("injected: ") + std::strerror(owner.number_) + ".");
    }
    ~Turn() {
      if (mine && fault == Fault::kDieAfter) ::raise(SIGKILL);
    }
    bool mine;
    Fault fault;
  };
  int at_;
  Fault fault_;
  int number_;
  std::atomic<int> count_{0};
};

std::vector<std::string> names_in(const path& folder) {
  std::vector<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(folder)) names.push_back(item.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> save_with(FileOperations& files, int ranks, const path& folder, std::uint64_t step,
                                   const std::vector<std::vector<Fragment>>& fragments) {
  return run_ranks(ranks, [&](int rank, const AgreeFunction& agree) {
    checkpoint::save(files, folder, step, rank, ranks, fragments[static_cast<std::size_t>(rank)], {{"step", std::to_string(step)}}, 2, agree);
  });
}

void expect_holds(const path& folder, const ModelState& state) {
  const CheckpointReader reader(folder);
  EXPECT_TRUE(reader.verify().empty());
  for (const auto& [name, tensor] : state) {
    std::vector<unsigned char> read(tensor.bytes.size());
    reader.read(name, tensor.shape, 0, tensor.numel(), read.data());
    EXPECT_EQ(read, tensor.bytes) << name;
  }
}

struct States {
  std::mt19937_64 random{17};
  ModelState old_state = random_state(random, 3, 60), new_state = random_state(random, 3, 60);
  std::vector<std::vector<Fragment>> old_fragments = deal(old_state, 2, random), new_fragments = deal(new_state, 2, random);
};

/// Fails every operation of a save of `step` in turn, beside or over a checkpoint of step 1.
void fail_each(std::uint64_t step, int number, bool without_exchange) {
  const States states;
  const TemporaryFolder folder;
  FileOperations plain;
  for (const auto& thrown : save_with(plain, 2, folder.path(), 1, states.old_fragments)) ASSERT_EQ(thrown, "");
  int k = 0;
  for (;; ++k) {
    SCOPED_TRACE("operation " + std::to_string(k));
    Faulty files(k, Faulty::Fault::kFail, number);
    files.without_exchange = without_exchange;
    const auto thrown = save_with(files, 2, folder.path(), step, states.new_fragments);
    if (files.count() <= k) break;  // nothing was left to fail: the save went through
    for (const auto& text : thrown) EXPECT_NE(text.find(std::strerror(number)), std::string::npos) << text;
    ASSERT_EQ(names_in(folder.path()), std::vector<std::string>{"step-000001"});
    EXPECT_EQ(newest_checkpoint(folder.path()), folder / "step-000001");
    expect_holds(folder / "step-000001", states.old_state);
  }
  EXPECT_GT(k, 15);
  expect_holds(*newest_checkpoint(folder.path()), states.new_state);
}

TEST(CheckpointFailure, AnyFailedOperationLeavesTheOlderCheckpointAlone) { fail_each(2, ENOSPC, false); }
TEST(CheckpointFailure, AnyFailedOperationLeavesTheCheckpointThatWasToBeReplaced) { fail_each(1, EIO, false); }
TEST(CheckpointFailure, AlsoWhereTheFileSystemCantExchangeFolders) { fail_each(1, EIO, true); }

TEST(CheckpointFailure, ADiskThatFillsUpIsNamedOnEveryRank) {
  const TemporaryFolder folder;
  const std::vector<float> data(1 << 16);
  std::vector<std::vector<Fragment>> fragments(2);
  fragments[1].push_back({"model/w", {1 << 16}, 0, 1 << 16, DType::kFloat32, data.data()});
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{100000, before.rlim_max};  // a limit on the size of files stands for a full disk
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  FileOperations files;
  const auto thrown = save_with(files, 2, folder.path(), 1, fragments);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  for (const auto& text : thrown) {
    EXPECT_NE(text.find("rank 1: checkpoint: can't write"), std::string::npos) << text;
    EXPECT_NE(text.find("rank-00001.safetensors"), std::string::npos) << text;
  }
  EXPECT_TRUE(names_in(folder.path()).empty());
}

/// Runs `body` in a child process; returns the status of its end. The child is ended after a minute whatever happens.
int in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

/// After a child was killed while it saved step 2 beside or over step 1: what is complete loads, and the next save sweeps up.
void expect_survives(const path& folder, const States& states, std::uint64_t step) {
  const auto newest = newest_checkpoint(folder);
  ASSERT_TRUE(newest.has_value());
  const CheckpointReader reader(*newest);
  const bool is_new = step == 2 ? *newest == folder / "step-000002" : reader.tensors().begin()->second.shape ==
                                                                            states.new_state.begin()->second.shape;
  expect_holds(*newest, is_new ? states.new_state : states.old_state);
  for (const auto& thrown : save_on(2, folder, 3, states.new_fragments, {})) EXPECT_EQ(thrown, "");
  for (const auto& name : names_in(folder)) EXPECT_TRUE(name.starts_with("step-")) << name;
  EXPECT_EQ(newest_checkpoint(folder), folder / "step-000003");
}

void die_at_each(std::uint64_t step, Faulty::Fault fault) {
  const States states;
  int killed = 0;
  for (int k = 0;; ++k) {
    SCOPED_TRACE("operation " + std::to_string(k));
    const TemporaryFolder folder;
    for (const auto& thrown : save_on(2, folder.path(), 1, states.old_fragments, {})) ASSERT_EQ(thrown, "");
    const int status = in_child([&] {
      Faulty files(k, fault);
      (void)save_with(files, 2, folder.path(), step, states.new_fragments);
    });
    expect_survives(folder.path(), states, step);
    if (WIFEXITED(status)) break;
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ++killed;
  }
  EXPECT_GT(killed, 15);
}

TEST(CheckpointKill, BeforeAnyOperationOfASaveBesideAnother) { die_at_each(2, Faulty::Fault::kDieBefore); }
TEST(CheckpointKill, AfterAnyOperationOfASaveOverAnother) { die_at_each(1, Faulty::Fault::kDieAfter); }

TEST(CheckpointKill, AtRandomMomentsOfSaveAfterSave) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const TemporaryFolder folder;
  const ModelState state = random_state(random, 4, 20000);
  const auto fragments = deal(state, 2, random);
  std::uint64_t newest_step = 0;
  for (int round = 0; round < 30; ++round) {
    int started[2];
    ASSERT_EQ(::pipe2(started, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      for (std::uint64_t step = newest_step + 1;; ++step) {
        (void)!::write(started[1], "x", 1);
        (void)save_on(2, folder.path(), step, fragments, {}, 2);
      }
    }
    ::close(started[1]);
    char byte = 0;
    for (std::uint64_t saves = 1 + random() % 3; saves > 0; --saves) (void)!::read(started[0], &byte, 1);
    ::usleep(static_cast<useconds_t>(random() % 20000));  // a random moment, of this save or of one that follows
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(started[0]);
    const auto newest = newest_checkpoint(folder.path());
    ASSERT_TRUE(newest.has_value() || newest_step == 0);
    if (!newest) continue;
    const CheckpointReader reader(*newest);
    ASSERT_GE(reader.step(), newest_step);  // never back behind what was complete
    newest_step = reader.step();
    expect_holds(*newest, state);
  }
  EXPECT_GT(newest_step, 0U);
}

TEST(CheckpointFailure, TwoProcessesDontSaveIntoOneFolder) {
  const States states;
  const TemporaryFolder folder;
  for (const auto& thrown : save_on(2, folder.path(), 1, states.old_fragments, {})) ASSERT_EQ(thrown, "");
  const checkpoint::FolderLock lock(folder.path());
  for (const auto& thrown : save_on(2, folder.path(), 2, states.new_fragments, {})) {
    EXPECT_NE(thrown.find("another process is saving into " + folder.path().string()), std::string::npos) << thrown;
  }
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"step-000001"});
}

TEST(CheckpointFailure, AStepsNameTakenBySomethingElseIsLeftAlone) {
  const States states;
  const TemporaryFolder folder;
  write_text(folder / "step-000002/thesis.tex", "mine");
  for (const auto& thrown : save_on(2, folder.path(), 2, states.new_fragments, {})) {
    EXPECT_NE(thrown.find("holds files that are no checkpoint's"), std::string::npos) << thrown;
  }
  EXPECT_EQ(read_text(folder / "step-000002/thesis.tex"), "mine");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"step-000002"});
}

}  // namespace
}  // namespace wirewise::testing
