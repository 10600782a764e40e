// Moves whose copying all ranks share: each mixture of shared and private buffers, every root, odd counts at odd addresses, in place, with a
// rank that comes late, and several in flight. Every byte is compared, also those beside the outputs.
#include "wirewise/comm/fan.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/ranks.h"
#include "wirewise/comm/stream_copy.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;

constexpr std::byte kBeside{0xee};
constexpr std::size_t kMargin = 128;

/// Memory with a margin on both sides that nobody may touch.
class Guarded {
 public:
  Guarded(Communicator& comm, std::size_t bytes, bool shared, std::size_t shift) : comm_(comm), bytes_(bytes), shift_(shift) {
    const std::size_t all = bytes + 2 * kMargin + shift;
    if (shared) {
      base_ = static_cast<std::byte*>(comm.allocate_shared(all));
    } else {
      own_.resize(all);
    }
    std::memset(start(), static_cast<int>(kBeside), all);
  }
  ~Guarded() {
    if (base_ != nullptr) comm_.free_shared(base_);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  [[nodiscard]] std::byte* get() { return start() + kMargin + shift_; }
  [[nodiscard]] bool margins_whole() {
    for (std::size_t i = 0; i < kMargin; ++i) {
      if (get()[-1 - static_cast<std::ptrdiff_t>(i)] != kBeside || get()[bytes_ + i] != kBeside) return false;
    }
    return true;
  }

 private:
  [[nodiscard]] std::byte* start() { return base_ != nullptr ? base_ : own_.data(); }
  Communicator& comm_;
  std::size_t bytes_;
  std::size_t shift_;
  std::vector<std::byte> own_;
  std::byte* base_ = nullptr;
};

std::byte value(int source, int turn, std::size_t i) {
  return static_cast<std::byte>((i * 2654435761u >> 13) + static_cast<std::size_t>(source) * 89 + static_cast<std::size_t>(turn) * 7);
}

void fill(std::byte* data, int source, int turn, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) data[i] = value(source, turn, i);
}

void expect(const Communicator& comm, const std::byte* data, int source, int turn, std::size_t bytes, const std::string& what) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if (data[i] == value(source, turn, i)) continue;
    throw std::runtime_error(what + ", rank " + std::to_string(comm.rank()) + " of " + std::to_string(comm.size()) + ", turn " + std::to_string(turn) +
                             ": byte " + std::to_string(i) + " of " + std::to_string(bytes) + " from rank " + std::to_string(source) + " is wrong");
  }
}

/// Whether rank r's buffer is shared in this turn: all, none, and each mixture of two neighbours.
bool shared(int r, int turn) { return (turn >> (r % 2) & 1) != 0; }

class Fans : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Fans, ::testing::Values(2, 3, 4, 5));

void broadcasts(Communicator& comm, std::size_t bytes) {
  ASSERT_TRUE(comm::fans_out({comm::Operation::kBroadcast, DType::kUInt8, DType::kUInt8, Reduction::kSum, false, 0, 1, bytes, 0, 0}, bytes, comm.size()));
  CallOptions options;
  options.progress = CallOptions::Progress::kOnWait;
  for (int turn = 0; turn < 6; ++turn) {
    for (int root = turn % 2; root < comm.size(); root += 2) {
      const auto shift = static_cast<std::size_t>((comm.rank() * 5 + turn) % 67);
      Guarded buffer(comm, bytes, shared(comm.rank(), turn), shift);
      Guarded next(comm, bytes, shared(comm.rank() + 1, turn), shift);
      if (comm.rank() == root) fill(buffer.get(), root, turn, bytes);
      if (comm.rank() == root) fill(next.get(), root, turn + 100, bytes);
      if (turn >= 4 && comm.rank() == (root + turn) % comm.size()) std::this_thread::sleep_for(std::chrono::microseconds(500));
      Work first = comm.broadcast({buffer.get(), DType::kUInt8}, bytes, root, options);
      Work second = comm.broadcast({next.get(), DType::kUInt8}, bytes, root, turn % 2 == 0 ? options : CallOptions{});
      (turn % 3 == 0 ? second : first).wait();
      (turn % 3 == 0 ? first : second).wait();
      expect(comm, buffer.get(), root, turn, bytes, "broadcast");
      expect(comm, next.get(), root, turn + 100, bytes, "broadcast behind it");
      if (!buffer.margins_whole() || !next.margins_whole()) throw std::runtime_error("broadcast wrote beside its output");
    }
  }
}

void gathers(Communicator& comm) {
  const auto n = static_cast<std::size_t>(comm.size());
  std::size_t bytes = 250'007;
  while (!comm::exceeds_caches(n * (n + 1) * bytes)) bytes += 250'007;
  ASSERT_TRUE(comm::fans_out({comm::Operation::kAllGather, DType::kUInt8, DType::kUInt8, Reduction::kSum, false, -1, 1, bytes, 0, 0}, bytes, comm.size()));
  const auto mine = static_cast<std::size_t>(comm.rank());
  for (const int turn : {1, 2, 3, 6, 7}) {
    const bool in_place = turn >= 4;
    Guarded shard(comm, bytes, shared(comm.rank() + 1, turn), static_cast<std::size_t>(turn));
    Guarded full(comm, n * bytes, shared(comm.rank(), turn), static_cast<std::size_t>(comm.rank()));
    std::byte* const in = in_place ? full.get() + mine * bytes : shard.get();
    fill(in, comm.rank(), turn, bytes);
    comm.all_gather({in, DType::kUInt8}, {full.get(), DType::kUInt8}, bytes).wait();
    for (int r = 0; r < comm.size(); ++r) expect(comm, full.get() + static_cast<std::size_t>(r) * bytes, r, turn, bytes, "all_gather");
    if (!full.margins_whole() || !shard.margins_whole()) throw std::runtime_error("all_gather wrote beside its output");
  }
}

TEST_P(Fans, BroadcastsReachEveryRankWhereverBuffersLie) {
  constexpr std::size_t kBytes = (std::size_t{4} << 20) + 77;
  expect_no_errors(run_threads(GetParam(), [&](Communicator& comm) { broadcasts(comm, kBytes); }));
}

TEST_P(Fans, LargeGathersReachEveryRankWhereverBuffersLie) {
  expect_no_errors(run_threads(GetParam(), [&](Communicator& comm) { gathers(comm); }));
}

TEST_P(Fans, ProcessesShareTheCopyingToo) {
  expect_all_ok(run_communicators(GetParam(), [](Communicator& comm) {
    broadcasts(comm, 5'000'001);
    gathers(comm);
    return std::string();
  }));
}

TEST(Fans, ABroadcastPastTheCachesIsWhole) {
  constexpr std::size_t kBytes = 40'000'003;
  expect_no_errors(run_threads(2, [&](Communicator& comm) {
    Guarded buffer(comm, kBytes, true, 3);
    if (comm.rank() == 1) fill(buffer.get(), 1, 0, kBytes);
    comm.broadcast({buffer.get(), DType::kUInt8}, kBytes, 1).wait();
    expect(comm, buffer.get(), 1, 0, kBytes, "broadcast");
    if (!buffer.margins_whole()) throw std::runtime_error("broadcast wrote beside its output");
  }));
}

}  // namespace
}  // namespace wirewise
