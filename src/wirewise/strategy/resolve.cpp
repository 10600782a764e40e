// Which strategies can run on how many ranks. Every refusal names the key and what to set instead.
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/strategy/strategy.h"

namespace wirewise {
namespace {

struct Degree {
  std::string_view key;
  int value;
};

/// The degrees whose product is the number of ranks, innermost first; dp_shard only where it is set.
std::vector<Degree> degrees_of(const Strategy& s) {
  std::vector<Degree> degrees{{"tp", s.tp}, {"cp", s.cp}};
  if (s.dp_shard != -1) degrees.push_back({"dp_shard", s.dp_shard});
  degrees.push_back({"dp_replicate", s.dp_replicate});
  degrees.push_back({"pp", s.pp});
  return degrees;
}

void check_degrees(const Strategy& s) {
  auto all = degrees_of(s);
  all.push_back({"ep", s.ep});
  for (const auto& degree : all) {
    if (degree.value >= 1) continue;
    const bool shard = degree.key == "dp_shard";
    throw bad_input(
        "strategy." + std::string(degree.key) + " is " + std::to_string(degree.value) + ", but a degree is at least 1.",
        shard ? "Set it to -1 (all ranks that are left) or to 1 or more." : "Set it to 1 or more.");
  }
}

/// "set tp or pp to 2": each degree that alone can be lowered so that the mesh fits `ranks` ranks, with the largest value that
/// does.
std::string lower_one(const std::vector<Degree>& degrees, double product, int ranks, bool exact) {
  std::vector<std::pair<int, std::string>> by_value;  // value, the keys that may take it
  for (const auto& degree : degrees) {
    const double others = product / degree.value;
    if (degree.value == 1 || others > ranks) continue;
    const int rest = static_cast<int>(others);
    for (int lower = degree.value - 1; lower >= 1; --lower) {
      const std::int64_t needed = std::int64_t{rest} * lower;
      if (exact ? needed != ranks : ranks % needed != 0) continue;
      auto same = by_value.begin();
      while (same != by_value.end() && same->first != lower) ++same;
      if (same == by_value.end()) {
        by_value.emplace_back(lower, degree.key);
      } else {
        same->second += " or " + std::string(degree.key);
      }
      break;
    }
  }
  std::string text;
  for (const auto& [value, keys] : by_value) text += (text.empty() ? "set " : ", or ") + keys + " to " + std::to_string(value);
  return text;
}

/// Fills dp_shard, or refuses when the degrees don't multiply to `ranks`.
void fit_ranks(Strategy& s, int ranks) {
  const auto degrees = degrees_of(s);
  const bool exact = s.dp_shard != -1;
  double product = 1;  // in double: five degrees may overflow any integer
  std::string factors;
  for (const auto& degree : degrees) {
    product *= degree.value;
    if (degree.value > 1)
      factors += (factors.empty() ? "" : " x ") + std::string(degree.key) + " " + std::to_string(degree.value);
  }
  const bool fits = exact ? product == ranks : product <= ranks && ranks % static_cast<int>(product) == 0;
  if (fits) {
    if (!exact) s.dp_shard = ranks / static_cast<int>(product);
    return;
  }
  if (factors.empty()) factors = "dp_shard 1";
  constexpr double kMostRanks = 1e9;
  const std::string started = std::to_string(ranks) + (ranks == 1 ? " was started." : " were started.");
  if (product > kMostRanks) {
    throw bad_input("strategy needs more than a billion ranks (" + factors + "), but " + started, "Set smaller degrees.");
  }
  const std::string needed = std::to_string(static_cast<int>(product));
  // Where dp_shard takes what is left, any multiple will do.
  const bool multiple = !exact && product < ranks;
  std::string remedy = "Start " + needed;
  if (multiple) remedy = "Start " + std::to_string(ranks / static_cast<int>(product) * static_cast<int>(product));
  if (exact && product < ranks && ranks % (static_cast<int>(product) / s.dp_shard) == 0) {
    remedy +=
        ", or set dp_shard to " + std::to_string(ranks / (static_cast<int>(product) / s.dp_shard)) + " or -1 (what is left)";
  } else if (const auto lower = lower_one(degrees, product, ranks, exact); !lower.empty()) {
    remedy += ", or " + lower;
  }
  throw bad_input("strategy needs " + std::string(multiple ? "a multiple of " : "") + needed +
                      (product == 1 ? " rank (" : " ranks (") + factors + "), but " + started,
                  remedy + ".");
}

[[noreturn]] void refuse(const std::string& key, const std::string& value, const std::string& what, const std::string& remedy) {
  throw bad_input("strategy." + key + " " + value + ": " + what + " isn't there yet.", remedy);
}

void refuse_absent_features(const Strategy& s) {
  struct Absent {
    std::string_view key;
    int value;
    std::string_view what;
  };
  const std::array absent{
      Absent{"pp", s.pp, "pipeline parallelism"},
      Absent{"dp_replicate", s.dp_replicate, "sharding within groups that replicate each other"},
      Absent{"cp", s.cp, "context parallelism"},
      Absent{"tp", s.tp, "tensor parallelism"},
      Absent{"ep", s.ep, "expert parallelism"},
      Absent{"virtual_stages", s.virtual_stages, "pipeline parallelism"},
  };
  for (const auto& feature : absent) {
    if (feature.value == 1) continue;
    refuse(std::string(feature.key), std::to_string(feature.value), std::string(feature.what),
           feature.key == "dp_replicate" ? "Set it to 1; --strategy ddp replicates on all ranks, zero3 shards over all."
                                         : "Set it to 1.");
  }
  if (s.pipeline != Pipeline::k1F1B) {
    const std::string name = s.pipeline == Pipeline::kGpipe         ? "gpipe"
                             : s.pipeline == Pipeline::kInterleaved ? "interleaved"
                                                                    : "zb-h1";
    refuse("pipeline", name, "pipeline parallelism", "Remove it.");
  }
  if (s.recompute == Recompute::kSelective) {
    refuse("recompute", "selective", "recomputing parts of a block", "Set it to none or full.");
  }
  if (s.offload) refuse("offload", "true", "offloading to host memory", "Set it to false.");
}

void check_dtype(const std::string& key, DType dtype) {
  if (dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16) return;
  throw bad_input("strategy." + key + " is " + std::string(name_of(dtype)) + ", which models don't train in.",
                  "Set it to float32, bfloat16 or float16.");
}

void check_at_least(const std::string& key, int value, int least) {
  if (value >= least) return;
  throw bad_input("strategy." + key + " is " + std::to_string(value) + ", but must be at least " + std::to_string(least) + ".",
                  "Set it to " + std::to_string(least) + " or more.");
}

/// The stage is known before the hosts are.
void check_alias(const Strategy& s) {
  if (s.alias != Alias::kOn || s.zero == 3) return;
  throw bad_input("strategy.alias on: the ranks of a host share whole parameters that they hold in shards, but under " + name_of(s) +
                      " each rank holds them whole.",
                  "Use zero3, or set strategy.alias to auto.");
}

}  // namespace

void resolve(Strategy& strategy, int ranks) {
  if (ranks < 1) throw bad_input("a strategy can't run on " + std::to_string(ranks) + " ranks.", "Start 1 rank or more.");
  (void)name_of(strategy);  // refuses a stage that ZeRO doesn't have
  check_degrees(strategy);
  check_at_least("virtual_stages", strategy.virtual_stages, 1);
  check_at_least("prefetch", strategy.prefetch, 0);
  check_at_least("accumulation", strategy.accumulation, 1);
  check_dtype("param_dtype", strategy.param_dtype);
  check_dtype("reduce_dtype", strategy.reduce_dtype);
  check_dtype("buffer_dtype", strategy.buffer_dtype);
  fit_ranks(strategy, ranks);
  refuse_absent_features(strategy);
  check_alias(strategy);
}

void resolve_alias(Strategy& strategy, int hosts) {
  check_alias(strategy);
  if (strategy.alias == Alias::kAuto) strategy.alias = strategy.zero == 3 && strategy.dp_shard > 1 && hosts == 1 ? Alias::kOn : Alias::kOff;
  if (strategy.alias == Alias::kOn && hosts > 1) {
    throw bad_input("strategy.alias on: one buffer for all ranks needs them on one host, but they are on " + std::to_string(hosts) + ".",
                    "Set strategy.alias to auto or off.");
  }
}

}  // namespace wirewise
