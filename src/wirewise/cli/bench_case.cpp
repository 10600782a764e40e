#include "wirewise/cli/bench_case.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "wirewise/cli/bench_pattern.h"

namespace wirewise::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Seconds kFill = 0.2;
constexpr int kFewest = 5;
constexpr int kMost = 20'000;
constexpr int kMostTimed = 2'000;  // iterations timed one by one, for percentiles
/// Calls shorter than this are timed in one stretch first: a look at the clock between them would be seen in the mean.
constexpr Seconds kClockIsFree = 20e-6;

double largest(Communicator& communicator, double own) {
  double all = 0;
  communicator.all_reduce({&own, DType::kFloat64}, {&all, DType::kFloat64}, 1, Reduction::kMax).wait();
  return all;
}

/// Memory of one kind, freed with the object.
class Memory {
 public:
  Memory(Communicator& communicator, std::size_t bytes, bool shared) : communicator_(communicator), shared_(shared) {
    if (bytes == 0) return;
    if (shared) {
      data_ = static_cast<std::byte*>(communicator.allocate_shared(bytes));
    } else {
      data_ = static_cast<std::byte*>(std::aligned_alloc(4096, round_up(bytes, 4096)));
      if (data_ == nullptr) throw std::bad_alloc();
    }
    std::memset(data_, 0, bytes);
  }
  ~Memory() {
    if (shared_) {
      if (data_ != nullptr) communicator_.free_shared(data_);
    } else {
      std::free(data_);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  Communicator& communicator_;
  bool shared_;
  std::byte* data_ = nullptr;
};

/// The same bytes on a device, where there is one.
class DeviceMemory {
 public:
  DeviceMemory(const OnDevice& on, std::size_t bytes) : on_(on), bytes_(bytes) {
    if (on.device == nullptr || bytes == 0) return;
    data_ = static_cast<std::byte*>(on.communicator->allocate_shared(bytes));
    stream_ = on.device->make_stream();
  }
  ~DeviceMemory() {
    if (data_ != nullptr) on_.communicator->free_shared(data_);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  void load(const std::byte* host) {
    if (data_ == nullptr) return;
    stream_->copy_to_device(data_, host, bytes_);
    settle();
  }
  void store(std::byte* host) {
    if (data_ == nullptr) return;
    stream_->follow_current();
    stream_->copy_to_host(host, data_, bytes_);
    settle();
  }

 private:
  void settle() {
    const auto event = stream_->record();
    while (!event->passed()) std::this_thread::yield();
  }
  OnDevice on_;
  std::size_t bytes_;
  std::byte* data_ = nullptr;
  std::unique_ptr<DeviceStream> stream_;
};

/// A rank's view of one case: buffers, and the call on one of their copies.
class Runner {
 public:
  Runner(Communicator& communicator, const Case& what, const Plan& plan)
      : communicator_(plan.on.device != nullptr ? *plan.on.communicator : communicator),
        device_(plan.on.device),
        what_(what),
        ranks_(static_cast<std::size_t>(communicator.size())),
        rank_(static_cast<std::size_t>(communicator.rank())),
        shape_(shape_of(what.op, what.dtype, what.size, communicator.size())),
        in_stride_(round_up(std::max<Bytes>(shape_.in, 1), 4096)),
        out_stride_(round_up(std::max<Bytes>(shape_.out, 1), 4096)),
        stride_(what.in_place ? std::max(in_stride_, out_stride_) : in_stride_ + out_stride_),
        copies_(plan.cold ? 1 + (2 * plan.cache + stride_ - 1) / stride_ : 1),
        memory_(communicator, shape_.size == 0 ? 0 : copies_ * stride_, plan.shared),
        device_memory_(plan.on, shape_.size == 0 ? 0 : copies_ * stride_),
        counts_(ranks_, shape_.count) {
    options_.progress = CallOptions::Progress::kOnWait;
    use(0);
    for (std::size_t copy = 0; copy < copies_; ++copy) {
      use(copy);
      fill_input();
    }
    device_memory_.load(memory_.data());
  }

  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }

  void call() {
    if (copies_ > 1) use(turn_++ % copies_);
    const DType dtype = what_.dtype;
    const ConstBuffer in{placed(in_), dtype};
    const Buffer out{placed(out_), dtype};
    switch (what_.op) {
      case Op::kAllReduce: communicator_.all_reduce(in, out, shape_.count, what_.redop, options_).wait(); break;
      case Op::kAllGather: communicator_.all_gather(in, out, shape_.count, options_).wait(); break;
      case Op::kReduceScatter: communicator_.reduce_scatter(in, out, shape_.count, what_.redop, options_).wait(); break;
      case Op::kBroadcast: communicator_.broadcast(out, shape_.count, what_.root, options_).wait(); break;
      case Op::kReduce: communicator_.reduce(in, out, shape_.count, what_.root, what_.redop, options_).wait(); break;
      case Op::kGather: communicator_.gather(in, out, shape_.count, what_.root, options_).wait(); break;
      case Op::kScatter: communicator_.scatter(in, out, shape_.count, what_.root, options_).wait(); break;
      case Op::kAllToAll: communicator_.all_to_all(in, counts_, out, counts_, options_).wait(); break;
      case Op::kSendRecv: ping_pong(in, out); break;
      case Op::kBarrier: communicator_.barrier(options_).wait(); break;
    }
  }

  /// Waits for the calls so far: a device is only told of them.
  void finish() {
    if (device_ != nullptr) device_->synchronize();
    communicator_.progress();
  }

  /// Calls once on fresh data and counts this rank's wrong elements.
  [[nodiscard]] std::size_t check() {
    if (shape_.count == 0) return 0;
    turn_ = 0;
    use(0);
    if (!what_.in_place) std::memset(out_, 0x5a, shape_.out);
    if (what_.op == Op::kBroadcast) std::memset(out_, 0x5a, shape_.out);
    fill_input();
    device_memory_.load(memory_.data());
    call();
    finish();
    device_memory_.store(memory_.data());
    return wrong();
  }

 private:
  /// Where a call finds what lies at `host` here.
  [[nodiscard]] std::byte* placed(std::byte* host) const noexcept {
    return device_memory_.data() == nullptr || host == nullptr ? host : device_memory_.data() + (host - memory_.data());
  }
  [[nodiscard]] bool is_root() const noexcept { return static_cast<int>(rank_) == what_.root; }
  [[nodiscard]] std::size_t part() const noexcept { return shape_.count * size_of(what_.dtype); }
  /// The other one of a pair of neighbours; the rank itself where there is none.
  [[nodiscard]] std::size_t partner() const noexcept { return (rank_ ^ 1) < ranks_ ? rank_ ^ 1 : rank_; }

  void use(std::size_t copy) noexcept {
    if (memory_.data() == nullptr) return;
    std::byte* const base = memory_.data() + copy * stride_;
    in_ = out_ = base;
    if (!what_.in_place) {
      out_ = base + in_stride_;
    } else if (what_.op == Op::kAllGather || (what_.op == Op::kGather && is_root())) {
      in_ = base + rank_ * part();
    } else if (what_.op == Op::kReduceScatter || (what_.op == Op::kScatter && is_root())) {
      out_ = base + rank_ * part();
    }
  }

  void ping_pong(ConstBuffer in, Buffer out) {
    const auto peer = static_cast<int>(partner());
    if (partner() == rank_) return;
    if (rank_ < partner()) {
      communicator_.send(in, shape_.count, peer, 0, options_).wait();
      communicator_.recv(out, shape_.count, peer, 0, options_).wait();
    } else {
      communicator_.recv(out, shape_.count, peer, 0, options_).wait();
      communicator_.send(in, shape_.count, peer, 0, options_).wait();
    }
  }

  void fill_input() {
    if (shape_.count == 0) return;
    const DType dtype = what_.dtype;
    const int me = static_cast<int>(rank_);
    if (reduces(what_.op)) {
      if (input_.empty()) input_ = reduction_input(dtype, what_.redop, static_cast<int>(ranks_), me);
      fill(in_, input_, 0, shape_.in / size_of(dtype));
    } else if (what_.op == Op::kBroadcast) {
      if (is_root()) fill(out_, moved_data(dtype, me, 0), 0, shape_.count);
    } else if (what_.op == Op::kAllToAll || what_.op == Op::kScatter) {
      if (what_.op == Op::kScatter && !is_root()) return;
      for (std::size_t r = 0; r < ranks_; ++r) fill(in_ + r * part(), moved_data(dtype, me, static_cast<int>(r)), 0, shape_.count);
    } else {
      fill(in_, moved_data(dtype, me, 0), 0, shape_.count);
    }
  }

  [[nodiscard]] std::size_t wrong() const {
    const DType dtype = what_.dtype;
    const int me = static_cast<int>(rank_);
    const auto reduced = [&](std::size_t first) {
      return count_wrong(out_, reduction_result(dtype, what_.redop, static_cast<int>(ranks_)), first, shape_.count);
    };
    const auto from = [&](std::size_t block, std::size_t source, int destination) {
      return count_wrong(out_ + block * part(), moved_data(dtype, static_cast<int>(source), destination), 0, shape_.count);
    };
    const auto from_all = [&](int destination) {
      std::size_t sum = 0;
      for (std::size_t r = 0; r < ranks_; ++r) sum += from(r, r, destination);
      return sum;
    };
    switch (what_.op) {
      case Op::kAllReduce: return reduced(0);
      case Op::kReduceScatter: return reduced(rank_ * shape_.count);
      case Op::kReduce: return is_root() ? reduced(0) : 0;
      case Op::kAllGather: return from_all(0);
      case Op::kGather: return is_root() ? from_all(0) : 0;
      case Op::kAllToAll: return from_all(me);
      case Op::kBroadcast: return from(0, static_cast<std::size_t>(what_.root), 0);
      case Op::kScatter: return from(0, static_cast<std::size_t>(what_.root), me);
      case Op::kSendRecv: return partner() == rank_ ? 0 : from(0, partner(), 0);
      case Op::kBarrier: return 0;
    }
    return 0;
  }

  Communicator& communicator_;
  Accelerator* const device_;
  const Case what_;
  const std::size_t ranks_;
  const std::size_t rank_;
  const Shape shape_;
  const Bytes in_stride_;
  const Bytes out_stride_;
  const Bytes stride_;
  const std::size_t copies_;
  Memory memory_;
  DeviceMemory device_memory_;
  std::vector<std::size_t> counts_;
  CallOptions options_;
  Period input_;
  std::size_t turn_ = 0;
  std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
};

Seconds since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Mean seconds of a call in one stretch of them.
Seconds stretch(Communicator& communicator, Runner& runner, int calls) {
  communicator.barrier().wait();
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) runner.call();
  runner.finish();
  return since(begin) / calls;
}

/// Seconds of each call, in rising order.
std::vector<Seconds> one_by_one(Communicator& communicator, Runner& runner, int calls) {
  std::vector<Seconds> times;
  times.reserve(static_cast<std::size_t>(calls));
  communicator.barrier().wait();
  auto before = Clock::now();
  for (int i = 0; i < calls; ++i) {
    runner.call();
    runner.finish();
    const auto now = Clock::now();
    times.push_back(std::chrono::duration<double>(now - before).count());
    before = now;
  }
  std::sort(times.begin(), times.end());
  return times;
}

/// The smallest of the values that at least `share` of them don't exceed.
Seconds percentile(const std::vector<Seconds>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

}  // namespace

Result run_case(Communicator& communicator, const Case& what, const Plan& plan, const MemoryLimit& limit) {
  Runner runner(communicator, what, plan);
  const int warmup = plan.warmup >= 0 ? plan.warmup : kFewest;
  for (int i = 0; i < warmup; ++i) runner.call();
  runner.finish();
  // Ranks agree on how often to call, since they all must.
  const Seconds guess = largest(communicator, stretch(communicator, runner, 3));
  const int iterations =
      plan.iterations > 0 ? plan.iterations : static_cast<int>(std::clamp(kFill / guess, static_cast<double>(kFewest), static_cast<double>(kMost)));

  Seconds mean = 0;
  const bool clock_shows = guess < kClockIsFree;
  if (clock_shows) mean = stretch(communicator, runner, iterations);
  const auto times = one_by_one(communicator, runner, clock_shows ? std::min(iterations, kMostTimed) : iterations);
  if (!clock_shows) {
    for (const Seconds time : times) mean += time / static_cast<double>(times.size());
  }

  // A ping-pong is two messages.
  const double calls = what.op == Op::kSendRecv ? 2 : 1;
  Result result;
  result.op = what.op;
  result.size = runner.shape().size;
  result.count = runner.shape().count;
  result.dtype = what.dtype;
  if (reduces(what.op)) result.redop = name_of(what.redop);
  if (has_root(what.op)) result.root = what.root;
  result.in_place = what.in_place;
  result.iterations = iterations;
  const Seconds time = largest(communicator, mean) / calls;
  result.time_us = time * 1e6;
  result.p50_us = largest(communicator, percentile(times, 0.5)) / calls * 1e6;
  result.p99_us = largest(communicator, percentile(times, 0.99)) / calls * 1e6;
  result.algbw_GBps = static_cast<double>(result.size) / time / 1e9;
  result.busbw_GBps = result.algbw_GBps * bus_factor(what.op, communicator.size());
  if (plan.link.hosts > 1) {
    result.limit_fraction = least_time(plan.link, what.op, what.dtype, result.size, communicator.size()) / time;
  } else if (limit.copy > 0) {
    result.limit_fraction = least_time(limit, least_traffic(what.op, result.size, communicator.size(), what.in_place)) / time;
  }

  auto wrong = static_cast<std::int64_t>(runner.check());
  std::int64_t all_wrong = 0;
  communicator.all_reduce({&wrong, DType::kInt64}, {&all_wrong, DType::kInt64}, 1).wait();
  result.wrong = static_cast<std::size_t>(all_wrong);
  return result;
}

}  // namespace wirewise::bench
