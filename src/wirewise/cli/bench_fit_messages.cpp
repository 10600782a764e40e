#include "wirewise/cli/bench_fit_messages.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "wirewise/base/error.h"
#include "wirewise/base/outliers.h"
#include "wirewise/cli/bench_memory.h"

namespace wirewise::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAskTag = 1, kDataTag = 2;
constexpr std::int64_t kDone = -1;
constexpr std::size_t kLine = 64;
constexpr std::size_t kMostRoom = std::size_t{256} << 20;
constexpr std::size_t kLeast = 7, kMost = 200;  // messages of a size
constexpr Seconds kFill = 0.15;                 // of a size
constexpr Seconds kLongest = 1.5;               // a message that would take longer is left out
constexpr std::size_t kEnoughSizes = 5;

Seconds since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// What stands at a place of the sender's memory: different in every eight bytes.
std::uint64_t word_at(std::size_t place) { return (place + 1) * 0x9e3779b97f4a7c15ULL; }

/// Messages go through more memory than the caches hold, from and to other places each time, as a training step's do.
class Pair {
 public:
  Pair(Communicator& communicator, std::span<const Bytes> sizes) : communicator_(communicator), sizes_(sizes) {
    const std::size_t largest = static_cast<std::size_t>(round_up(*std::max_element(sizes.begin(), sizes.end()), kLine));
    room_ = std::max(2 * largest, std::min<std::size_t>(2 * static_cast<std::size_t>(last_level_cache()), kMostRoom));
    data_ = static_cast<std::byte*>(communicator.allocate_shared(room_));
  }
  ~Pair() { communicator_.free_shared(data_); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  /// Sends what it is asked for until that is over.
  void serve(int to) {
    for (std::size_t place = 0; place + sizeof(std::uint64_t) <= room_; place += sizeof(std::uint64_t)) {
      const std::uint64_t word = word_at(place);
      std::memcpy(data_ + place, &word, sizeof word);
    }
    while (true) {
      std::int64_t asked[2] = {kDone, 0};
      communicator_.recv({asked, DType::kInt64}, 2, to, kAskTag, on_wait()).wait();
      if (asked[0] == kDone) return;
      communicator_.send({data_ + asked[1], DType::kUInt8}, static_cast<std::size_t>(asked[0]), to, kDataTag, on_wait()).wait();
    }
  }

  std::vector<MessageTime> measure(int from) {
    std::memset(data_, 0, room_);
    const Seconds half = median(repeat(from, 0, kMost)) / 2;
    std::vector<MessageTime> times;
    std::size_t measured = 0;
    Seconds last = 0;
    Bytes last_size = 0;
    for (const Bytes size : sizes_) {
      const Seconds guess = last_size > 0 ? last * static_cast<double>(size) / static_cast<double>(last_size) : 0;
      if (size > last_size && guess > kLongest && measured >= kEnoughSizes) continue;
      std::vector<Seconds> taken = repeat(from, static_cast<std::size_t>(size), kLeast);
      for (const Seconds time : taken) times.push_back({size, std::max(time - half, time / 10)});
      last = median(std::move(taken));
      last_size = size;
      ++measured;
    }
    std::int64_t done[2] = {kDone, 0};
    communicator_.send({done, DType::kInt64}, 2, from, kAskTag, on_wait()).wait();
    return times;
  }

  [[nodiscard]] std::int64_t wrong() const noexcept { return wrong_; }

 private:
  static CallOptions on_wait() {
    CallOptions options;
    options.progress = CallOptions::Progress::kOnWait;
    return options;
  }

  Seconds ask(int from, std::size_t size) {
    std::int64_t asked[2] = {static_cast<std::int64_t>(size), static_cast<std::int64_t>(place_)};
    const auto begin = Clock::now();
    communicator_.send({asked, DType::kInt64}, 2, from, kAskTag, on_wait()).wait();
    communicator_.recv({data_ + place_, DType::kUInt8}, size, from, kDataTag, on_wait()).wait();
    const Seconds taken = since(begin);
    check(size);
    place_ += static_cast<std::size_t>(round_up(std::max<std::size_t>(size, 1), kLine));
    return taken;
  }

  /// Compares what came, and clears it, so that it can't be taken for what comes next.
  void check(std::size_t size) {
    bool same = true;
    for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
      const std::uint64_t word = word_at(place_ + at);
      same = same && std::memcmp(data_ + place_ + at, &word, std::min(sizeof word, size - at)) == 0;
    }
    std::memset(data_ + place_, 0, size);
    if (!same) ++wrong_;
  }

  std::vector<Seconds> repeat(int from, std::size_t size, std::size_t least) {
    const auto next = [&] {
      if (place_ + size > room_) place_ = 0;
      return ask(from, size);
    };
    (void)next();  // the first of a size finds its way
    std::vector<Seconds> taken;
    Seconds all = 0;
    while (taken.size() < least || (all < kFill && taken.size() < kMost)) {
      taken.push_back(next());
      all += taken.back();
    }
    return taken;
  }

  Communicator& communicator_;
  std::span<const Bytes> sizes_;
  std::size_t room_ = 0, place_ = 0;
  std::byte* data_ = nullptr;
  std::int64_t wrong_ = 0;
};

}  // namespace

std::vector<MessageTime> time_messages(Communicator& communicator, int from, int to, std::span<const Bytes> sizes) {
  std::vector<MessageTime> times;
  std::int64_t header[2] = {0, 0};  // how many, how many of them wrong
  communicator.barrier().wait();
  if (communicator.rank() == from || communicator.rank() == to) {
    Pair pair(communicator, sizes);
    if (communicator.rank() == from) {
      pair.serve(to);
    } else {
      times = pair.measure(from);
      header[0] = static_cast<std::int64_t>(times.size());
      header[1] = pair.wrong();
    }
  }
  communicator.broadcast({header, DType::kInt64}, 2, to).wait();
  if (header[1] > 0) {
    throw Error(ErrorKind::kFailed,
                std::to_string(header[1]) + " messages from rank " + std::to_string(from) + " to rank " + std::to_string(to) +
                    " came with wrong bytes.",
                "The memory or the network of these hosts is broken: wirewise doctor cluster names the path.");
  }
  times.resize(static_cast<std::size_t>(header[0]));
  communicator.broadcast({times.data(), DType::kUInt8}, times.size() * sizeof(MessageTime), to).wait();
  return times;
}

}  // namespace wirewise::bench
