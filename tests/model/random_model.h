// Random but valid models for property tests.
#pragma once

#include <random>

#include "wirewise/model/model.h"

namespace wirewise {

inline std::int64_t draw(std::mt19937_64& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

inline ModelConfig random_config(std::mt19937_64& random) {
  ModelConfig config;
  config.family = draw(random, 0, 1) == 0 ? Family::kGpt2 : Family::kLlama;
  config.layers = draw(random, 1, 5);
  config.kv_heads = draw(random, 1, 4);
  config.heads = config.kv_heads * (config.family == Family::kLlama ? draw(random, 1, 3) : 1);
  config.width = config.heads * 2 * draw(random, 1, 20);
  config.ffn = draw(random, 1, 300);
  config.vocab = draw(random, 1, 999);
  config.context = draw(random, 1, 99);
  config.tied = draw(random, 0, 1) == 0;
  return config;
}

inline BatchShape random_batch(std::mt19937_64& random, const ModelConfig& config) {
  BatchShape batch;
  batch.micro_batch = draw(random, 1, 4);
  batch.sequence = draw(random, 1, config.context);
  batch.param_dtype = draw(random, 0, 1) == 0 ? DType::kFloat32 : DType::kBFloat16;
  return batch;
}

}  // namespace wirewise
