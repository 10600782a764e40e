#include "wirewise/schedule/layout.h"

#include "wirewise/base/error.h"

namespace wirewise {
namespace {

bool is_param_dtype(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16; }

void require_strategy(const Strategy& s, int ranks) {
  if (s.pp != 1 || s.dp_replicate != 1 || s.cp != 1 || s.tp != 1 || s.ep != 1) {
    throw bad_input("this build schedules data parallelism only, but the strategy has pp " + std::to_string(s.pp) +
                        ", dp_replicate " + std::to_string(s.dp_replicate) + ", cp " + std::to_string(s.cp) + ", tp " +
                        std::to_string(s.tp) + ", ep " + std::to_string(s.ep) + ".",
                    "Set them to 1.");
  }
  if (s.zero < 0 || s.zero > 3) throw bad_input("strategy.zero is " + std::to_string(s.zero) + ".", "Use 0, 1, 2 or 3.");
  if (ranks < 1 || s.dp_shard != ranks) {
    throw bad_input(
        "the strategy shards over " + std::to_string(s.dp_shard) + " ranks, but " + std::to_string(ranks) + " take part.",
        "Resolve the strategy for the ranks that run it.");
  }
  if (s.alias == Alias::kOn && s.zero != 3) {
    throw bad_input("strategy.alias on shares ZeRO-3's parameters, but strategy.zero is " + std::to_string(s.zero) + ".", "Set it to auto.");
  }
  if (s.accumulation < 1) {
    throw bad_input("accumulation over " + std::to_string(s.accumulation) + " micro-batches is no step.", "Set it to 1 or more.");
  }
  if (s.prefetch < 0) throw bad_input("strategy.prefetch is " + std::to_string(s.prefetch) + ".", "Use 0 or more units.");
  if (s.recompute == Recompute::kSelective) {
    throw bad_input("strategy.recompute selective isn't implemented.", "Use none or full.");
  }
  if (s.offload) throw bad_input("strategy.offload isn't implemented.", "Set it to false.");
  if (!is_param_dtype(s.param_dtype) || !is_param_dtype(s.reduce_dtype)) {
    throw bad_input("strategy has param_dtype " + std::string(name_of(s.param_dtype)) + " and reduce_dtype " +
                        std::string(name_of(s.reduce_dtype)) + ".",
                    "Use float32, bfloat16 or float16.");
  }
  if (s.accumulation > 1 && s.accumulation_policy == AccumulationPolicy::kReduceEach && s.reduce_dtype != DType::kFloat32) {
    throw bad_input("reducing each of " + std::to_string(s.accumulation) + " micro-batches sums them in " +
                        std::string(name_of(s.reduce_dtype)) + ", which loses bits.",
                    "Set strategy.reduce_dtype to float32, or sum micro-batches locally.");
  }
}

void require_groups(const Model& model, int shards) {
  std::vector<bool> used(model.groups.size(), false);
  for (const auto& unit : model.units) {
    if (unit.segments.empty()) throw bad_input("unit " + unit.name + " has no segments.", "Give it at least one.");
    for (const auto& segment : unit.segments) {
      for (int group : segment.groups) {
        if (group < 0 || group >= static_cast<int>(model.groups.size())) {
          throw bad_input("segment " + unit.name + " " + segment.name + " reads parameter group " + std::to_string(group) +
                              ", which the model lacks.",
                          "Number groups from 0 to " + std::to_string(model.groups.size()) + ".");
        }
        used[static_cast<std::size_t>(group)] = true;
      }
    }
  }
  for (std::size_t g = 0; g < model.groups.size(); ++g) {
    const auto& group = model.groups[g];
    if (!used[g]) throw bad_input("no segment uses parameter group " + group.name + ".", "Remove it, or name it in a segment.");
    if (group.padded == 0 || group.padded % static_cast<std::uint64_t>(shards) != 0) {
      throw bad_input("parameter group " + group.name + " has " + std::to_string(group.padded) + " elements, not " +
                          std::to_string(shards) + " equal shards.",
                      "Build the model for " + std::to_string(shards) + " shards.");
    }
  }
}

std::string place(const Model& model, const ChainLink& link, int micro_batch) {
  const auto& unit = model.units[static_cast<std::size_t>(link.unit)];
  std::string text = unit.name;
  if (unit.segments.size() > 1 || unit.name.empty()) text += " " + link.shape->name;
  return text + ", micro-batch " + std::to_string(micro_batch);
}

}  // namespace

std::vector<ChainLink> chain_of(const Model& model) {
  std::vector<ChainLink> chain;
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    for (std::size_t s = 0; s < model.units[u].segments.size(); ++s) {
      chain.push_back({static_cast<int>(u), static_cast<int>(s), &model.units[u].segments[s]});
    }
  }
  return chain;
}

void require_buildable(const Model& model, const Strategy& strategy, int ranks) {
  require_strategy(strategy, ranks);
  if (model.units.empty()) throw bad_input("the model has no units.", "Describe at least one.");
  if (model.batch.param_dtype != strategy.param_dtype) {
    throw bad_input("the model's costs are for " + std::string(name_of(model.batch.param_dtype)) + ", the strategy computes in " +
                        std::string(name_of(strategy.param_dtype)) + ".",
                    "Build the model for the strategy's param_dtype.");
  }
  require_groups(model, strategy.dp_shard);
}

bool wide_gradients(const Strategy& strategy) {
  return strategy.accumulation > 1 && strategy.accumulation_policy == AccumulationPolicy::kLocalSum &&
         size_of(strategy.param_dtype) == 2;
}

Layout::Layout(const Model& model, const Strategy& strategy, const TrainOptions& options, Scope scope)
    : stage(strategy.dp_shard > 1 ? strategy.zero : 0),
      shards(strategy.dp_shard),
      micro_batches(scope == Scope::kTrain ? strategy.accumulation : 1),
      grad_dtype(wide_gradients(strategy) ? DType::kFloat32 : strategy.param_dtype) {
  add_group_buffers(model, strategy, options, scope);
  loss = add({.name = "loss", .role = BufferRole::kLoss, .category = Category::kBuffers, .bytes = 4, .persistent = true});
  const auto chain = chain_of(model);
  for (int m = 0; m < micro_batches; ++m) add_micro_batch_buffers(model, chain, m, scope);
}

BufferId Layout::add(BufferInfo info) {
  buffers.push_back(std::move(info));
  return static_cast<BufferId>(buffers.size()) - 1;
}

void Layout::add_group_buffers(const Model& model, const Strategy& strategy, const TrainOptions& options, Scope scope) {
  const auto count = model.groups.size();
  for (auto* ids : {&param, &full, &master, &exp_avg, &exp_avg_sq, &grad, &reduced}) ids->assign(count, -1);
  const bool train = scope == Scope::kTrain;
  for (std::size_t g = 0; g < count; ++g) {
    const auto& group = model.groups[g];
    const auto whole = group.padded;
    const auto mine = stepped(group);
    const auto buffer = [&](const char* what, BufferRole role, Category category, DType dtype, std::uint64_t elements) {
      BufferInfo info;
      info.name = std::string(what) + " " + group.name;
      info.role = role;
      info.category = category;
      info.dtype = dtype;
      info.bytes = elements * size_of(dtype);
      info.param_group = static_cast<int>(g);
      return info;
    };
    const auto lasting = [](BufferInfo info) {
      info.persistent = true;
      return info;
    };

    auto weights =
        lasting(buffer("param", BufferRole::kParam, Category::kParams, strategy.param_dtype, stage == 3 ? mine : whole));
    weights.shared = stage >= 1;
    param[g] = add(std::move(weights));
    if (stage == 3) full[g] = add(buffer("full param", BufferRole::kFullParam, Category::kGathered, strategy.param_dtype, whole));
    if (!train) continue;

    if (strategy.param_dtype != DType::kFloat32) {
      master[g] = add(lasting(buffer("master", BufferRole::kMaster, Category::kOptimizer, DType::kFloat32, mine)));
    }
    if (options.adam_moments) {
      exp_avg[g] = add(lasting(buffer("exp_avg", BufferRole::kExpAvg, Category::kOptimizer, DType::kFloat32, mine)));
      exp_avg_sq[g] = add(lasting(buffer("exp_avg_sq", BufferRole::kExpAvgSq, Category::kOptimizer, DType::kFloat32, mine)));
    }
    auto gradient = buffer("grad", BufferRole::kGrad, Category::kGrads, grad_dtype, whole);
    gradient.shared = shards > 1;
    grad[g] = add(std::move(gradient));
    reduced[g] = add(buffer("reduced grad", BufferRole::kReducedGrad, Category::kGrads, strategy.reduce_dtype, mine));
  }
}

void Layout::add_micro_batch_buffers(const Model& model, const std::vector<ChainLink>& chain, int micro_batch, Scope scope) {
  const auto links = chain.size();
  const bool train = scope == Scope::kTrain;
  const auto buffer = [&](const char* what, std::size_t s, BufferRole role, Category category, Bytes bytes) {
    BufferInfo info;
    info.name = std::string(what) + " " + place(model, chain[s], micro_batch);
    info.role = role;
    info.category = category;
    info.dtype = model.batch.param_dtype;
    info.bytes = bytes;
    info.unit = chain[s].unit;
    info.segment = chain[s].segment;
    info.micro_batch = micro_batch;
    return info;
  };
  std::vector<BufferId> outputs(links, -1), gradients(links, -1), kept(links, -1);
  BufferInfo tokens;
  tokens.name = "input, micro-batch " + std::to_string(micro_batch);
  tokens.role = BufferRole::kInput;
  tokens.category = Category::kBuffers;
  tokens.dtype = DType::kInt64;
  tokens.bytes = chain.front().shape->cost.in;
  tokens.micro_batch = micro_batch;
  input.push_back(add(std::move(tokens)));
  for (std::size_t s = 0; s < links; ++s) {
    const auto& cost = chain[s].shape->cost;
    if (s + 1 < links) {
      outputs[s] = add(buffer("output", s, BufferRole::kBoundary, Category::kActivations, cost.out));
      if (train) gradients[s] = add(buffer("gradient of output", s, BufferRole::kBoundaryGrad, Category::kBuffers, cost.out));
    }
    if (train && cost.saved > 0) kept[s] = add(buffer("saved", s, BufferRole::kSaved, Category::kActivations, cost.saved));
  }
  boundary.push_back(std::move(outputs));
  boundary_grad.push_back(std::move(gradients));
  saved.push_back(std::move(kept));
}

}  // namespace wirewise
