// Published models as configurations. Their parameter counts come out exactly; tests hold them against the published figures.
#include <array>
#include <string_view>

#include "wirewise/base/error.h"
#include "wirewise/base/nearest.h"
#include "wirewise/base/text.h"
#include "wirewise/model/model.h"

namespace wirewise {
namespace {

struct Preset {
  std::string_view name;
  ModelConfig config;
};

/// GPT-2 (Radford et al. 2019): MLP four times as wide, 1024 positions, the head shares the embedding's matrix.
constexpr ModelConfig gpt2(std::int64_t layers, std::int64_t width, std::int64_t heads) {
  ModelConfig config;
  config.family = Family::kGpt2;
  config.layers = layers;
  config.width = width;
  config.heads = heads;
  config.kv_heads = heads;
  config.ffn = 4 * width;
  config.vocab = 50257;
  config.context = 1024;
  config.tied = true;
  return config;
}

struct LlamaGeneration {
  std::int64_t vocab, context;
  double rope_theta;
};
constexpr LlamaGeneration kLlama2{32000, 4096, 10000.0};
constexpr LlamaGeneration kLlama3{128256, 131072, 500000.0};  // as of 3.1

/// Llama 2 (arXiv:2307.09288), Llama 3 (arXiv:2407.21783).
constexpr ModelConfig llama(const LlamaGeneration& generation, std::int64_t layers, std::int64_t width, std::int64_t heads,
                            std::int64_t kv_heads, std::int64_t ffn) {
  ModelConfig config;
  config.family = Family::kLlama;
  config.layers = layers;
  config.width = width;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.ffn = ffn;
  config.vocab = generation.vocab;
  config.context = generation.context;
  config.tied = false;
  config.rope_theta = generation.rope_theta;
  return config;
}

constexpr std::array kPresets{
    Preset{"gpt2", gpt2(12, 768, 12)},
    Preset{"gpt2-medium", gpt2(24, 1024, 16)},
    Preset{"gpt2-large", gpt2(36, 1280, 20)},
    Preset{"gpt2-xl", gpt2(48, 1600, 25)},
    Preset{"llama-2-7b", llama(kLlama2, 32, 4096, 32, 32, 11008)},
    Preset{"llama-2-13b", llama(kLlama2, 40, 5120, 40, 40, 13824)},
    Preset{"llama-2-70b", llama(kLlama2, 80, 8192, 64, 8, 28672)},
    Preset{"llama-3-8b", llama(kLlama3, 32, 4096, 32, 8, 14336)},
    Preset{"llama-3-70b", llama(kLlama3, 80, 8192, 64, 8, 28672)},
    Preset{"llama-3-405b", llama(kLlama3, 126, 16384, 128, 8, 53248)},
};

}  // namespace

ModelConfig preset(const std::string& name) {
  for (const auto& known : kPresets) {
    if (known.name == name) return known.config;
  }
  throw bad_input("no preset is named '" + printable(name) + "'.", suggest(name, preset_names()));
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& known : kPresets) names.emplace_back(known.name);
  return names;
}

}  // namespace wirewise
