// A user's own model: a chain of units, each a torch::nn module, and a loss. From it come the same shapes that the built-in families have
// (units, segments, parameter groups), so that every strategy, the checker, the memory walk and the executor treat it alike.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "wirewise/model/model.h"
#include "wirewise/strategy/strategy.h"

namespace wirewise {

/// One link of the chain. What a unit reads is gathered before it runs and freed after it, so units are what ZeRO-3 holds whole at a time.
struct Unit {
  std::string name;                                      // prefix of its parameters: "block0" owns "block0.up.weight"
  std::shared_ptr<torch::nn::Module> module;             // null: a function without parameters
  std::function<at::Tensor(const at::Tensor&)> forward;  // the output of the unit before in, this unit's output out
};

/// A unit that runs forward(*module, input). `module`: a holder (torch::nn::Linear …) or a shared_ptr to a module. Parameters that `forward`
/// reads must be registered in `module`: one of another unit is shared by registering that very tensor or submodule in both.
template <typename Module, typename Forward>
[[nodiscard]] Unit unit(std::string name, const Module& module, Forward forward) {
  const auto pointer = [&] {
    if constexpr (requires { module.ptr(); }) {
      return module.ptr();
    } else {
      return module;
    }
  }();
  return {std::move(name), pointer, [pointer, forward = std::move(forward)](const at::Tensor& input) { return forward(*pointer, input); }};
}

/// A unit that runs module->forward(input).
template <typename Module>
[[nodiscard]] Unit unit(std::string name, const Module& module) {
  return unit(std::move(name), module, [](auto& self, const at::Tensor& input) -> at::Tensor { return self.forward(input); });
}

/// From the last unit's output (float32 where it was 16 bit) and the targets to a scalar.
using LossFunction = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& targets)>;

/// What a loss function returns: the mean over the micro-batch's counted targets (libtorch's default) or their sum. Either way a step's loss is
/// the sum over the counted targets of all micro-batches and ranks, divided by their number.
enum class LossReduction : std::uint8_t { kMean, kSum };

/// Elements of `targets` that count: all of floating targets, those that aren't negative of integer ones (-100 is cross_entropy's ignore_index).
[[nodiscard]] std::int64_t counted_targets(const at::Tensor& targets);

/// One parameter of a user's modules.
struct CustomParameter {
  std::string name;         // of the first unit that registers it
  at::Tensor variable;      // the tensor that the module holds
  std::vector<int> users;   // units, ascending
};

/// The parameters of a chain, each once however many units share it, in chain order. Throws bad input, naming it, for a unit without a name or
/// function, two units of one name, a chain without parameters, and whatever ranks couldn't train alike: parameters that are frozen, not on
/// the CPU or not float32, bfloat16 or float16, and buffers that change (running statistics of BatchNorm).
[[nodiscard]] std::vector<CustomParameter> parameters_of(const std::vector<Unit>& units);

/// The chain's shape: a unit and a segment for each Unit, a parameter group for each set of parameters with the same users. Weight decay
/// applies to parameters of two or more dimensions. `costs`: one a unit.
[[nodiscard]] Model build_custom_model(const std::vector<Unit>& units, const std::vector<CustomParameter>& parameters,
                                       const std::vector<SegmentCost>& costs, const BatchShape& batch, int shards);

}  // namespace wirewise
