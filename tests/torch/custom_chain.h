// A small chain of a user's modules for tests, with values that depend on names only, and ranks that are threads.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include <exception>
#include <functional>
#include <string>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "wirewise/torch/trainer.h"

namespace wirewise::test {

inline constexpr std::int64_t kVocab = 10;   // doesn't divide by 4 ranks
inline constexpr std::int64_t kWidth = 12;

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t width, double dropout = 0)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        up(register_module("up", torch::nn::Linear(width, 2 * width + 1))),
        down(register_module("down", torch::nn::Linear(2 * width + 1, width))),
        drop(register_module("drop", torch::nn::Dropout(dropout))) {}
  torch::Tensor forward(const torch::Tensor& x) { return x + drop(down(torch::gelu(up(norm(x))))); }
  torch::nn::LayerNorm norm;
  torch::nn::Linear up, down;
  torch::nn::Dropout drop;
};
TORCH_MODULE(Block);

/// Shares the embedding's matrix.
struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(torch::nn::Embedding table)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))),
        embedding(register_module("embedding", std::move(table))) {}
  torch::Tensor forward(const torch::Tensor& x) { return norm(x).matmul(embedding->weight.t()); }
  torch::nn::LayerNorm norm;
  torch::nn::Embedding embedding;
};
TORCH_MODULE(Head);

inline void fill(torch::nn::Module& module, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (auto& parameter : module.parameters()) parameter.uniform_(-0.5, 0.5, generator);
}

inline std::vector<Unit> tied_chain(double dropout = 0) {
  torch::nn::Embedding embedding(kVocab, kWidth);
  Block first(kWidth, dropout), second(kWidth, dropout);
  Head head(embedding);
  std::uint64_t seed = 1;
  for (torch::nn::Module* module : std::initializer_list<torch::nn::Module*>{embedding.get(), first.get(), second.get(), head->norm.get()}) {
    fill(*module, seed++);
  }
  Unit squash{"squash", nullptr, [](const at::Tensor& x) { return 2 * torch::tanh(x); }};
  return {unit("embedding", embedding), unit("block0", first), std::move(squash), unit("block1", second), unit("head", head)};
}

inline at::Tensor token_loss(const at::Tensor& output, const at::Tensor& targets) {
  return torch::nn::functional::cross_entropy(output.reshape({-1, output.size(-1)}), targets.reshape(-1));
}

/// Tokens and targets of one global batch, by step: [samples, 5]. Some targets are masked.
inline Batch token_batch(std::int64_t samples, int step) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(1000 + step));
  const at::Tensor tokens = torch::randint(0, kVocab - 1, {samples, 5}, generator, torch::kInt64);   // the last row appears in targets only
  at::Tensor targets = torch::randint(0, kVocab, {samples, 5}, generator, torch::kInt64);
  targets.masked_fill_(torch::rand({samples, 5}, generator) < 0.2, -100);
  return {tokens, targets};
}

/// Rank's share of a global batch.
inline Batch share(const Batch& batch, int rank, int ranks) {
  return {batch.inputs.tensor_split(ranks)[static_cast<std::size_t>(rank)], batch.targets.tensor_split(ranks)[static_cast<std::size_t>(rank)]};
}

/// Runs body(rank, lanes) on `ranks` threads; returns what each threw, if anything. A rank that fails leaves its peers time to come to errors of their own
/// before it ends their waiting.
inline std::vector<std::exception_ptr> try_ranks(int ranks, const std::function<void(int, Lanes)>& body) {
  std::vector<Lanes> lanes = make_thread_lanes(ranks, std::chrono::seconds(60));
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  std::condition_variable ended;
  int running = ranks;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      const Lanes mine = lanes[static_cast<std::size_t>(rank)];
      try {
        body(rank, mine);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
      std::unique_lock lock(mutex);
      --running;
      ended.notify_all();
      if (errors[static_cast<std::size_t>(rank)] && !ended.wait_for(lock, std::chrono::seconds(5), [&] { return running == 0; })) {
        for (const auto& lane : {mine.gather, mine.reduce, mine.control}) lane->abort("another rank's test failed");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void on_ranks(int ranks, const std::function<void(int, Lanes)>& body) {
  for (const std::exception_ptr& error : try_ranks(ranks, body)) {
    if (error) std::rethrow_exception(error);
  }
}

inline std::string message_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return caught.what();
  }
  return "";
}

}  // namespace wirewise::test
