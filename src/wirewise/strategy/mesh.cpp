// Where ranks sit in a strategy's mesh: a mixed-radix number, outermost digit first.
#include <string>

#include "wirewise/base/error.h"
#include "wirewise/strategy/strategy.h"

namespace wirewise {
namespace {

constexpr int kDims = 5;

}  // namespace

Mesh::Mesh(const Strategy& resolved, int ranks)
    : ranks_(ranks), degrees_{resolved.pp, resolved.dp_replicate, resolved.dp_shard, resolved.cp, resolved.tp} {
  double product = 1;
  for (int degree : degrees_) {
    if (degree < 1) {
      throw bad_input("a mesh can't have a degree of " + std::to_string(degree) + ".",
                      "Resolve the strategy first, or set 1 or more.");
    }
    product *= degree;
  }
  if (product != ranks) {
    throw bad_input("the strategy's degrees don't multiply to " + std::to_string(ranks) + " ranks.",
                    "Resolve the strategy first.");
  }
}

int Mesh::degree(Dim dim) const noexcept { return degrees_[static_cast<int>(dim)]; }

Mesh::Coordinate Mesh::coordinate(int rank) const {
  if (rank < 0 || rank >= ranks_) {
    throw bad_input("rank " + std::to_string(rank) + " is not in a mesh of " + std::to_string(ranks_) + " ranks.");
  }
  int digits[kDims];
  for (int dim = kDims - 1; dim >= 0; --dim) {
    digits[dim] = rank % degrees_[dim];
    rank /= degrees_[dim];
  }
  return {digits[0], digits[1], digits[2], digits[3], digits[4]};
}

int Mesh::rank_of(const Coordinate& coordinate) const {
  const int digits[kDims] = {coordinate.pp, coordinate.dp_replicate, coordinate.dp_shard, coordinate.cp, coordinate.tp};
  int rank = 0;
  for (int dim = 0; dim < kDims; ++dim) {
    if (digits[dim] < 0 || digits[dim] >= degrees_[dim]) {
      throw bad_input("coordinate " + std::to_string(digits[dim]) + " is outside a mesh dimension of " +
                      std::to_string(degrees_[dim]) + ".");
    }
    rank = rank * degrees_[dim] + digits[dim];
  }
  return rank;
}

std::vector<int> Mesh::group_of(int rank, Dim dim) const {
  (void)coordinate(rank);  // refuses a rank outside
  int stride = 1;          // between neighbours along `dim`
  for (int inner = kDims - 1; inner > static_cast<int>(dim); --inner) stride *= degrees_[inner];
  const int first = rank - rank / stride % degree(dim) * stride;
  std::vector<int> group;
  for (int i = 0; i < degree(dim); ++i) group.push_back(first + i * stride);
  return group;
}

int Mesh::data_rank(int rank) const {
  const Coordinate at = coordinate(rank);
  return at.dp_replicate * degree(Dim::kDpShard) + at.dp_shard;
}

int Mesh::data_ranks() const noexcept { return degree(Dim::kDpReplicate) * degree(Dim::kDpShard); }

}  // namespace wirewise
