#include "wirewise/comm/choice.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>

#include "wirewise/base/error.h"
#include "wirewise/base/sha256.h"
#include "wirewise/base/text.h"
#include "wirewise/comm/names.h"
#include "wirewise/comm/spanning_chunks.h"

namespace wirewise::comm {
namespace {

constexpr std::array kOperations = {Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather, Operation::kBroadcast};
constexpr Bytes kMostWhole = Bytes{1} << 18;
// Rounds of an all_reduce by doubling wait for each other, and their links with them: all rounds but the longest count so much more. Between 4
// hosts 64 MiB take 1.3 s where one exchange of as many bytes takes 0.92 s (docs/network.md), and in two racks 1.12 to 1.33 times the bare sum
// of the rounds, less where one outweighs the other (docs/placement.md).
constexpr double kRoundsWait = 1.2;
constexpr std::array kReductions = {Algorithm::kWhole, Algorithm::kDirect, Algorithm::kWholeDoubling, Algorithm::kDoubling};
constexpr std::array kScatters = {Algorithm::kDirect, Algorithm::kDoubling};
constexpr std::array kGathers = {Algorithm::kDirect, Algorithm::kRing};
constexpr std::array kBroadcasts = {Algorithm::kDirect, Algorithm::kChain};

constexpr int kLargestPower = 40;    // of sizes that the table tells apart
constexpr double kWorthIt = 0.01;    // an algorithm must be so much faster than those before it: equal ones don't take turns

}  // namespace

std::string_view name_of(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::kWhole: return "whole";
    case Algorithm::kWholeDoubling: return "whole_doubling";
    case Algorithm::kDirect: return "direct";
    case Algorithm::kDoubling: return "doubling";
    case Algorithm::kRing: return "ring";
    case Algorithm::kChain: return "chain";
  }
  return "?";
}

HostLayout HostLayout::of(const HostMap& hosts) {
  HostLayout layout;
  layout.hosts = hosts.count();
  for (int h = 0; h < hosts.count(); ++h) layout.ranks_per_host = std::max(layout.ranks_per_host, hosts.members_count(h));
  layout.equal = layout.ranks_per_host == hosts.fewest();
  layout.regular = hosts.regular();
  return layout;
}

std::span<const Operation> operations_with_choice() noexcept { return kOperations; }

std::span<const Algorithm> algorithms_of(Operation operation) noexcept {
  switch (operation) {
    case Operation::kAllReduce: return kReductions;
    case Operation::kReduceScatter: return kScatters;
    case Operation::kAllGather: return kGathers;
    case Operation::kBroadcast: return kBroadcasts;
    default: return {};
  }
}

std::string why_unfit(Algorithm algorithm, const HostLayout& layout) {
  const bool doubles = algorithm == Algorithm::kDoubling || algorithm == Algorithm::kWholeDoubling;
  if (doubles && !std::has_single_bit(static_cast<unsigned>(layout.hosts))) {
    return "a power of two of hosts, and there are " + std::to_string(layout.hosts);
  }
  if (doubles && !layout.regular) return "hosts of equally many consecutive ranks, a power of two";
  if (algorithm == Algorithm::kRing && !layout.equal) return "hosts of equally many ranks";
  return {};
}

void CostModel::take_worse(const CostModel& other) noexcept {
  latency = std::max(latency, other.latency);
  per_message = std::max(per_message, other.per_message);
  per_byte = std::max(per_byte, other.per_byte);
  per_byte_many = std::max(per_byte_many, other.per_byte_many);
  for (std::size_t k = 0; k < per_byte_at.size(); ++k) per_byte_at[k] = std::max(per_byte_at[k], other.per_byte_at[k]);
  local = std::max(local, other.local);
  local_per_byte = std::max(local_per_byte, other.local_per_byte);
  combine_per_byte = std::max(combine_per_byte, other.combine_per_byte);
}

Seconds CostModel::per_byte_of_round(int k) const noexcept {
  const Seconds there = per_byte_at[static_cast<std::size_t>(std::min(k, kMostRounds - 1))];
  return there > 0 ? there : per_byte;
}

CostModel CostModel::of_part(std::span<const int> hosts) const {
  CostModel part = *this;
  const int count = static_cast<int>(hosts.size());
  if (count < 2 || std::all_of(per_byte_at.begin(), per_byte_at.end(), [](Seconds figure) { return figure == 0; })) return part;
  const auto pair = [&](int one, int other) {
    const auto apart = static_cast<unsigned>(hosts[static_cast<std::size_t>(one)] ^ hosts[static_cast<std::size_t>(other)]);
    Seconds worst = 0;
    for (int k = 0; k < kMostRounds; ++k) {
      if ((apart >> k & 1U) != 0) worst = std::max(worst, per_byte_of_round(k));
    }
    return worst;
  };
  part.per_byte = 0;
  part.per_byte_at.fill(0);
  for (int host = 0; host < count; ++host) {
    part.per_byte = std::max(part.per_byte, pair(host, (host + 1) % count));
    for (int k = 0; k < kMostRounds && (1 << k) < count; ++k) {
      if ((host ^ (1 << k)) >= count) continue;
      Seconds& figure = part.per_byte_at[static_cast<std::size_t>(k)];
      figure = std::max(figure, pair(host, host ^ (1 << k)));
    }
  }
  if (count == 2) part.per_byte_many = part.per_byte;
  return part;
}

std::string CostModel::describe() const {
  const auto gigabytes = [](Seconds a_byte) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g GB/s", 1e-9 / a_byte);
    return std::string(text);
  };
  std::vector<std::string> distances;
  for (int k = 0; k < kMostRounds && per_byte_at[static_cast<std::size_t>(k)] > 0; ++k) distances.push_back(gigabytes(per_byte_of_round(k)));
  return "latency " + format_seconds(latency) + ", " + format_seconds(per_message) + " a further message, " + gigabytes(per_byte) +
         " from one host to another, " + gigabytes(per_byte_many) + " to all at once" +
         (distances.empty() ? "" : ", at distances 1, 2, 4 … " + join(distances, ", ")) + "; on a host " + format_seconds(local) + " a call, " +
         gigabytes(local_per_byte) + ", and adding " + gigabytes(combine_per_byte);
}

Seconds predicted_time(const CostModel& model, const HostLayout& layout, Algorithm algorithm, const CollectiveShape& shape) {
  const double hosts = layout.hosts;
  const double others = hosts - 1;
  const double rounds = std::ceil(std::log2(hosts));
  const double ranks = layout.ranks_per_host;
  const auto size = static_cast<double>(shape.bytes);
  const double wide = size * shape.widened;
  const double a = model.latency;
  const double o = model.per_message;
  const double b = model.per_byte;
  const double c = model.per_byte_many;
  Seconds halves = 0;   // a byte of a vector of which each round exchanges half as much as the one before
  Seconds longest = 0;  // of these rounds
  Seconds vectors = 0;  // a byte of a vector that each round exchanges whole
  for (int k = 0; k < static_cast<int>(rounds); ++k) {
    const Seconds half = model.per_byte_of_round(k) / static_cast<double>(std::uint64_t{2} << k);
    halves += half;
    longest = std::max(longest, half);
    vectors += model.per_byte_of_round(k);
  }
  const auto here = [&](double bytes) { return layout.ranks_per_host == 1 ? 0.0 : model.local + bytes * model.local_per_byte; };
  const double share = others / hosts;  // of a vector, that crosses
  const double combined = wide * model.combine_per_byte;
  switch (shape.operation) {
    case Operation::kAllReduce:
      if (algorithm == Algorithm::kWhole) {
        return a + 2 * others * o + others * (ranks * wide * c + combined) + here(layout.regular ? wide : ranks * size);
      }
      if (algorithm == Algorithm::kWholeDoubling) return rounds * (a + 2 * o + combined) + ranks * wide * vectors + here(wide);
      if (algorithm == Algorithm::kDoubling) {
        return rounds * (2 * a + 3 * o) + (wide + size) * (halves + kRoundsWait * (halves - longest)) + share * combined / ranks +
               here(wide) + here(size);
      }
      return 2 * a + 3 * others * o + share * ((wide + size) * c + combined / ranks) + here(wide) + here(size);
    case Operation::kReduceScatter:
      if (algorithm == Algorithm::kDoubling) return rounds * (a + 2 * o) + wide * halves + share * combined / ranks + here(wide);
      return a + 2 * others * o + share * (wide * c + combined / ranks) + here(wide);
    case Operation::kAllGather:
      if (algorithm == Algorithm::kRing) return others * (a + o) + o + share * size * b + here(size);
      return a + 2 * others * o + share * size * c + here(size);
    case Operation::kBroadcast: {
      const double chunk = std::min(size, ranks * static_cast<double>(kChunkBytes));
      if (algorithm == Algorithm::kChain) return others * (a + 2 * o + chunk * b) + (size - chunk) * b + 2 * here(size);
      return a + 2 * others * o + others * size * c + 2 * here(size);
    }
    default: return 0;
  }
}

AlgorithmTable::AlgorithmTable(const CostModel& model, const HostLayout& layout, std::vector<AlgorithmWish> wishes)
    : model_(model), layout_(layout), wishes_(std::move(wishes)) {
  for (const AlgorithmWish& wish : wishes_) {
    const std::string why = why_unfit(wish.algorithm, layout_);
    if (why.empty()) continue;
    std::vector<std::string> fit;
    for (const Algorithm other : algorithms_of(wish.operation)) {
      if (why_unfit(other, layout_).empty()) fit.emplace_back(name_of(other));
    }
    throw bad_input("WIREWISE_ALGO: " + std::string(name_of(wish.algorithm)) + " needs " + why + ".",
                    "For " + std::string(name_of(wish.operation)) + " here: " + join(fit, ", ") + ".");
  }
  for (const Operation operation : kOperations) {
    Bytes before = 0;
    rows_.push_back({operation, 0, fastest(operation, 0)});
    for (int power = 0; power <= kLargestPower; ++power) {
      const Bytes size = Bytes{1} << power;
      const Algorithm best = fastest(operation, size);
      // Where it changes, to the byte: several times between two powers, perhaps.
      while (rows_.back().algorithm != best) {
        Bytes low = before;
        Bytes high = size;
        while (high - low > 1) {
          const Bytes middle = low + (high - low) / 2;
          (fastest(operation, middle) == rows_.back().algorithm ? low : high) = middle;
        }
        rows_.push_back({operation, high, fastest(operation, high)});
        before = high;
      }
      before = size;
    }
  }
}

Algorithm AlgorithmTable::fastest(Operation operation, Bytes bytes) const {
  std::optional<Algorithm> best;
  Seconds least = 0;
  for (const Algorithm algorithm : algorithms_of(operation)) {
    if (!why_unfit(algorithm, layout_).empty()) continue;
    // Whole vectors save a round trip, and send each byte once for each rank of the host: never worth it beyond this, whatever was measured.
    const bool whole = algorithm == Algorithm::kWhole || algorithm == Algorithm::kWholeDoubling;
    if (whole && bytes > kMostWhole) continue;
    const Seconds time = predicted_time(model_, layout_, algorithm, {operation, bytes});
    if (best && time > least * (1 - kWorthIt)) continue;
    best = algorithm;
    least = time;
  }
  return best.value_or(Algorithm::kDirect);
}

Algorithm AlgorithmTable::choose(Operation operation, Bytes bytes) const noexcept {
  for (const AlgorithmWish& wish : wishes_) {
    if (wish.operation == operation && wish.from <= bytes && bytes <= wish.to) return wish.algorithm;
  }
  Algorithm chosen = Algorithm::kDirect;
  for (const Row& row : rows_) {
    if (row.operation == operation && row.from <= bytes) chosen = row.algorithm;
  }
  return chosen;
}

Seconds AlgorithmTable::predicted(const CollectiveShape& shape) const {
  return predicted_time(model_, layout_, choose(shape.operation, shape.bytes), shape);
}

std::vector<std::string> AlgorithmTable::describe() const {
  std::vector<std::string> lines;
  for (const Operation operation : kOperations) {
    std::vector<std::string> parts;
    for (const AlgorithmWish& wish : wishes_) {
      if (wish.operation != operation) continue;
      std::string range;
      if (wish.from > 0) range += " from " + format_bytes(wish.from);
      if (wish.to != ~Bytes{0}) range += " to " + format_bytes(wish.to);
      parts.push_back(std::string(name_of(wish.algorithm)) + range + " (as WIREWISE_ALGO says)");
    }
    for (const Row& row : rows_) {
      if (row.operation == operation) parts.push_back(std::string(name_of(row.algorithm)) + " from " + format_bytes(row.from));
    }
    lines.push_back(std::string(name_of(operation)) + ": " + join(parts, ", "));
  }
  return lines;
}

std::string AlgorithmTable::hash() const {
  Sha256 sha;
  const auto add = [&sha](std::uint64_t value) { sha.update(&value, sizeof value); };
  for (const Row& row : rows_) {
    for (const std::uint64_t value : {static_cast<std::uint64_t>(row.operation), row.from, static_cast<std::uint64_t>(row.algorithm)}) add(value);
  }
  for (const AlgorithmWish& wish : wishes_) {
    for (const std::uint64_t value : {static_cast<std::uint64_t>(wish.operation), static_cast<std::uint64_t>(wish.algorithm), wish.from, wish.to}) {
      add(value);
    }
  }
  return sha.hex();
}

}  // namespace wirewise::comm
