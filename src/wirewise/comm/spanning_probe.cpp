#include "wirewise/comm/spanning_probe.h"

#include <algorithm>
#include <cstring>

#include "wirewise/comm/reduce.h"

namespace wirewise::comm {
namespace {

constexpr int kSmall = 8;
constexpr int kBurst = 16;
constexpr int kLarge = 3;
constexpr std::size_t kSmallBytes = 8;
constexpr std::size_t kLargeBytes = 384 * 1024;  // that leave a host
constexpr std::size_t kLocalElements = 64 * 1024;  // of float32

/// Other work on the host can only make things look slower, and by far: what is least is what the wire does. (A rank that finds its message
/// waiting measures less still, but of all ranks the slowest counts.)
Seconds least_of(const std::vector<Seconds>& times) { return times.empty() ? 0 : *std::min_element(times.begin(), times.end()); }

}  // namespace

void SpanningProbe::timed(std::vector<Seconds>& times, std::function<void()> start) {
  stage([this, start = std::move(start)] {
    started_ = Clock::now();
    start();
  });
  stage([this, &times] { times.push_back(std::chrono::duration<Seconds>(Clock::now() - started_).count()); });
}

void SpanningProbe::exchange(const std::vector<int>& to, const std::vector<int>& from, std::size_t bytes, int messages) {
  for (int i = 0; i < messages; ++i) {
    for (const int peer : to) send(peer, 0, out_, bytes);
    std::size_t at = 0;
    for (const int peer : from) {
      recv(peer, 0, in_ + at, bytes);
      at += bytes;
    }
  }
}

void SpanningProbe::begin() {
  speaks_ = place() < hosts().fewest();
  meet();
  time_messages();
  if (local_size() > 1) time_host();
  time_combining();
}

void SpanningProbe::time_messages() {
  const int count = hosts().count();
  const std::size_t bytes = kLargeBytes / static_cast<std::size_t>(hosts().fewest());
  const auto at = [&](int host) { return hosts().members(host)[static_cast<std::size_t>(place())]; };
  std::vector<int> next;
  std::vector<int> before;
  std::vector<int> others;
  if (speaks_) {
    next.push_back(at((host() + 1) % count));
    before.push_back(at((host() + count - 1) % count));
    for (int h = 0; h < count; ++h) {
      if (h != host()) others.push_back(at(h));
    }
  }
  stage([this, bytes] {
    greet({});
    out_ = scratch(bytes);
    in_ = scratch(bytes + kSmallBytes * kBurst);
    std::memset(out_, 0, bytes);
  });
  for (int i = 0; i < kSmall; ++i) timed(small_, [this, next, before] { exchange(next, before, kSmallBytes, 1); });
  for (int i = 0; i < 3; ++i) timed(burst_, [this, next, before] { exchange(next, before, kSmallBytes, kBurst); });
  for (int i = 0; i < kLarge; ++i) timed(large_, [this, next, before, bytes] { exchange(next, before, bytes, 1); });
  for (int i = 0; count > 2 && i < kLarge; ++i) {
    timed(many_, [this, others, bytes] { exchange(others, others, bytes / static_cast<std::size_t>(hosts().count() - 1), 1); });
  }
}

void SpanningProbe::time_host() {
  for (int i = 0; i < 5; ++i) {
    timed(call_, [this] { local(owner().local().barrier(inner_options())); });
  }
  // The vector needs memory of its own: pages that nobody has touched would be what is measured.
  stage([this] {
    in_ = scratch(kLocalElements * 4);
    std::memset(in_, 0, kLocalElements * 4);
    local(owner().local().barrier(inner_options()));
  });
  for (int i = 0; i < 5; ++i) {
    timed(vector_, [this] {
      const Buffer data{in_, DType::kFloat32};
      local(owner().local().Communicator::all_reduce(data, data, kLocalElements, Reduction::kSum, inner_options()));
    });
  }
}

void SpanningProbe::time_combining() {
  stage([this] {
    std::byte* const memory = scratch(3 * kLocalElements * 4);
    std::memset(memory, 0, 3 * kLocalElements * 4);
    const std::byte* const sources[2] = {memory, memory + kLocalElements * 4};
    std::byte* const target[1] = {memory + 2 * kLocalElements * 4};
    for (int i = 0; i < 3; ++i) {
      started_ = Clock::now();
      reduce({DType::kFloat32, DType::kFloat32, Reduction::kSum, false}, sources, target, kLocalElements);
      combine_.push_back(std::chrono::duration<Seconds>(Clock::now() - started_).count());
    }
    compute();
  });
}

void SpanningProbe::compute() {
  CostModel& model = *model_;
  // Nothing is free: figures of a rank that took no part, or of one that found its messages waiting, stay above zero.
  constexpr Seconds kLeast = 1e-9;
  constexpr Seconds kLeastPerByte = 1e-12;
  const auto places = static_cast<double>(hosts().fewest());
  model = {kLeast, kLeast, kLeastPerByte, kLeastPerByte, kLeast, kLeastPerByte, kLeastPerByte};
  model.combine_per_byte = std::max(kLeastPerByte, least_of(combine_) / (kLocalElements * 4));
  if (speaks_) {
    const double sent = static_cast<double>(kLargeBytes / static_cast<std::size_t>(places)) * places;
    model.latency = std::max(kLeast, least_of(small_));
    model.per_message = std::max(kLeast, (least_of(burst_) - model.latency) / (kBurst - 1));
    // No wire is faster than memory.
    model.per_byte = std::max(model.combine_per_byte, (least_of(large_) - model.latency) / sent);
    model.per_byte_many = model.per_byte;
    if (!many_.empty()) {
      const Seconds overhead = model.latency + (hosts().count() - 2) * model.per_message;
      model.per_byte_many = std::max(model.combine_per_byte, (least_of(many_) - overhead) / sent);
    }
  }
  if (!vector_.empty()) {
    model.local = std::max(kLeast, least_of(call_));
    // An all_reduce is one pass that reduces and one that gathers.
    model.local_per_byte = std::max(kLeastPerByte, (least_of(vector_) - model.local) / (2.0 * kLocalElements * 4));
  }
}

}  // namespace wirewise::comm
