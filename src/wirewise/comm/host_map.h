// Which ranks of a communicator share a host, and who speaks for a host towards another.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace wirewise::comm {

class HostMap {
 public:
  HostMap() = default;
  /// `ids`: by rank, equal where ranks share a host. Hosts are numbered by their lowest rank.
  explicit HostMap(const std::vector<std::string>& ids);

  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(host_of_.size()); }
  [[nodiscard]] int count() const noexcept { return static_cast<int>(members_.size()); }
  [[nodiscard]] int host_of(int rank) const noexcept { return host_of_[static_cast<std::size_t>(rank)]; }
  /// The place of a rank among its host's.
  [[nodiscard]] int place_of(int rank) const noexcept { return place_of_[static_cast<std::size_t>(rank)]; }
  /// Ascending.
  [[nodiscard]] const std::vector<int>& members(int host) const noexcept { return members_[static_cast<std::size_t>(host)]; }
  [[nodiscard]] int members_count(int host) const noexcept { return static_cast<int>(members(host).size()); }

  /// The rank of `host` that deals with what place `place` of another host has to do with it: the same place where there is one.
  [[nodiscard]] int agent(int host, int place) const noexcept {
    return members(host)[static_cast<std::size_t>(place % members_count(host))];
  }
  /// The ranks of other hosts that `rank` is joined with: its agents, and those whose agent it is. Ascending; the relation is mutual.
  [[nodiscard]] std::vector<int> rails(int rank) const;
  /// Ranks of the smallest host: as many places as every host has.
  [[nodiscard]] int fewest() const noexcept { return fewest_; }
  /// Every host holds equally many ranks, a power of two, in one run: its sum is a node of the canonical tree.
  [[nodiscard]] bool regular() const noexcept { return regular_; }

 private:
  std::vector<std::vector<int>> members_;
  std::vector<int> host_of_;
  std::vector<int> place_of_;
  int fewest_ = 0;
  bool regular_ = true;
};

}  // namespace wirewise::comm
