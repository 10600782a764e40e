// Counts that no 32-bit number holds: more than 2^31 elements are moved, and every one is checked. Takes about 9 GiB of memory for two
// processes, so it runs with WIREWISE_FULL=1 only.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "comm/ranks.h"
#include "wirewise/comm/ucx_network.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;
using namespace std::chrono_literals;

constexpr std::size_t kCount = (std::size_t{1} << 31) + 4099;
constexpr DType kType = DType::kInt8;
constexpr std::size_t kNeeded = (std::size_t{10} << 30);

/// Small enough that a sum of two fits; differs between places that are 2^31 and 2^32 apart, and between ranks.
std::int8_t given(int rank, std::size_t i) { return static_cast<std::int8_t>(((i ^ (i >> 7) ^ (i >> 27) ^ (i >> 31)) + 3U * static_cast<unsigned>(rank)) & 31U); }

std::size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  std::size_t kib = 0;
  while (file >> word) {
    if (word == "MemAvailable:" && file >> kib) return kib << 10;
  }
  return std::numeric_limits<std::size_t>::max();
}

/// Memory of one rank for one operation: shared or its own.
class Block {
 public:
  Block(Communicator& comm, std::size_t bytes, bool shared) : comm_(comm), bytes_(bytes), shared_(shared) {
    memory_ = shared ? comm.allocate_shared(bytes) : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::runtime_error("no memory");
  }
  ~Block() {
    if (shared_) {
      comm_.free_shared(memory_);
    } else {
      ::munmap(memory_, bytes_);
    }
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  [[nodiscard]] std::int8_t* get() const { return static_cast<std::int8_t*>(memory_); }

 private:
  Communicator& comm_;
  std::size_t bytes_;
  bool shared_;
  void* memory_;
};

void fill(std::int8_t* data, int rank, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) data[i] = given(rank, i);
}

template <class Wanted>
void expect(const char* what, const std::int8_t* got, std::size_t count, const Wanted& wanted) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) wrong += got[i] != wanted(i) ? 1 : 0;
  if (wrong == 0) return;
  std::size_t first = 0;
  while (got[first] == wanted(first)) ++first;
  ADD_FAILURE() << what << ": " << wrong << " elements are wrong, the first at " << first << ": " << int{got[first]} << ", not " << int{wanted(first)};
}

std::string every_operation(Communicator& comm, bool shared) {
  const int me = comm.rank();
  {
    const Block data(comm, kCount, shared);
    fill(data.get(), me, kCount);
    comm.all_reduce({data.get(), kType}, {data.get(), kType}, kCount).wait();
    expect("all_reduce", data.get(), kCount, [](std::size_t i) { return static_cast<std::int8_t>(given(0, i) + given(1, i)); });
    comm.barrier().wait();

    fill(data.get(), me, kCount);
    comm.broadcast({data.get(), kType}, kCount, 1).wait();
    expect("broadcast", data.get(), kCount, [](std::size_t i) { return given(1, i); });
    comm.barrier().wait();

    fill(data.get(), me, kCount);
    if (me == 0) {
      comm.send({data.get(), kType}, kCount, 1, 7).wait();
    } else {
      comm.recv({data.get(), kType}, kCount, 0, 7).wait();
      expect("recv", data.get(), kCount, [](std::size_t i) { return given(0, i); });
    }
    comm.barrier().wait();
  }
  {
    const Block full(comm, 2 * kCount, shared);
    std::int8_t* const own = full.get() + static_cast<std::size_t>(me) * kCount;
    fill(own, me, kCount);
    comm.all_gather({own, kType}, {full.get(), kType}, kCount).wait();
    for (int r = 0; r < 2; ++r) expect("all_gather", full.get() + static_cast<std::size_t>(r) * kCount, kCount, [r](std::size_t i) { return given(r, i); });
    comm.barrier().wait();
  }
  {
    constexpr std::size_t kKept = 5;
    const Block in(comm, kCount + kKept, shared);
    const Block out(comm, kCount + kKept, shared);
    fill(in.get(), me, kCount + kKept);
    std::vector<std::size_t> counts{kCount, kCount};
    counts[static_cast<std::size_t>(me)] = kKept;
    comm.all_to_all({in.get(), kType}, counts, {out.get(), kType}, counts).wait();
    // Rank 0 keeps the first of its elements, rank 1 the last; what comes from the peer lies after, or before.
    if (me == 0) {
      expect("all_to_all, kept", out.get(), kKept, [](std::size_t i) { return given(0, i); });
      expect("all_to_all", out.get() + kKept, kCount, [](std::size_t i) { return given(1, i); });
    } else {
      expect("all_to_all", out.get(), kCount, [](std::size_t i) { return given(0, kKept + i); });
      expect("all_to_all, kept", out.get() + kCount, kKept, [](std::size_t i) { return given(1, kCount + i); });
    }
    comm.barrier().wait();
  }
  return "done";
}

void run(bool shared, bool across_hosts) {
  if (std::getenv("WIREWISE_FULL") == nullptr) GTEST_SKIP() << "WIREWISE_FULL=1 runs it (10 GiB of memory)";
  if (available_memory() < kNeeded) GTEST_SKIP() << "needs 10 GiB of free memory";
  if (const std::string why = across_hosts ? comm::why_no_ucx() : ""; !why.empty()) GTEST_SKIP() << why;
  const TemporaryFolder folder;
  const auto results = run_ranks(
      2,
      [&](int rank) {
        if (across_hosts) {
          ::setenv("WIREWISE_HOST_ID", rank == 0 ? "host0" : "host1", 1);
          ::setenv("WIREWISE_NET", "lo", 1);
        }
        return every_operation(*make_communicator(std::make_shared<FileStore>(folder.path() / "store"), rank, 2, {120s}), shared);
      },
      280s);
  expect_all_ok(results);
  for (const RankResult& result : results) EXPECT_EQ(result.output, "done");
}

TEST(MoreThanTwoBillionElements, OfSharedMemory) { run(true, false); }
TEST(MoreThanTwoBillionElements, OfOwnMemory) { run(false, false); }
TEST(MoreThanTwoBillionElements, AcrossHosts) { run(false, true); }

}  // namespace
}  // namespace wirewise
