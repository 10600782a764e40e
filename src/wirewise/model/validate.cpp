// Which configurations are models at all. Everything past this point may divide and multiply without looking.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/model/model.h"

namespace wirewise {
namespace {

/// Widest extent a model may have: far above any real one, and low enough that products of two fit 64 bits with room to spare.
constexpr std::int64_t kLargestExtent = std::int64_t{1} << 24;
constexpr double kMostParameters = 1e15;

void check_extent(std::string_view key, std::int64_t value) {
  const std::string named = "model." + std::string(key) + " is " + std::to_string(value);
  if (value < 1) throw bad_input(named + ", but must be at least 1.", "Set it to 1 or more.");
  if (value > kLargestExtent) {
    throw bad_input(named + ", but may be " + std::to_string(kLargestExtent) + " at most.", "Set it to a smaller number.");
  }
}

void check_positive(std::string_view key, double value) {
  if (std::isfinite(value) && value > 0) return;
  throw bad_input("model." + std::string(key) + " is " + std::to_string(value) + ", but must be a positive number.",
                  "Set it to a positive number.");
}

/// "1, 2, 3, 4, 6 or 12": the divisors of n, those around `near` when they are many.
std::string divisors(std::int64_t n, std::int64_t near) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) all.push_back(d);
  }
  constexpr std::size_t kShown = 6;
  std::size_t first = 0;
  while (all.size() - first > kShown && all[first + kShown / 2] < near) ++first;
  const std::size_t last = std::min(first + kShown, all.size()) - 1;
  std::string text;
  for (std::size_t i = first; i <= last; ++i) {
    if (i > first) text += i == last ? " or " : ", ";
    text += std::to_string(all[i]);
  }
  return text;
}

}  // namespace

void validate(const ModelConfig& config) {
  if (config.family == Family::kCustom) {
    throw bad_input("a custom model has no hyperparameters to build from.", "Set model.family to gpt2 or llama.");
  }
  check_extent("layers", config.layers);
  check_extent("width", config.width);
  check_extent("heads", config.heads);
  check_extent("kv_heads", config.kv_heads);
  check_extent("ffn", config.ffn);
  check_extent("vocab", config.vocab);
  check_extent("context", config.context);
  check_positive("norm_epsilon", config.norm_epsilon);

  const std::string heads = "model.heads " + std::to_string(config.heads);
  if (config.width % config.heads != 0) {
    throw bad_input(heads + " does not divide model.width " + std::to_string(config.width) + ".",
                    "Set heads to " + divisors(config.width, config.heads) + ".");
  }
  if (config.family == Family::kGpt2 && config.kv_heads != config.heads) {
    throw bad_input("model.kv_heads " + std::to_string(config.kv_heads) + " differs from " + heads +
                        ", but gpt2 has no grouped-query attention.",
                    "Set kv_heads to " + std::to_string(config.heads) + ", or model.family to llama.");
  }
  if (config.heads % config.kv_heads != 0) {
    throw bad_input("model.kv_heads " + std::to_string(config.kv_heads) + " does not divide " + heads + ".",
                    "Set kv_heads to " + divisors(config.heads, config.kv_heads) + ".");
  }
  if (config.family == Family::kLlama) {
    check_positive("rope_theta", config.rope_theta);
    if (config.width / config.heads % 2 != 0) {
      throw bad_input("a head of " + std::to_string(config.width / config.heads) + " (model.width " +
                          std::to_string(config.width) + " / " + heads + ") can't be rotated in pairs.",
                      "Choose width and heads so that width / heads is even.");
    }
  }
  const double layers = static_cast<double>(config.layers), width = static_cast<double>(config.width);
  const double widest = static_cast<double>(std::max({config.ffn, 4 * config.width}));
  const double outside = static_cast<double>(config.vocab) * 2 + static_cast<double>(config.context);
  if (width * (layers * 4 * widest + outside) > kMostParameters) {
    throw bad_input("the model would have more than 10^15 parameters.", "Lower model.layers, width, ffn or vocab.");
  }
}

}  // namespace wirewise
