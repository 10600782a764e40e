#include "wirewise/cli/bench_link.h"

#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "wirewise/comm/cards.h"

namespace wirewise::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMessage = std::size_t{4} << 20;
constexpr Seconds kFill = 0.25;
constexpr int kMost = 256;  // messages of a rank
constexpr int kPasses = 3;

double largest(Communicator& communicator, double own) {
  double all = 0;
  communicator.all_reduce({&own, DType::kFloat64}, {&all, DType::kFloat64}, 1, Reduction::kMax).wait();
  return all;
}

struct Stream {
  Communicator& communicator;
  std::byte* out;
  std::byte* in;
  int to = -1;    // none: silent
  int from = -1;

  /// The slowest rank's time for `messages` messages of each rank that sends.
  Seconds run(int messages) const {
    CallOptions options;
    options.progress = CallOptions::Progress::kOnWait;
    communicator.barrier().wait();
    const auto begin = Clock::now();
    std::vector<Work> works;
    for (int i = 0; i < messages; ++i) {
      if (from >= 0) works.push_back(communicator.recv({in, DType::kUInt8}, kMessage, from, 1, options));
      if (to >= 0) works.push_back(communicator.send({out, DType::kUInt8}, kMessage, to, 1, options));
      if (works.size() < 4) continue;  // two messages of each direction at once: the wire never waits for a call
      for (std::size_t w = 0; w + 2 < works.size(); ++w) works[w].wait();
      works.erase(works.begin(), works.end() - 2);
    }
    for (Work& work : works) work.wait();
    return largest(communicator, std::chrono::duration<double>(Clock::now() - begin).count());
  }

  /// Bytes a second of one rank that sends.
  BytesPerSecond rate() const {
    const Seconds guess = run(2) / 2;
    const int messages = static_cast<int>(std::clamp(kFill / guess, 2.0, static_cast<double>(kMost)));
    Seconds best = run(messages);
    for (int pass = 1; pass < kPasses; ++pass) best = std::min(best, run(messages));
    return messages * static_cast<double>(kMessage) / best;
  }
};

}  // namespace

LinkLimit measure_link(Communicator& communicator) {
  LinkLimit limit;
  const int ranks = communicator.size();
  const std::string id = comm::make_card(ranks).host_id;
  const std::uint64_t own = XXH64(id.data(), id.size(), 0);
  std::vector<std::uint64_t> ids(static_cast<std::size_t>(ranks));
  communicator.all_gather({&own, DType::kInt64}, {ids.data(), DType::kInt64}, 1).wait();
  limit.hosts = static_cast<int>(std::set(ids.begin(), ids.end()).size());
  if (limit.hosts < 2 || ranks % limit.hosts != 0) return limit;
  const int here = ranks / limit.hosts;
  const int host = communicator.rank() / here;
  for (std::size_t r = 0; r < ids.size(); ++r) {
    if (ids[r] != ids[r - r % static_cast<std::size_t>(here)]) return limit;
  }
  const auto memory = [&] { return static_cast<std::byte*>(communicator.allocate_shared(kMessage)); };
  Stream stream{communicator, memory(), memory()};
  std::fill(stream.out, stream.out + kMessage, std::byte{1});
  if (host == 0) stream.to = communicator.rank() + here;
  if (host == 1) stream.from = communicator.rank() - here;
  limit.one_way = stream.rate() * here;
  stream.to = (communicator.rank() + here) % ranks;
  stream.from = (communicator.rank() + ranks - here) % ranks;
  limit.all_at_once = stream.rate() * here;
  communicator.barrier().wait();
  communicator.free_shared(stream.out);
  communicator.free_shared(stream.in);
  return limit;
}

double least_link_bytes(Op op, DType dtype, Bytes size, int ranks, int hosts) noexcept {
  if (hosts < 2 || ranks % hosts != 0) return 0;
  const auto whole = static_cast<double>(size);
  const double elsewhere = static_cast<double>(hosts - 1) / hosts;
  // Partial sums of 16-bit floats travel as float32.
  const double partials = is_floating(dtype) && size_of(dtype) == 2 ? 2 : 1;
  switch (op) {
    case Op::kAllReduce: return elsewhere * whole * (partials + 1);
    case Op::kReduceScatter: return elsewhere * whole * partials;
    case Op::kAllGather:
    case Op::kGather:
    case Op::kScatter: return elsewhere * whole;
    case Op::kBroadcast: return whole;
    case Op::kReduce: return whole * partials;
    case Op::kAllToAll: return elsewhere * whole * ranks / hosts;
    case Op::kSendRecv:
    case Op::kBarrier: return 0;
  }
  return 0;
}

Seconds least_time(const LinkLimit& limit, Op op, DType dtype, Bytes size, int ranks) noexcept {
  const bool one_way = has_root(op);
  const BytesPerSecond rate = one_way ? limit.one_way : limit.all_at_once;
  return rate > 0 ? least_link_bytes(op, dtype, size, ranks, limit.hosts) / rate : 0;
}

}  // namespace wirewise::bench
