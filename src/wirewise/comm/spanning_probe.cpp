#include "wirewise/comm/spanning_probe.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "wirewise/comm/reduce.h"

namespace wirewise::comm {
namespace {

constexpr int kSmall = 8;
constexpr int kBurst = 16;
constexpr std::size_t kSmallBytes = 8;
constexpr std::size_t kLargeBytes = 384 * 1024;  // that leave a host
constexpr std::size_t kLocalElements = 64 * 1024;  // of float32
// Nothing is free: figures of a rank that took no part, or of one that found its messages waiting, stay above zero.
constexpr Seconds kLeast = 1e-9;
constexpr Seconds kLeastPerByte = 1e-12;

Seconds least_of(std::span<const Seconds> times) { return times.empty() ? 0 : *std::min_element(times.begin(), times.end()); }

void take_slower(NetworkTimes::Exchanges& times, const NetworkTimes::Exchanges& others) {
  for (std::size_t i = 0; i < times.size(); ++i) times[i] = std::max(times[i], others[i]);
}

}  // namespace

void NetworkTimes::take_worse(const NetworkTimes& other) noexcept {
  rest.take_worse(other.rest);
  take_slower(next, other.next);
  take_slower(all, other.all);
  for (std::size_t k = 0; k < at.size(); ++k) take_slower(at[k], other.at[k]);
}

CostModel NetworkTimes::model() const noexcept {
  CostModel model = rest;
  // No wire is faster than memory.
  const auto a_byte = [&](const Exchanges& times) { return std::max(rest.combine_per_byte, least_of(times)); };
  model.per_byte = a_byte(next);
  model.per_byte_many = all == Exchanges{} ? model.per_byte : a_byte(all);
  for (std::size_t k = 0; k < at.size() && at[k] != Exchanges{}; ++k) model.per_byte_at[k] = a_byte(at[k]);
  return model;
}

Seconds SpanningProbe::latency() const { return std::max(kLeast, least_of(small_)); }

Seconds SpanningProbe::per_message() const { return std::max(kLeast, (least_of(burst_) - latency()) / (kBurst - 1)); }

std::size_t SpanningProbe::large_bytes() const { return kLargeBytes / static_cast<std::size_t>(hosts().fewest()); }

void SpanningProbe::timed(std::vector<Seconds>& times, std::function<void()> start) {
  stage([this, start = std::move(start)] {
    started_ = Clock::now();
    start();
  });
  stage([this, &times] { times.push_back(std::chrono::duration<Seconds>(Clock::now() - started_).count()); });
}

void SpanningProbe::time_exchange(NetworkTimes::Exchanges& times, const std::vector<int>& others, const std::vector<int>& to,
                                  const std::vector<int>& from, std::size_t bytes) {
  for (Seconds& time : times) {
    stage([this, others] { exchange(others, others, kSmallBytes, 1); });
    stage([this, to, from, bytes] {
      started_ = Clock::now();
      exchange(to, from, bytes, 1);
    });
    stage([this, &time, messages = static_cast<double>(to.size())] {
      if (!speaks_) return;
      const Seconds overhead = latency() + (messages - 1) * per_message();
      const double sent = static_cast<double>(large_bytes()) * hosts().fewest();
      time = std::max(kLeastPerByte, (std::chrono::duration<Seconds>(Clock::now() - started_).count() - overhead) / sent);
    });
  }
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
  const std::size_t bytes = large_bytes();
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
  time_exchange(times_->next, others, next, before, bytes);
  if (count == 2) return;
  time_exchange(times_->all, others, others, others, bytes / static_cast<std::size_t>(count - 1));
  if (!why_unfit(Algorithm::kDoubling, HostLayout::of(hosts())).empty()) return;
  for (int k = 0; (1 << k) < count; ++k) {
    const std::vector<int> peer{at(host() ^ (1 << k))};
    time_exchange(times_->at[static_cast<std::size_t>(k)], others, peer, peer, bytes);
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
  CostModel& model = times_->rest;
  model = {kLeast, kLeast, kLeastPerByte, kLeastPerByte, {}, kLeast, kLeastPerByte, kLeastPerByte};
  model.combine_per_byte = std::max(kLeastPerByte, least_of(combine_) / (kLocalElements * 4));
  if (speaks_) {
    model.latency = latency();
    model.per_message = per_message();
  }
  if (!vector_.empty()) {
    model.local = std::max(kLeast, least_of(call_));
    // An all_reduce is one pass that reduces and one that gathers.
    model.local_per_byte = std::max(kLeastPerByte, (least_of(vector_) - model.local) / (2.0 * kLocalElements * 4));
  }
}

}  // namespace wirewise::comm
