// The names by which people call strategies, and the one canonical name of each.
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/base/nearest.h"
#include "wirewise/base/text.h"
#include "wirewise/strategy/strategy.h"

namespace wirewise {
namespace {

struct Name {
  std::string_view name;
  int zero;
};
/// PyTorch's FSDP knows the same stages as sharding strategies: no_shard, shard_grad_op, full_shard.
constexpr std::array<Name, 8> kNames{{{"ddp", 0},
                                      {"zero1", 1},
                                      {"zero2", 2},
                                      {"zero3", 3},
                                      {"no_shard", 0},
                                      {"shard_grad_op", 2},
                                      {"fsdp", 3},
                                      {"full_shard", 3}}};
constexpr std::array<std::string_view, 4> kCanonical{"ddp", "zero1", "zero2", "zero3"};

}  // namespace

void apply_name(Strategy& strategy, const std::string& name) {
  if (name == "hsdp" || name == "hybrid_shard") {
    throw bad_input("strategy " + name + " shards within groups that replicate each other, which isn't there yet.",
                    "Use zero3 to shard over all ranks, or ddp to replicate on all.");
  }
  std::vector<std::string> known;
  for (const auto& entry : kNames) {
    if (entry.name == name) {
      strategy.zero = entry.zero;
      return;
    }
    known.emplace_back(entry.name);
  }
  throw bad_input("no strategy is named '" + printable(name) + "'.", suggest(name, known));
}

std::string name_of(const Strategy& strategy) {
  if (strategy.zero < 0 || strategy.zero > 3) {
    throw bad_input("strategy.zero is " + std::to_string(strategy.zero) + ".", "Set it to 0, 1, 2 or 3.");
  }
  return std::string(kCanonical[static_cast<std::size_t>(strategy.zero)]);
}

}  // namespace wirewise
