// What holds for every model's shape: names, layout, users, boundaries and FLOPs.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "model/random_model.h"
#include "wirewise/base/error.h"
#include "wirewise/model/model.h"
#include "wirewise/model/segment_bytes.h"

namespace wirewise {
namespace {

constexpr std::uint64_t kSeed = 20240607;

template <typename Check>
void for_random_models(Check check) {
  for (std::uint64_t seed = kSeed; seed < kSeed + 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const ModelConfig config = random_config(random);
    const BatchShape batch = random_batch(random, config);
    const int shards = static_cast<int>(draw(random, 1, 17));
    check(build_model(config, batch, shards), shards);
    if (testing::Test::HasFatalFailure()) return;
  }
}

using Named = std::pair<std::string, std::vector<std::int64_t>>;
std::vector<Named> tensors_of(const Model& model) {
  std::vector<Named> all;
  for (const auto& group : model.groups) {
    for (const auto& tensor : group.tensors) all.emplace_back(tensor.name, tensor.shape);
  }
  return all;
}

ModelConfig tiny(Family family) {
  ModelConfig config;
  config.family = family;
  config.layers = 1;
  config.width = 16;
  config.heads = 4;
  config.kv_heads = family == Family::kLlama ? 2 : 4;
  config.ffn = 24;
  config.vocab = 11;
  config.context = 5;
  config.tied = false;
  return config;
}
BatchShape tiny_batch() {
  BatchShape batch;
  batch.micro_batch = 2;
  batch.sequence = 5;
  return batch;
}

TEST(Model, Gpt2HasItsTensors) {
  const std::string at = "transformer.h.0.";
  const std::vector<Named> expected{
      {"transformer.wte.weight", {11, 16}},
      {"transformer.wpe.weight", {5, 16}},
      {at + "ln_1.weight", {16}},
      {at + "ln_1.bias", {16}},
      {at + "attn.c_attn.weight", {48, 16}},
      {at + "attn.c_attn.bias", {48}},
      {at + "attn.c_proj.weight", {16, 16}},
      {at + "attn.c_proj.bias", {16}},
      {at + "ln_2.weight", {16}},
      {at + "ln_2.bias", {16}},
      {at + "mlp.c_fc.weight", {24, 16}},
      {at + "mlp.c_fc.bias", {24}},
      {at + "mlp.c_proj.weight", {16, 24}},
      {at + "mlp.c_proj.bias", {16}},
      {"transformer.ln_f.weight", {16}},
      {"transformer.ln_f.bias", {16}},
      {"lm_head.weight", {11, 16}},
  };
  EXPECT_EQ(tensors_of(build_model(tiny(Family::kGpt2), tiny_batch(), 2)), expected);
}

TEST(Model, LlamaHasItsTensors) {
  const std::string at = "model.layers.0.";
  const std::vector<Named> expected{
      {"model.embed_tokens.weight", {11, 16}},
      {at + "input_layernorm.weight", {16}},
      {at + "self_attn.q_proj.weight", {16, 16}},
      {at + "self_attn.k_proj.weight", {8, 16}},
      {at + "self_attn.v_proj.weight", {8, 16}},
      {at + "self_attn.o_proj.weight", {16, 16}},
      {at + "post_attention_layernorm.weight", {16}},
      {at + "mlp.gate_proj.weight", {24, 16}},
      {at + "mlp.up_proj.weight", {24, 16}},
      {at + "mlp.down_proj.weight", {16, 24}},
      {"model.norm.weight", {16}},
      {"lm_head.weight", {11, 16}},
  };
  EXPECT_EQ(tensors_of(build_model(tiny(Family::kLlama), tiny_batch(), 2)), expected);
}

TEST(Model, TiedEmbeddingIsOneGroupWithTwoUsers) {
  for (auto family : {Family::kGpt2, Family::kLlama}) {
    ModelConfig config = tiny(family);
    config.tied = true;
    const Model model = build_model(config, tiny_batch(), 2);
    EXPECT_EQ(model.groups.front().users, (std::vector<int>{0, 2}));
    EXPECT_EQ(model.groups.front().tensors.size(), 1u);
    const auto& head = model.units.back();
    EXPECT_EQ(head.kind, UnitKind::kHead);
    EXPECT_EQ(head.groups, (std::vector<int>{0, static_cast<int>(model.groups.size()) - 1}));
    EXPECT_EQ(head.segments.front().groups, head.groups);
  }
}

TEST(Model, OnlyTheEmbeddingRunsBackwardWithoutItsWeights) {
  for_random_models([](const Model& model, int) {
    for (const auto& unit : model.units) {
      for (const auto& segment : unit.segments) {
        ASSERT_EQ(segment.backward_reads_parameters, unit.kind != UnitKind::kEmbedding) << unit.name;
      }
    }
  });
}

TEST(Model, EveryTensorStartsAlignedAndOverlapsNone) {
  for_random_models([](const Model& model, int shards) {
    for (const auto& group : model.groups) {
      std::uint64_t end = 0;
      for (const auto& tensor : group.tensors) {
        ASSERT_EQ(tensor.offset % kAlignElements, 0u) << tensor.name;
        ASSERT_GE(tensor.offset, end) << tensor.name;
        ASSERT_LT(tensor.offset - end, kAlignElements) << tensor.name;
        end = tensor.offset + tensor.numel();
      }
      const auto unit = static_cast<std::uint64_t>(shards) * kAlignElements;
      ASSERT_EQ(group.padded % unit, 0u) << group.name;
      ASSERT_GE(group.padded, end) << group.name;
      ASSERT_LT(group.padded - end, unit) << group.name;
    }
  });
}

TEST(Model, GroupsAndUnitsNameEachOther) {
  for_random_models([](const Model& model, int) {
    std::set<std::string> names;
    std::vector<std::vector<int>> users(model.groups.size());
    for (std::size_t u = 0; u < model.units.size(); ++u) {
      std::set<int> read;
      for (const auto& segment : model.units[u].segments) read.insert(segment.groups.begin(), segment.groups.end());
      ASSERT_EQ(std::vector<int>(read.begin(), read.end()), model.units[u].groups);
      for (int group : read) users[static_cast<std::size_t>(group)].push_back(static_cast<int>(u));
    }
    for (std::size_t g = 0; g < model.groups.size(); ++g) {
      ASSERT_EQ(model.groups[g].users, users[g]) << model.groups[g].name;
      ASSERT_FALSE(users[g].empty());
      for (const auto& tensor : model.groups[g].tensors) ASSERT_TRUE(names.insert(tensor.name).second) << tensor.name;
    }
  });
}

TEST(Model, WeightDecayAppliesToMatricesAlone) {
  for_random_models([](const Model& model, int) {
    for (const auto& group : model.groups) {
      for (const auto& tensor : group.tensors) ASSERT_EQ(tensor.decay, tensor.shape.size() >= 2) << tensor.name;
    }
  });
}

TEST(Model, InitialValuesFollowGpt2) {
  for_random_models([](const Model& model, int) {
    for (const auto& group : model.groups) {
      for (const auto& tensor : group.tensors) {
        if (tensor.shape.size() < 2) {
          ASSERT_EQ(tensor.init.kind, tensor.name.ends_with(".bias") ? Init::Kind::kZeros : Init::Kind::kOnes) << tensor.name;
          continue;
        }
        ASSERT_EQ(tensor.init.kind, Init::Kind::kNormal);
        const bool residual = tensor.name.ends_with("c_proj.weight");
        const double writes = residual ? 2.0 * static_cast<double>(model.config.layers) : 1.0;
        ASSERT_DOUBLE_EQ(tensor.init.std, 0.02 / std::sqrt(writes)) << tensor.name;
      }
    }
  });
}

TEST(Model, EachSegmentReadsWhatTheOneBeforeWrites) {
  for_random_models([](const Model& model, int) {
    const auto tokens = static_cast<Bytes>(model.batch.micro_batch * model.batch.sequence);
    Bytes before = tokens * 2 * 8;
    for (const auto& unit : model.units) {
      for (const auto& segment : unit.segments) {
        ASSERT_EQ(segment.cost.in, before) << unit.name << " " << segment.name;
        before = segment.cost.out;
        if (unit.kind == UnitKind::kHead) continue;
        ASSERT_EQ(before, tokens * static_cast<Bytes>(model.config.width) * size_of(model.batch.param_dtype));
      }
    }
    ASSERT_EQ(before, 4u);  // one float32: the loss
  });
}

TEST(Model, ForwardFlopsAreTwoAWeightAndTokenAndTheSquaresOfAttention) {
  for_random_models([](const Model& model, int) {
    const auto tokens = static_cast<double>(model.batch.micro_batch * model.batch.sequence);
    double matrices = 0;  // weights that multiply: tables are looked up, the tied one multiplies in the head
    for (const auto& group : model.groups) {
      for (const auto& tensor : group.tensors) {
        const bool table = tensor.name == "transformer.wpe.weight" || (&group == &model.groups.front() && !model.config.tied);
        if (tensor.shape.size() == 2 && !table) matrices += static_cast<double>(tensor.numel());
      }
    }
    const double squares = static_cast<double>(model.config.layers) * 4 * tokens * static_cast<double>(model.batch.sequence) *
                           static_cast<double>(model.config.width);
    double forward = 0, backward = 0;
    for (const auto& unit : model.units) {
      for (const auto& segment : unit.segments) {
        forward += segment.cost.forward;
        backward += segment.cost.backward;
      }
    }
    ASSERT_DOUBLE_EQ(forward, 2 * tokens * matrices + squares);
    ASSERT_DOUBLE_EQ(backward, 2 * forward);
    ASSERT_DOUBLE_EQ(flops_per_token(model), 3 * forward / tokens);
  });
}

TEST(Model, SegmentsCarryTheBytesOfTheirTensors) {
  for_random_models([](const Model& model, int) {
    for (const auto& unit : model.units) {
      for (std::size_t i = 0; i < unit.segments.size(); ++i) {
        const auto bytes = segment_bytes(model.config, model.batch, unit.kind, static_cast<int>(i));
        ASSERT_EQ(unit.segments[i].cost.saved, bytes.saved);
        ASSERT_EQ(unit.segments[i].cost.temporary_forward, bytes.temporary_forward);
        ASSERT_EQ(unit.segments[i].cost.temporary_backward, bytes.temporary_backward);
      }
    }
  });
}

TEST(Model, LayoutForNoShardsIsRefused) {
  ParamGroup group{"g", {{"w", {3, 5}, {}, true, 0}}, 0, {}};
  EXPECT_THROW(lay_out(group, 0), Error);
  lay_out(group, 3);
  EXPECT_EQ(group.padded, 96u);
}

}  // namespace
}  // namespace wirewise
