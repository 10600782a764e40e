// micro_batch x accumulation x data ranks = global_batch: any two give the third, and where nothing whole comes out the legal values
// are named.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/train/config.h"

namespace wirewise {
namespace {

using I = std::int64_t;

constexpr I kMostBatch = I{1} << 31;

/// "1, 2, 4, 8 or 16"; long lists end in "…".
std::string list(const std::vector<I>& values) {
  constexpr std::size_t kShown = 10;
  std::string out;
  const std::size_t shown = std::min(values.size(), kShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == shown && values.size() <= kShown;
    out += (i == 0 ? "" : last ? " or " : ", ") + std::to_string(values[i]);
  }
  return values.size() > kShown ? out + ", …" : out;
}

std::vector<I> divisors(I value) {
  std::vector<I> low, high;
  for (I d = 1; d * d <= value; ++d) {
    if (value % d != 0) continue;
    low.push_back(d);
    if (d * d != value) high.push_back(value / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

/// The multiples of `unit` next to `value`.
std::vector<I> neighbours(I value, I unit) {
  std::vector<I> out;
  if (value / unit > 0) out.push_back(value / unit * unit);
  out.push_back((value / unit + 1) * unit);
  return out;
}

I product(I a, I b, I c) {
  I result = 0;
  if (__builtin_mul_overflow(a, b, &result) || __builtin_mul_overflow(result, c, &result) || result > kMostBatch) {
    throw bad_input(fmt::format("train.micro_batch {} x accumulation {} x {} data ranks is above {} samples a step.", a, b, c, kMostBatch),
                    "Set train.micro_batch or train.accumulation lower.");
  }
  return result;
}

/// global is given but is no multiple of `known` (`what`: its factors in words) x ranks.
Error not_a_multiple(I global, I known, const char* name, I ranks) {
  const I unit = known * ranks;
  std::string remedy = fmt::format("Legal: train.global_batch {}", list(neighbours(global, unit)));
  if (global % ranks == 0) remedy += fmt::format(", or train.{} {}", name, list(divisors(global / ranks)));
  if (global % known == 0) remedy += fmt::format(", or data ranks {}", list(divisors(global / known)));
  return bad_input(fmt::format("train.global_batch {} is not a multiple of {} {} x {} data rank{} = {}.", global, name, known, ranks,
                               ranks == 1 ? "" : "s", unit),
                   remedy + ".");
}

Error contradiction(I global, I micro, I accumulation, I ranks) {
  const I have = product(micro, accumulation, ranks);
  std::string remedy = fmt::format("Leave one of the three out, or set train.global_batch {}", have);
  if (global % (micro * ranks) == 0) remedy += fmt::format(", train.accumulation {}", global / (micro * ranks));
  if (global % (accumulation * ranks) == 0) remedy += fmt::format(", train.micro_batch {}", global / (accumulation * ranks));
  if (global % (micro * accumulation) == 0) remedy += fmt::format(", or data ranks {}", global / (micro * accumulation));
  return bad_input(fmt::format("train.global_batch {} differs from micro_batch {} x accumulation {} x {} data rank{} = {}.", global, micro,
                               accumulation, ranks, ranks == 1 ? "" : "s", have),
                   remedy + ".");
}

}  // namespace

void resolve_batch(TrainConfig& config, int data_ranks) {
  const I ranks = data_ranks;
  I& micro = config.micro_batch;
  I& accumulation = config.accumulation;
  I& global = config.global_batch;
  if (ranks < 1 || micro < 0 || accumulation < 0 || global < 0) {
    throw bad_input(fmt::format("micro_batch {}, accumulation {}, global_batch {} and {} data ranks can't be negative.", micro,
                                accumulation, global, ranks),
                    "Set train.micro_batch and train.accumulation to at least 1.");
  }
  if (global == 0) {
    micro = std::max<I>(micro, 1);
    accumulation = std::max<I>(accumulation, 1);
    global = product(micro, accumulation, ranks);
  } else if (micro > global) {
    throw bad_input(fmt::format("train.micro_batch {} is larger than train.global_batch {}.", micro, global),
                    global % ranks == 0 ? fmt::format("Legal: train.micro_batch {}.", list(divisors(global / ranks)))
                                        : fmt::format("Legal: train.global_batch {}.", list(neighbours(global, micro * ranks))));
  } else if (micro > 0 && accumulation > 0) {
    if (product(micro, accumulation, ranks) != global) throw contradiction(global, micro, accumulation, ranks);
  } else if (accumulation > 0) {
    if (global % product(accumulation, 1, ranks) != 0) throw not_a_multiple(global, accumulation, "accumulation", ranks);
    micro = global / (accumulation * ranks);
  } else {
    micro = std::max<I>(micro, 1);
    if (global % product(micro, 1, ranks) != 0) throw not_a_multiple(global, micro, "micro_batch", ranks);
    accumulation = global / (micro * ranks);
  }
  if (accumulation > std::numeric_limits<int>::max()) {
    throw bad_input(fmt::format("train.accumulation {} is above {}.", accumulation, std::numeric_limits<int>::max()),
                    "Set train.micro_batch higher.");
  }
  config.strategy.accumulation = static_cast<int>(accumulation);
}

}  // namespace wirewise
