// What tests of collectives share: buffers of every kind, inputs whose results are known, ranks spread over pretended hosts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/numbers.h"
#include "comm/ranks.h"

namespace wirewise::testing {

/// A buffer of one rank: shared or private, aligned or not.
class Memory {
 public:
  Memory(Communicator& comm, std::size_t bytes, bool shared, std::size_t shift) : comm_(comm) {
    if (shared) {
      base_ = static_cast<std::byte*>(comm.allocate_shared(bytes + shift));
    } else {
      own_.resize(bytes + shift + 1);
    }
    data_ = (shared ? base_ : own_.data()) + shift;
  }
  ~Memory() {
    if (base_ != nullptr) comm_.free_shared(base_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] std::byte* get() const { return data_; }

 private:
  Communicator& comm_;
  std::vector<std::byte> own_;
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
};

struct Layout {
  bool shared_in;
  bool shared_out;
  bool in_place;
  std::size_t shift;
};
// In place, one buffer serves for both. The last lets ranks differ: even ones share, odd ones don't.
inline constexpr Layout kLayouts[] = {
    {true, true, false, 0}, {true, true, true, 0}, {false, false, false, 0}, {false, false, true, 1},
    {true, false, false, 3}, {false, true, false, 2},
};

/// The reference for elements of large buffers is a repeating pattern of this many numbers (a prime, so that it meets no border twice).
inline constexpr std::size_t kPeriod = 9973;

inline void fill_input(DType dtype, std::uint64_t seed, int rank, std::byte* data, std::size_t count) {
  for (std::size_t i = 0; i < count && i < kPeriod; ++i) write_number(dtype, data, i, input_number(dtype, seed, rank, i));
  const std::size_t period = kPeriod * size_of(dtype);
  for (std::size_t at = period; at < count * size_of(dtype); at += period) {
    std::memcpy(data + at, data, std::min(period, count * size_of(dtype) - at));
  }
}

/// The expected value of element i when all ranks gave fill_input(seed).
inline double expected(DType dtype, Reduction op, std::uint64_t seed, int ranks, std::size_t i) {
  std::vector<double> values;
  for (int r = 0; r < ranks; ++r) values.push_back(input_number(dtype, seed, r, i));
  return reduced_number(dtype, op, values);
}

/// Throws at the first element that differs. `want` holds one period.
inline void check(const Communicator& comm, DType dtype, const std::byte* got, const std::vector<double>& want, std::size_t first, std::size_t count,
           const std::string& what) {
  for (std::size_t i = 0; i < count; ++i) {
    const double value = read_number(dtype, got, i);
    const double wanted = want[(first + i) % kPeriod];
    if (value == wanted) continue;
    throw std::runtime_error(what + ", rank " + std::to_string(comm.rank()) + " of " + std::to_string(comm.size()) + ": element " +
                             std::to_string(i) + " of " + std::to_string(count) + " is " + std::to_string(value) + ", not " +
                             std::to_string(wanted));
  }
}

/// How many ranks, on which pretended host each is (empty: all on one), and what WIREWISE_ALGO says (empty: nothing).
struct Spread {
  int ranks = 1;
  std::vector<int> hosts;
  std::string algorithms = {};
  operator int() const { return ranks; }
  friend std::ostream& operator<<(std::ostream& out, const Spread& spread) {
    out << spread.ranks << " ranks";
    for (const int host : spread.hosts) out << ' ' << host;
    return out << ' ' << spread.algorithms;
  }
};
inline Spread on_hosts(std::vector<int> hosts, std::string algorithms = {}) { return {static_cast<int>(hosts.size()), hosts, std::move(algorithms)}; }

class Collectives : public ::testing::TestWithParam<Spread> {
 protected:
  void SetUp() override {
    pretended_hosts() = GetParam().hosts;
    if (!GetParam().algorithms.empty()) ::setenv("WIREWISE_ALGO", GetParam().algorithms.c_str(), 1);
  }
  void TearDown() override {
    pretended_hosts().clear();
    ::unsetenv("WIREWISE_ALGO");
  }
};

}  // namespace wirewise::testing
