// Configuration files and overrides: what is read, what is refused and how the refusal helps.
#include "wirewise/train/config.h"

#include <gtest/gtest.h>

#include <random>

#include "fuzz.h"
#include "train/temporary_folder.h"
#include "wirewise/base/error.h"

namespace wirewise::testing {
namespace {

TrainConfig with(const std::vector<std::string>& overrides) { return load_config({}, overrides); }

/// Loads `toml` from a file called run.toml, then the overrides.
TrainConfig from(const std::string& toml, const std::vector<std::string>& overrides = {}) {
  const TemporaryFolder folder;
  return load_config(write_text(folder / "run.toml", toml), overrides);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Config, DefaultsNeedNoFile) {
  TrainConfig config = with({});
  finish_config(config, 2);
  EXPECT_EQ(config.micro_batch, 1);
  EXPECT_EQ(config.accumulation, 1);
  EXPECT_EQ(config.global_batch, 2);
  EXPECT_EQ(config.strategy.dp_shard, 2);
  EXPECT_EQ(config.model, ModelConfig{});
}

TEST(Config, FileThenOverridesInOrder) {
  const TrainConfig config = from(R"(
[model]
layers = 4
[train]
lr = 1e-3
steps = 7
optimizer = "sgd"
[strategy]
param_dtype = "float16"
bucket = "25M"
accumulation_policy = "reduce_each"
[data]
path = "/corpus"
validation = "/held-out"
)",
                                  {"train.lr=2", "train.lr=3e-2", "data.path=/other/path", "log.tensorboard=true", "data.validation=0.25"});
  EXPECT_EQ(config.model.layers, 4);
  EXPECT_EQ(config.steps, 7);
  EXPECT_EQ(config.lr, 3e-2);
  EXPECT_EQ(config.min_lr, 3e-3);  // a tenth of lr unless given
  EXPECT_EQ(config.optimizer, Optimizer::kSgd);
  EXPECT_EQ(config.strategy.param_dtype, DType::kFloat16);
  EXPECT_EQ(config.strategy.bucket, 25 * kMiB);
  EXPECT_EQ(config.strategy.accumulation_policy, AccumulationPolicy::kReduceEach);
  EXPECT_EQ(config.data_path, "/other/path");
  EXPECT_EQ(config.validation_path, "");
  EXPECT_EQ(config.validation_fraction, 0.25);
  EXPECT_TRUE(config.tensorboard);
}

TEST(Config, OverridesOfStringsNeedNoQuotes) {
  EXPECT_EQ(with({"data.path=2024"}).data_path, "2024");
  EXPECT_EQ(with({"data.path=\"a b\""}).data_path, "a b");
  EXPECT_EQ(with({"data.path = shards/*.bin"}).data_path, "shards/*.bin");
  EXPECT_EQ(with({"data.path=1\nb=2"}).data_path, "1\nb=2");
  EXPECT_EQ(with({"strategy.recompute=full"}).strategy.recompute, Recompute::kFull);
}

TEST(Config, PresetIsWhereOtherKeysStart) {
  EXPECT_EQ(with({"model.preset=llama-3-8b"}).model, preset("llama-3-8b"));
  const TrainConfig config = from("[model]\nlayers = 2\npreset = \"gpt2-xl\"\nvocab = 300\n");
  EXPECT_EQ(config.model.width, preset("gpt2-xl").width);
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_EQ(config.model.vocab, 300);
  // An override of the preset replaces what the file said of the model; one of a single key doesn't.
  EXPECT_EQ(from("[model]\nlayers = 2\n", {"model.preset=gpt2"}).model, preset("gpt2"));
  EXPECT_EQ(from("[model]\npreset = \"gpt2\"\n", {"model.layers=3"}).model.layers, 3);
}

TEST(Config, SizesFollowFromTheFamily) {
  const ModelConfig gpt2 = with({"model.width=512", "model.heads=8"}).model;
  EXPECT_EQ(gpt2.ffn, 2048);
  EXPECT_EQ(gpt2.kv_heads, 8);
  EXPECT_TRUE(gpt2.tied);
  const ModelConfig llama = with({"model.family=llama", "model.width=4096", "model.heads=32"}).model;
  EXPECT_EQ(llama.ffn, 11008);  // Llama-2-7B's, from the same rule
  EXPECT_EQ(llama.kv_heads, 32);
  EXPECT_FALSE(llama.tied);
  EXPECT_EQ(with({"model.family=llama", "model.kv_heads=2"}).model.kv_heads, 2);
  EXPECT_EQ(with({"model.preset=gpt2", "model.width=1024"}).model.ffn, 4096);
  EXPECT_EQ(with({"model.preset=llama-3-8b", "model.vocab=512"}).model.ffn, 14336);
}

TEST(Config, StrategyNamesAndStagesReplaceEachOther) {
  EXPECT_EQ(with({"strategy.name=ddp"}).strategy.zero, 0);
  EXPECT_EQ(with({"strategy.name=shard_grad_op"}).strategy.zero, 2);
  EXPECT_EQ(from("[strategy]\nzero = 1\n", {"strategy.name=zero3"}).strategy.zero, 3);
  EXPECT_EQ(from("[strategy]\nname = \"zero3\"\n", {"strategy.zero=1"}).strategy.zero, 1);
  EXPECT_EQ(from("[strategy]\nname = \"fsdp\"\nzero = 3\n").strategy.zero, 3);
}

struct Refusal {
  std::string toml;      // a file, or …
  std::string override;  // … an override
  std::vector<std::string> parts;
};

TEST(Config, RefusalsNameKeyPlaceAndRemedy) {
  const std::vector<Refusal> cases{
      {"[train]\nlearning = 1\nlrr = 1\n", "", {"run.toml:2:", "train.learning"}},
      {"\n[train]\nlrr = 1\n", "", {"run.toml:3: unknown key train.lrr", "train.lr."}},
      {"[trian]\nlr = 1\n", "", {"run.toml:2: unknown section [trian]", "train.lr."}},
      {"lr = 1\n", "", {"run.toml:1: unknown key lr", "train.lr."}},
      {"[train]\nlayers = 1\n", "", {"unknown key train.layers", "model.layers"}},
      {"train = 1\n", "", {"run.toml:1: train is a section"}},
      {"[train]\nlr = \"fast\"\n", "", {"run.toml:2: train.lr = \"fast\" (a string)", "a number of at least 0"}},
      {"[train]\nsteps = 1.5\n", "", {"run.toml:2: train.steps = 1.5 (a float)", "an integer of at least 1"}},
      {"[train]\nsteps = [1]\n", "", {"train.steps = [ 1 ] (an array)"}},
      {"[train.steps]\nx = 1\n", "", {"train.steps", "(a table)"}},
      {"[log]\njsonl = 1\n", "", {"log.jsonl = 1 (an integer)", "true or false"}},
      {"[train]\nlr = 1\nlr = 2\n", "", {"run.toml:3:"}},
      {"[train\n", "", {"run.toml:1:"}},
      {"", "train.lr=-1", {"--set: train.lr = -1", "at least 0"}},
      {"", "train.lr=nan", {"train.lr = nan", "at least 0"}},
      {"", "train.lr=inf", {"train.lr = inf"}},
      {"", "train.steps=-5", {"train.steps = -5", "at least 1"}},
      {"", "train.steps=0", {"train.steps = 0"}},
      {"", "train.sequence=0", {"train.sequence = 0"}},
      {"", "train.beta1=1", {"train.beta1 = 1", "below 1"}},
      {"", "train.epsilon=0", {"above 0"}},
      {"", "train.seed=-1", {"train.seed = -1"}},
      {"", "train.steps=99999999999999999999", {"train.steps"}},
      {"", "strategy.zero=4", {"from 0 to 3"}},
      {"", "strategy.dp_shard=0", {"strategy.dp_shard = 0", "-1 for all ranks"}},
      {"", "strategy.bucket=-1", {"strategy.bucket"}},
      {"", "strategy.bucket=25X", {"strategy.bucket = \"25X\"", "25M"}},
      {"", "strategy.param_dtype=int8", {"float32, bfloat16, float16"}},
      {"", "strategy.recompute=some", {"none, selective, full"}},
      {"", "strategy.name=zero4", {"zero4"}},
      {"", "model.preset=gpt3", {"gpt3", "gpt2"}},
      {"", "model.family=moe", {"model.family = \"moe\" is not implemented"}},
      {"", "model.family=bert", {"gpt2, llama"}},
      {"", "checkpoint.async=true", {"checkpoint.async = true is not implemented"}},
      {"", "data.validation=1", {"data.validation = 1", "below 1"}},
      {"", "data.format=parquet", {"auto, text, llmc, nanogpt, megatron, random"}},
      {"", "train.lr", {"--set", "key=value"}},
      {"", "=1", {"key=value"}},
      {"[strategy]\nname = \"ddp\"\nzero = 3\n", "", {"run.toml:3: strategy.zero = 3 contradicts strategy.name = \"ddp\""}},
      {"[model]\npreset = \"gpt2\"\nfamily = \"llama\"\n", "", {"run.toml:3: model.family", "contradicts model.preset"}},
  };
  for (const auto& item : cases) {
    SCOPED_TRACE(item.toml + item.override);
    const std::string message = message_of([&] { item.override.empty() ? from(item.toml) : with({item.override}); });
    for (const auto& part : item.parts) EXPECT_TRUE(contains(message, part)) << message << "\nlacks: " << part;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Config, MissingFileIsNamed) {
  EXPECT_TRUE(contains(message_of([] { (void)load_config("/nowhere/run.toml", {}); }), "/nowhere/run.toml does not exist"));
  EXPECT_TRUE(contains(message_of([] { (void)load_config("/", {}); }), "not a regular file"));
}

TEST(Config, WhatIsWrittenReadsBackTheSame) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    const double lr = std::uniform_real_distribution<>(1e-5, 1)(random);
    TrainConfig config = with({"train.lr=" + std::to_string(lr), "model.layers=" + std::to_string(1 + random() % 100),
                               "train.seed=" + std::to_string(random() >> 1), "data.path=a\"\\\x01\t\xc3\xa9",
                               random() % 2 == 0 ? "model.family=llama" : "model.preset=gpt2-medium",
                               random() % 2 == 0 ? "strategy.recompute=full" : "strategy.name=zero2",
                               random() % 2 == 0 ? "data.validation=/v" : "data.validation=0.1",
                               "train.epsilon=" + std::to_string(1 + random() % 9) + "e-12"});
    if (round % 2 == 0) finish_config(config, 4);
    const std::string text = to_toml(config);
    const TrainConfig again = from(text);
    EXPECT_EQ(to_toml(again), text);
    EXPECT_EQ(again.lr, config.lr);
    EXPECT_EQ(again.data_path, config.data_path);
    EXPECT_EQ(again.model, config.model);
  }
}

TEST(Config, EveryKeyExplainsItself) {
  for (const auto& key : config_key_help()) {
    const std::string& name = key.name;
    EXPECT_FALSE(key.expected.empty()) << name;
    if (name == "data.path") continue;  // any text of an override is a path
    // An array suits no other key, so its refusal must name the key and what it expects.
    const std::string message = message_of([&] { with({name + "=[1]"}); });
    EXPECT_TRUE(contains(message, name)) << message;
  }
}

/// Files damaged at random are read or refused in one line, never more.
TEST(Config, DamagedFilesNeverCrash) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  TrainConfig config = with({"data.path=/corpus", "model.preset=llama-3-8b", "strategy.bucket=25M"});
  const std::string text = to_toml(config);
  const std::string_view pieces[] = {"[", "]", "=", "\"", "\n", "{", "}", "[[x]]", "nan", "-", "9999999999999999999", "\xff", "1979-05-27", "a.b.c = 1\n", "\"\"\"", "#", "[train]\n", "lr = [1,\n2]\n"};
  int accepted = 0, refused = 0;
  for (FuzzRounds rounds(2000); rounds.more();) {
    std::string bad = text;
    for (std::uint64_t n = 1 + random() % 4; n > 0; --n) {
      const std::size_t at = random() % bad.size();
      switch (random() % 3) {
        case 0: bad[at] = static_cast<char>(random()); break;
        case 1: bad.erase(at, 1 + random() % 12); break;
        default: bad.insert(at, pieces[random() % std::size(pieces)]); break;
      }
    }
    try {
      (void)from(bad);
      ++accepted;
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_FALSE(error.remedy().empty());
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      EXPECT_LT(std::string(error.what()).size(), 600U) << error.what();
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
  EXPECT_TRUE(contains(message_of([] { (void)from("a = " + std::string(100000, '[')); }), "run.toml:1:"));
}

TEST(Config, CrossChecksOfFinish) {
  const auto finish = [](const std::vector<std::string>& overrides, int ranks) {
    return message_of([&] {
      TrainConfig config = with(overrides);
      finish_config(config, ranks);
    });
  };
  EXPECT_TRUE(contains(finish({"train.sequence=2048"}, 1), "train.sequence 2048 is longer than model.context 1024"));
  EXPECT_TRUE(contains(finish({"train.min_lr=1"}, 1), "min_lr 1 is above train.lr"));
  EXPECT_TRUE(contains(finish({"train.warmup=101"}, 1), "warmup 101"));
  EXPECT_TRUE(contains(finish({"model.heads=7"}, 1), "heads"));
  EXPECT_TRUE(contains(finish({"strategy.dp_shard=3"}, 2), "dp_shard"));
  EXPECT_TRUE(contains(finish({"strategy.offload=true"}, 2), "offload"));
  EXPECT_TRUE(contains(finish({"strategy.alias=on", "strategy.name=zero2"}, 2), "strategy.alias"));
  EXPECT_TRUE(contains(finish({"strategy.tp=2"}, 2), "tp"));
  EXPECT_TRUE(contains(finish({}, 0), "ranks"));
  EXPECT_TRUE(contains(finish({"data.path=caf\xe9"}, 1), "caf\\xe9 is not UTF-8"));
  EXPECT_TRUE(contains(finish({"data.validation=caf\xe9"}, 1), "caf\\xe9 is not UTF-8"));
}

TEST(Config, ResumeNamesWhatDiffers) {
  TrainConfig config = with({"data.path=/a"});
  finish_config(config, 2);
  const std::string stored = resume_identity(config);
  check_resume(stored, config);
  TrainConfig allowed = with({"data.path=/b", "train.steps=500", "strategy.name=ddp", "train.accumulation=1", "train.global_batch=2"});
  finish_config(allowed, 1 + 1);
  check_resume(stored, allowed);
  TrainConfig other = with({"model.layers=3", "train.seed=5"});
  finish_config(other, 2);
  const std::string message = message_of([&] { check_resume(stored, other); });
  EXPECT_TRUE(contains(message, "model.layers = 12 there, 3 here")) << message;
  EXPECT_TRUE(contains(message, "train.seed = 1234 there, 5 here")) << message;
  EXPECT_FALSE(contains(message, "width")) << message;
}

}  // namespace
}  // namespace wirewise::testing
