// Rings are found one after the other by depth-first search, which takes the link with the most lanes left first; a ring and its reverse
// use different directions, so both are taken. When a choice leaves fewer rings than the GPU with the fewest links allows, the search
// starts again with other choices.
#include "wirewise/wiring/nvlink_rings.h"

#include <algorithm>
#include <numeric>
#include <limits>
#include <random>

namespace wirewise {
namespace {

using Lanes = std::vector<std::vector<int>>;

constexpr int kTries = 200;
constexpr int kMostSteps = 20000;  // of one search

class RingSearch {
 public:
  /// `closed`: a ring and no chain.
  RingSearch(const Lanes& lanes, std::mt19937& random, bool closed) : lanes_(lanes), random_(random), visited_(lanes.size(), false), closed_(closed) {}

  /// An order of all GPUs from this one on, or an empty one.
  std::vector<int> find(int first) {
    visited_[index(first)] = true;
    order_ = {first};
    if (!extend()) order_.clear();
    return order_;
  }

 private:
  bool extend() {
    if (++steps_ > kMostSteps) return false;
    const int at = order_.back();
    if (order_.size() == lanes_.size()) return !closed_ || lanes_[index(at)][index(order_.front())] > 0;
    std::vector<int> next;
    for (int to = 0; to < static_cast<int>(lanes_.size()); ++to) {
      if (!visited_[index(to)] && lanes_[index(at)][index(to)] > 0) next.push_back(to);
    }
    std::shuffle(next.begin(), next.end(), random_);
    std::stable_sort(next.begin(), next.end(), [&](int a, int b) { return lanes_[index(at)][index(a)] > lanes_[index(at)][index(b)]; });
    for (int to : next) {
      visited_[index(to)] = true;
      order_.push_back(to);
      if (extend()) return true;
      order_.pop_back();
      visited_[index(to)] = false;
    }
    return false;
  }
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  const Lanes& lanes_;
  std::mt19937& random_;
  std::vector<bool> visited_;
  bool closed_;
  std::vector<int> order_;
  int steps_ = 0;
};

/// Takes one lane off each link of a ring; false when one of them has none left.
bool take(Lanes& lanes, const std::vector<int>& ring) {
  Lanes after = lanes;
  for (std::size_t i = 0; i < ring.size(); ++i) {
    int& left = after[static_cast<std::size_t>(ring[i])][static_cast<std::size_t>(ring[(i + 1) % ring.size()])];
    if (left-- <= 0) return false;
  }
  lanes = std::move(after);
  return true;
}

}  // namespace

std::vector<std::vector<int>> nvlink_rings(const Lanes& lanes) {
  const std::size_t size = lanes.size();
  if (size < 2) return {};
  int bound = std::numeric_limits<int>::max();
  for (std::size_t i = 0; i < size; ++i) {
    int in = 0;
    for (std::size_t j = 0; j < size; ++j) in += lanes[j][i];
    bound = std::min({bound, in, std::accumulate(lanes[i].begin(), lanes[i].end(), 0)});
  }
  std::vector<std::vector<int>> best;
  std::mt19937 random(1);
  for (int attempt = 0; attempt < kTries && static_cast<int>(best.size()) < bound; ++attempt) {
    Lanes left = lanes;
    std::vector<std::vector<int>> rings;
    while (static_cast<int>(rings.size()) < bound) {
      std::vector<int> ring = RingSearch(left, random, true).find(0);
      if (ring.empty() || !take(left, ring)) break;
      std::vector<int> back = ring;
      std::reverse(back.begin() + 1, back.end());
      rings.push_back(std::move(ring));
      if (static_cast<int>(rings.size()) < bound && take(left, back)) rings.push_back(std::move(back));
    }
    if (rings.size() > best.size()) best = std::move(rings);
  }
  return best;
}

std::vector<std::vector<int>> nvlink_chains(const Lanes& lanes) {
  const std::size_t size = lanes.size();
  if (size < 2) return {};
  Lanes both = lanes;
  int links = 0;
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < size; ++j) {
      both[i][j] = std::min(lanes[i][j], lanes[j][i]);
      links += i < j ? both[i][j] : 0;
    }
  }
  const auto bound = static_cast<std::size_t>(links) / (size - 1);
  std::vector<std::vector<int>> best;
  std::mt19937 random(1);
  for (int attempt = 0; attempt < kTries && best.size() < bound; ++attempt) {
    Lanes left = both;
    std::vector<std::vector<int>> chains;
    while (chains.size() < bound) {
      std::vector<int> starts(size);
      std::iota(starts.begin(), starts.end(), 0);
      std::shuffle(starts.begin(), starts.end(), random);
      std::vector<int> chain;
      for (std::size_t i = 0; i < size && chain.empty(); ++i) chain = RingSearch(left, random, false).find(starts[i]);
      if (chain.empty()) break;
      for (std::size_t i = 0; i + 1 < size; ++i) {
        const auto a = static_cast<std::size_t>(chain[i]), b = static_cast<std::size_t>(chain[i + 1]);
        --left[a][b];
        --left[b][a];
      }
      chains.push_back(std::move(chain));
    }
    if (chains.size() > best.size()) best = std::move(chains);
  }
  return best;
}

}  // namespace wirewise
