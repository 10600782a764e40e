// What the schedule's tests share: random hand-built models, strategies, and ways to look into programs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/model/model.h"
#include "wirewise/schedule/schedule.h"

namespace wirewise::test {

using Random = std::mt19937_64;

inline int pick(Random& random, int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }

inline Strategy strategy_of(int zero, int ranks) {
  Strategy strategy;
  strategy.zero = zero;
  strategy.dp_shard = ranks;
  strategy.prefetch = 0;
  return strategy;
}

/// A chain of `units` units whose costs, segments and groups are drawn at random; tied: the last unit uses the first one's group
/// too.
inline Model random_model(Random& random, int units, int shards, bool tied, DType dtype = DType::kBFloat16) {
  Model model;
  model.config.family = Family::kCustom;
  model.batch.param_dtype = dtype;
  model.batch.separate_gradient = true;
  const auto bytes = [&](int least) { return static_cast<Bytes>(pick(random, least, 4000)); };
  for (int u = 0; u < units; ++u) {
    UnitShape unit;
    unit.name = "unit" + std::to_string(u);
    const int groups = pick(random, 1, 2);
    for (int g = 0; g < groups; ++g) {
      ParamGroup group;
      group.name = unit.name + "." + std::to_string(g);
      group.tensors.push_back({group.name + ".weight", {pick(random, 1, 300), pick(random, 1, 5)}, {}, true, 0});
      group.users = {u};
      lay_out(group, shards);
      unit.groups.push_back(static_cast<int>(model.groups.size()));
      model.groups.push_back(group);
    }
    const int segments = pick(random, 1, 3);
    for (int s = 0; s < segments; ++s) {
      SegmentShape segment;
      segment.name = "segment" + std::to_string(s);
      if (s == 0) {
        segment.groups = unit.groups;
      } else if (pick(random, 0, 2) > 0) {
        segment.groups = {unit.groups.front()};
      }
      segment.backward_reads_parameters = pick(random, 0, 3) > 0;
      segment.cost = {1.0 * pick(random, 1, 100),
                      2.0 * pick(random, 1, 100),
                      pick(random, 0, 2) > 0 ? bytes(1) : 0,
                      bytes(0),
                      bytes(0),
                      bytes(1),
                      bytes(1)};
      unit.segments.push_back(std::move(segment));
    }
    model.units.push_back(std::move(unit));
  }
  if (tied && units > 1) {
    model.units.back().segments.front().groups.push_back(0);
    model.units.back().groups.insert(model.units.back().groups.begin(), 0);
    model.groups.front().users.push_back(units - 1);
  }
  return model;
}

/// A GPT small enough to count by hand, untied or tied.
inline Model small_gpt(int layers, int shards, bool tied, const Strategy& strategy) {
  ModelConfig config;
  config.layers = layers;
  config.width = 64;
  config.heads = config.kv_heads = 4;
  config.ffn = 256;
  config.vocab = 256;
  config.context = 64;
  config.tied = tied;
  BatchShape batch;
  batch.sequence = 64;
  batch.param_dtype = strategy.param_dtype;
  batch.separate_gradient = strategy.accumulation > 1 && strategy.accumulation_policy == AccumulationPolicy::kLocalSum;
  return build_model(config, batch, shards);
}

/// A strategy drawn from all that the builder accepts.
inline Strategy random_strategy(Random& random, int ranks) {
  Strategy strategy = strategy_of(pick(random, 0, 3), ranks);
  const int depths[] = {0, 1, 2, 5};
  const Bytes buckets[] = {0, 1000, 5000, 1u << 30};
  strategy.prefetch = depths[pick(random, 0, 3)];
  strategy.bucket = buckets[pick(random, 0, 3)];
  strategy.accumulation = pick(random, 1, 3);
  strategy.recompute = pick(random, 0, 1) ? Recompute::kFull : Recompute::kNone;
  strategy.accumulation_policy = pick(random, 0, 1) ? AccumulationPolicy::kReduceEach : AccumulationPolicy::kLocalSum;
  strategy.keep_after_forward = pick(random, 0, 3) == 0;
  strategy.param_dtype = pick(random, 0, 2) ? DType::kBFloat16 : DType::kFloat32;
  if (strategy.zero == 3 && pick(random, 0, 1)) strategy.alias = Alias::kOn;
  return strategy;
}

inline std::string text_of(const Strategy& s) {
  return "zero " + std::to_string(s.zero) + " ranks " + std::to_string(s.dp_shard) + " prefetch " + std::to_string(s.prefetch) +
         " bucket " + std::to_string(s.bucket) + " accumulation " + std::to_string(s.accumulation) +
         (s.accumulation_policy == AccumulationPolicy::kReduceEach ? " reduce-each" : " local-sum") +
         (s.recompute == Recompute::kFull ? " recompute" : "") + (s.keep_after_forward ? " keep" : "") + (is_aliased(s) ? " aliased " : " ") +
         std::string(name_of(s.param_dtype));
}

/// Calls `visit` with `count` random schedules; failures inside name seed and strategy.
inline void for_random_schedules(int count, std::uint64_t seed,
                                 const std::function<void(const Schedule&, const Model&, Random&)>& visit,
                                 const std::function<void(const std::string&)>& announce) {
  for (int i = 0; i < count; ++i) {
    Random random(seed + static_cast<std::uint64_t>(i));
    const int ranks = 1 << pick(random, 0, 2);
    const Strategy strategy = random_strategy(random, ranks);
    const Model model = random_model(random, pick(random, 1, 5), ranks, pick(random, 0, 1) == 1, strategy.param_dtype);
    announce("seed " + std::to_string(seed + static_cast<std::uint64_t>(i)) + ": " + text_of(strategy));
    visit(build_train_schedule(model, strategy, ranks, {}), model, random);
  }
}

inline const BufferInfo& buffer(const Program& program, BufferId id) { return program.buffers[static_cast<std::size_t>(id)]; }

inline bool has_role(const Program& program, const std::vector<BufferId>& ids, BufferRole role) {
  return std::any_of(ids.begin(), ids.end(), [&](BufferId id) { return buffer(program, id).role == role; });
}

inline int count_ops(const Program& program, OpKind kind) {
  return static_cast<int>(std::count_if(program.ops.begin(), program.ops.end(), [&](const Op& op) { return op.kind == kind; }));
}

/// Bytes that all collectives of a kind move.
inline Bytes moved(const Program& program, OpKind kind) {
  Bytes bytes = 0;
  for (const auto& op : program.ops) bytes += op.kind == kind ? op.bytes : 0;
  return bytes;
}

/// The checker's words, empty when it finds nothing.
inline std::string verdict(const Schedule& schedule) {
  try {
    check(schedule);
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFailed);
    EXPECT_FALSE(error.remedy().empty());
    return error.what();
  }
}

}  // namespace wirewise::test
