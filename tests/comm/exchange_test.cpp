// all_to_all with counts at random, in many rounds, so that every form of a small call meets every other: within the line, with a copy, from
// the buffer itself, as an operation in flight; as threads and as processes, with ranks that come late, and with counts that don't agree.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/ranks.h"
#include "wirewise/base/error.h"
#include "wirewise/comm/small_operation.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;

std::byte value(int from, int to, std::size_t round, std::size_t i) {
  return static_cast<std::byte>(static_cast<std::size_t>(from) * 31 + static_cast<std::size_t>(to) * 101 + round * 7 + i * 13 + (i >> 8));
}

/// What each rank sends to each in a round: all ranks draw the same table.
std::vector<std::vector<std::size_t>> draw_counts(std::mt19937_64& random, std::size_t n, std::size_t most) {
  std::vector<std::vector<std::size_t>> counts(n, std::vector<std::size_t>(n));
  const std::size_t usual = random() % (most + 1);
  for (auto& row : counts) {
    const auto style = random() % 4;  // nothing at all; all alike; uneven; uneven and small
    for (auto& count : row) count = style == 0 ? 0 : style == 1 ? usual : random() % ((style == 2 ? most : std::min<std::size_t>(most, 9)) + 1);
  }
  return counts;
}

void exchanges(Communicator& comm, std::uint64_t seed, int rounds) {
  std::mt19937_64 random(seed);
  const auto n = static_cast<std::size_t>(comm.size());
  const auto me = static_cast<std::size_t>(comm.rank());
  constexpr DType kTypes[] = {DType::kUInt8, DType::kInt16, DType::kFloat32, DType::kFloat64};
  const std::size_t kMost[] = {4, 8, 32, 300, comm::kSmallBytes / n, 4000};
  const std::size_t room = 8 * n * 8000;
  void* const shared_in = comm.allocate_shared(room);
  void* const shared_out = comm.allocate_shared(room);
  std::vector<std::byte> own_in(room);
  std::vector<std::byte> own_out(room);
  for (int round = 0; round < rounds; ++round) {
    const DType dtype = kTypes[random() % 4];
    const std::size_t element = size_of(dtype);
    const auto counts = draw_counts(random, n, std::max<std::size_t>(kMost[random() % 6] / element, 1));
    const std::uint64_t places = random();
    const std::uint64_t late = random() % (8 * n);
    const bool in_flight = random() % 4 == 0;
    std::byte* const in = (places >> me & 1) != 0 ? static_cast<std::byte*>(shared_in) : own_in.data();
    std::byte* const out = (places >> (me + 16) & 1) != 0 ? static_cast<std::byte*>(shared_out) : own_out.data();
    std::vector<std::size_t> recv(n);
    std::size_t at = 0;
    for (std::size_t r = 0; r < n; ++r) {
      recv[r] = counts[r][me];
      for (std::size_t i = 0; i < counts[me][r] * element; ++i) in[at++] = value(comm.rank(), static_cast<int>(r), static_cast<std::size_t>(round), i);
    }
    const std::size_t taken = std::accumulate(recv.begin(), recv.end(), std::size_t{0}) * element;
    std::memset(out, 0xee, taken + 8);
    CallOptions options;
    if (!in_flight) options.progress = CallOptions::Progress::kOnWait;
    if (late == me) std::this_thread::sleep_for(std::chrono::microseconds(200));  // the others go the long way, whatever the outcome
    comm.all_to_all({in, dtype}, counts[me], {out, dtype}, recv, options).wait();
    at = 0;
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t i = 0; i < recv[r] * element; ++i, ++at) {
        if (out[at] == value(static_cast<int>(r), comm.rank(), static_cast<std::size_t>(round), i)) continue;
        throw std::runtime_error("seed " + std::to_string(seed) + ", round " + std::to_string(round) + ", rank " + std::to_string(me) + " of " +
                                 std::to_string(n) + ": byte " + std::to_string(i) + " from rank " + std::to_string(r) + " is wrong");
      }
    }
    for (std::size_t i = 0; i < 8; ++i) {
      if (out[taken + i] != std::byte{0xee}) throw std::runtime_error("seed " + std::to_string(seed) + ": written past the output");
    }
  }
  comm.free_shared(shared_in);
  comm.free_shared(shared_out);
}

class Exchanges : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Exchanges, ::testing::Values(2, 3, 4, 5, 6, 7, 8, 9));

TEST_P(Exchanges, OfRandomUnevenCountsArriveWhole) {
  const std::uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  expect_no_errors(run_threads(GetParam(), [&](Communicator& comm) { exchanges(comm, seed, 1000); }));
}

TEST_P(Exchanges, OfProcessesArriveWhole) {
  const std::uint64_t seed = std::random_device{}();
  expect_all_ok(run_communicators(GetParam(), [&](Communicator& comm) {
    exchanges(comm, seed, 1000);
    return std::string();
  }));
}

TEST_P(Exchanges, CountsThatDisagreeFailOnAllRanks) {
  const int ranks = GetParam();
  for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{100}, std::size_t{5000}}) {
    const auto errors = run_threads(ranks, [&](Communicator& comm) {
      const auto n = static_cast<std::size_t>(comm.size());
      std::vector<std::size_t> send(n, count);
      std::vector<std::size_t> recv(n, count);
      if (comm.rank() == 0) send[n - 1] = count + 1;
      std::vector<float> in(n * count + 1);
      std::vector<float> out(n * count + 1);
      comm.all_to_all({in.data(), DType::kFloat32}, send, {out.data(), DType::kFloat32}, recv).wait();
      comm.barrier().wait();  // those whose own counts agree may hear of it in the next call
    });
    for (const std::string& error : errors) {
      EXPECT_NE(error.find("sends " + std::to_string(count + 1) + " elements"), std::string::npos) << error;
      EXPECT_NE(error.find("expects " + std::to_string(count)), std::string::npos) << error;
    }
  }
}

}  // namespace
}  // namespace wirewise
