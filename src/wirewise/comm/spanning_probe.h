// Measures the network between hosts and the memory of this one, for the model that algorithms are chosen by. It runs as an operation does:
// with its ways of driving and waiting, which are a part of what is measured, and with its deadlines and errors.
//
// All hosts send around a ring at once, each rank of a place to the next host's: eight small messages one after another (latency), one burst
// of small ones (the cost of each), then three messages of 384 KiB a host in all; with more than two hosts, also three times as much to all
// the others at once, and where sums can go by doubling as much again at each of its distances. With 4 hosts 4.5 MiB a host: 38 ms at
// 1 Gbit/s. An exchange of large messages takes as long as its slowest rank, for links that several hosts share serve one before the other;
// ranks begin it together. Other work on a host can only make things look slower, and by far: of equal exchanges the least counts.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include "wirewise/comm/choice.h"
#include "wirewise/comm/spanning_operation.h"

namespace wirewise::comm {

/// What a rank measures.
struct NetworkTimes {
  static constexpr int kLarge = 3;
  using Exchanges = std::array<Seconds, kLarge>;  // a byte that leaves a host, of each exchange

  CostModel rest;  // all figures of the model but those of bytes between hosts
  Exchanges next{};
  Exchanges all{};                                        // zero with two hosts
  std::array<Exchanges, CostModel::kMostRounds> at{};     // by round of doubling; zero where nothing can go by it

  /// The slower rank's of each figure.
  void take_worse(const NetworkTimes& other) noexcept;
  [[nodiscard]] CostModel model() const noexcept;
};

class SpanningProbe final : public SpanningOperation {
 public:
  /// `times` is filled when the operation is complete.
  SpanningProbe(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options, std::shared_ptr<NetworkTimes> times)
      : SpanningOperation(std::move(owner), print, std::move(options)), times_(std::move(times)) {}

 private:
  using Clock = std::chrono::steady_clock;
  void begin() override;
  void time_messages();
  void time_host();
  void time_combining();
  /// A stage between two times: what `start` begins.
  void timed(std::vector<Seconds>& times, std::function<void()> start);
  /// An exchange of large messages, kLarge times: `bytes` to each. Ranks of `others` begin together.
  void time_exchange(NetworkTimes::Exchanges& times, const std::vector<int>& others, const std::vector<int>& to, const std::vector<int>& from,
                     std::size_t bytes);
  void exchange(const std::vector<int>& to, const std::vector<int>& from, std::size_t bytes, int messages);
  void compute();
  [[nodiscard]] Seconds latency() const;      // of a message
  [[nodiscard]] Seconds per_message() const;  // of each further one
  [[nodiscard]] std::size_t large_bytes() const;  // of a rank

  std::shared_ptr<NetworkTimes> times_;
  std::byte* out_ = nullptr;
  std::byte* in_ = nullptr;
  Clock::time_point started_;
  bool speaks_ = false;  // of the places that every host has
  std::vector<Seconds> small_;
  std::vector<Seconds> burst_;
  std::vector<Seconds> call_;
  std::vector<Seconds> vector_;
  std::vector<Seconds> combine_;
};

}  // namespace wirewise::comm
