// How long a fuzzer goes on: a number of rounds, or with WIREWISE_FUZZ_SECONDS (WIREWISE_FULL=1: a minute) as many as fit into the time.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace wirewise::testing {

class FuzzRounds {
 public:
  explicit FuzzRounds(std::uint64_t usual) : usual_(usual) {
    const char* const wanted = std::getenv("WIREWISE_FUZZ_SECONDS");
    if (wanted != nullptr) {
      time_ = std::chrono::seconds(std::atol(wanted));
    } else if (std::getenv("WIREWISE_FULL") != nullptr) {
      time_ = std::chrono::minutes(1);
    }
  }
  ~FuzzRounds() { std::printf("%llu rounds\n", static_cast<unsigned long long>(round_ - 1)); }
  FuzzRounds(const FuzzRounds&) = delete;
  FuzzRounds& operator=(const FuzzRounds&) = delete;

  /// Begins another round; false when there were enough.
  bool more() {
    ++round_;
    if (round_ <= usual_) return true;
    return std::chrono::steady_clock::now() - start_ < time_;
  }
  /// The round that runs, from 0.
  [[nodiscard]] std::uint64_t round() const { return round_ - 1; }

 private:
  std::uint64_t usual_;
  std::chrono::nanoseconds time_{0};
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::uint64_t round_ = 0;
};

}  // namespace wirewise::testing
