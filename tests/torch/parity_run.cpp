// Trains a small model for some steps on ranks that are threads, and writes what a reference needs to repeat it: initial weights, batches,
// losses, final weights. parity.py compares with PyTorch's own autograd and AdamW.
//
// parity_run FOLDER FAMILY RANKS ZERO ACCUMULATION STEPS TIED
#include <ATen/Parallel.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "wirewise/base/philox.h"
#include "wirewise/torch/executor.h"
#include "wirewise/torch/memory.h"

namespace {

using namespace wirewise;

constexpr int kMicroBatch = 2;
constexpr int kSequence = 24;

struct Batch {
  std::vector<std::int32_t> tokens, targets;
};

Batch draw_batch(const ModelConfig& config, std::uint64_t index) {
  Batch batch;
  for (int i = 0; i < kMicroBatch * kSequence; ++i) {
    const std::uint64_t at = index * kMicroBatch * kSequence + static_cast<std::uint64_t>(i);
    const auto draw = [&](const char* stream) { return random_bits(1, stream_of(stream), at); };
    batch.tokens.push_back(static_cast<std::int32_t>(draw("tokens") % static_cast<std::uint64_t>(config.vocab)));
    // Some targets are masked, so that micro-batches and ranks count different numbers of tokens.
    const bool masked = draw("mask") % 5 < index % 3;
    batch.targets.push_back(masked ? -100 : static_cast<std::int32_t>(draw("targets") % static_cast<std::uint64_t>(config.vocab)));
  }
  return batch;
}

void write_floats(const std::filesystem::path& path, const std::vector<float>& values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
}

/// Whole weights from the ranks' masters, by name.
void write_weights(const std::filesystem::path& folder, const Model& model, const std::vector<std::unique_ptr<ModelState>>& states) {
  std::filesystem::create_directories(folder);
  for (const ParamGroup& group : model.groups) {
    for (const TensorShape& tensor : group.tensors) {
      std::vector<float> values(tensor.numel());
      for (const auto& state : states) {
        for (const OwnedRange& range : state->owned()) {
          if (range.tensor != &tensor) continue;
          const float* data = state->groups[static_cast<std::size_t>(range.group)].master.const_data_ptr<float>() + range.local;
          std::copy(data, data + range.length, values.begin() + static_cast<std::ptrdiff_t>(range.begin));
        }
      }
      write_floats(folder / (tensor.name + ".bin"), values);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  memory::install();
  const std::filesystem::path folder = argv[1];
  const int ranks = std::stoi(argv[3]);
  Strategy strategy;
  strategy.zero = std::stoi(argv[4]);
  strategy.accumulation = std::stoi(argv[5]);
  strategy.param_dtype = DType::kFloat32;
  resolve(strategy, ranks);
  const int steps = std::stoi(argv[6]);
  ModelConfig config;
  config.family = std::string(argv[2]) == "llama" ? Family::kLlama : Family::kGpt2;
  config.layers = 2;
  config.width = 48;
  config.heads = 6;
  config.kv_heads = config.family == Family::kLlama ? 2 : 6;
  config.ffn = 100;
  config.vocab = 97;
  config.context = 40;
  config.tied = std::string(argv[7]) == "tied";
  BatchShape shape;
  shape.micro_batch = kMicroBatch;
  shape.sequence = kSequence;
  shape.param_dtype = DType::kFloat32;
  const Model model = build_model(config, shape, ranks);
  const Schedule schedule = build_train_schedule(model, strategy, ranks, {});
  std::vector<Lanes> lanes = make_thread_lanes(ranks, std::chrono::seconds(60));
  std::vector<std::unique_ptr<ModelState>> states(static_cast<std::size_t>(ranks));
  nlohmann::json record;
  record["config"] = {{"family", argv[2]}, {"layers", config.layers}, {"width", config.width}, {"heads", config.heads},
                      {"kv_heads", config.kv_heads}, {"ffn", config.ffn}, {"vocab", config.vocab}, {"context", config.context},
                      {"tied", config.tied}, {"epsilon", config.norm_epsilon}, {"theta", config.rope_theta}};
  OptimizerOptions optimizer;
  record["optimizer"] = {{"lr", 1e-3}, {"beta1", optimizer.beta1}, {"beta2", optimizer.beta2}, {"epsilon", optimizer.epsilon},
                         {"weight_decay", optimizer.weight_decay}, {"clip", 1.0}};
  for (const ParamGroup& group : model.groups) {
    for (const TensorShape& tensor : group.tensors) record["tensors"][tensor.name] = {{"shape", tensor.shape}, {"decay", tensor.decay}};
  }
  const int batches = ranks * strategy.accumulation;
  for (int step = 0; step < steps; ++step) {
    nlohmann::json inputs = nlohmann::json::array();
    for (int i = 0; i < batches; ++i) {
      const Batch batch = draw_batch(config, static_cast<std::uint64_t>(step * batches + i));
      inputs.push_back({{"tokens", batch.tokens}, {"targets", batch.targets}, {"samples", kMicroBatch}, {"sequence", kSequence}});
    }
    record["steps"].push_back({{"batches", inputs}});
  }
  const auto on_ranks = [&](auto&& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { body(rank); });
    for (auto& thread : threads) thread.join();
  };
  on_ranks([&](int rank) {
    states[static_cast<std::size_t>(rank)] =
        std::make_unique<ModelState>(model, schedule.strategy, schedule.programs[0], lanes[static_cast<std::size_t>(rank)]);
    states[static_cast<std::size_t>(rank)]->initialize(7);
  });
  write_weights(folder / "initial", model, states);
  on_ranks([&](int rank) {
    at::set_num_threads(1);
    const SegmentTable segments = make_segment_table(model);
    Executor executor(model, schedule.programs[0], segments, *states[static_cast<std::size_t>(rank)], lanes[static_cast<std::size_t>(rank)], optimizer);
    for (int step = 0; step < steps; ++step) {
      std::vector<MicroBatch> mine;
      for (int micro = 0; micro < strategy.accumulation; ++micro) {
        const Batch batch = draw_batch(config, static_cast<std::uint64_t>(step * batches + micro * ranks + rank));
        mine.push_back(token_micro_batch(kMicroBatch, kSequence, batch.tokens, batch.targets));
      }
      StepOptions options;
      options.step = step + 1;
      options.lr = 1e-3;
      options.clip = 1.0;
      const StepResult result = executor.train(mine, options);
      if (rank == 0) {
        record["steps"][static_cast<std::size_t>(step)]["loss"] = result.loss;
        record["steps"][static_cast<std::size_t>(step)]["grad_norm"] = result.grad_norm;
      }
    }
  });
  write_weights(folder / "final", model, states);
  std::ofstream(folder / "run.json") << record.dump();
  return 0;
}
