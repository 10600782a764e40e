// Measures the network between hosts and the memory of this one, for the model that algorithms are chosen by. It runs as an operation does:
// with its ways of driving and waiting, which are a part of what is measured, and with its deadlines and errors.
//
// All hosts send around a ring at once, each rank of a place to the next host's: eight small messages one after another (latency), one burst
// of small ones (the cost of each), then three messages of 384 KiB a host in all; with more than two hosts, also three times as much to all
// the others at once. 2.3 MiB a host at most: 20 ms at 1 Gbit/s. The middle of three or more counts;
// of what memory does, the least.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "wirewise/comm/choice.h"
#include "wirewise/comm/spanning_operation.h"

namespace wirewise::comm {

class SpanningProbe final : public SpanningOperation {
 public:
  /// `model` is filled when the operation is complete.
  SpanningProbe(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options, std::shared_ptr<CostModel> model)
      : SpanningOperation(std::move(owner), print, std::move(options)), model_(std::move(model)) {}

 private:
  using Clock = std::chrono::steady_clock;
  void begin() override;
  void time_messages();
  void time_host();
  void time_combining();
  /// A stage between two times: what `start` begins.
  void timed(std::vector<Seconds>& times, std::function<void()> start);
  void exchange(const std::vector<int>& to, const std::vector<int>& from, std::size_t bytes, int messages);
  void compute();

  std::shared_ptr<CostModel> model_;
  std::byte* out_ = nullptr;
  std::byte* in_ = nullptr;
  Clock::time_point started_;
  bool speaks_ = false;  // of the places that every host has
  std::vector<Seconds> small_;
  std::vector<Seconds> burst_;
  std::vector<Seconds> large_;
  std::vector<Seconds> many_;
  std::vector<Seconds> call_;
  std::vector<Seconds> vector_;
  std::vector<Seconds> combine_;
};

}  // namespace wirewise::comm
