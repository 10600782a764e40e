// Configurations that are no models are refused with the key and what to set instead.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "model/random_model.h"
#include "wirewise/base/error.h"
#include "wirewise/model/model.h"

namespace wirewise {
namespace {

struct Case {
  std::string base;
  std::function<void(ModelConfig&)> spoil;
  std::string sentence, remedy;  // parts of the message
};

TEST(Validate, RefusesWhatIsNoModel) {
  const std::vector<Case> cases{
      {"gpt2", [](auto& c) { c.heads = 11; }, "model.heads 11 does not divide model.width 768",
       "Set heads to 4, 6, 8, 12, 16 or 24."},
      {"gpt2", [](auto& c) { c.kv_heads = 6; }, "model.kv_heads 6 differs from model.heads 12",
       "Set kv_heads to 12, or model.family"},
      {"llama-3-8b", [](auto& c) { c.kv_heads = 7; }, "model.kv_heads 7 does not divide model.heads 32", "Set kv_heads to"},
      {"llama-2-7b", [](auto& c) { c.width = 32 * 33; }, "a head of 33", "even"},
      {"gpt2", [](auto& c) { c.layers = 0; }, "model.layers is 0", "Set it to 1 or more."},
      {"gpt2", [](auto& c) { c.vocab = -5; }, "model.vocab is -5", "Set it to 1 or more."},
      {"gpt2", [](auto& c) { c.heads = 0; }, "model.heads is 0", "Set it to 1 or more."},
      {"gpt2", [](auto& c) { c.width = std::numeric_limits<std::int64_t>::max(); }, "model.width is 9223372036854775807",
       "smaller"},
      {"gpt2", [](auto& c) { c.width = 1 << 24, c.heads = c.kv_heads = 1, c.ffn = 1 << 24, c.layers = 1000; }, "10^15", "Lower"},
      {"gpt2", [](auto& c) { c.norm_epsilon = 0; }, "model.norm_epsilon is 0", "positive"},
      {"llama-2-7b", [](auto& c) { c.rope_theta = std::nan(""); }, "model.rope_theta is nan", "positive"},
      {"gpt2", [](auto& c) { c.family = Family::kCustom; }, "custom", "model.family"},
  };
  for (const auto& refused : cases) {
    ModelConfig config = preset(refused.base);
    ASSERT_NO_THROW(validate(config));
    refused.spoil(config);
    try {
      validate(config);
      ADD_FAILURE() << "accepted: " << refused.sentence;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_NE(error.sentence().find(refused.sentence), std::string::npos) << error.what();
      EXPECT_NE(error.remedy().find(refused.remedy), std::string::npos) << error.what();
    }
  }
}

TEST(Validate, AcceptsEveryRandomModelAndItsBatches) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    EXPECT_NO_THROW(validate(random_config(random))) << "seed " << seed;
  }
}

TEST(Validate, SequenceBeyondTheContextIsRefused) {
  BatchShape batch;
  batch.sequence = 1025;
  try {
    (void)build_model(preset("gpt2"), batch, 1);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_NE(error.sentence().find("train.sequence 1025 is longer than model.context 1024"), std::string::npos) << error.what();
  }
  batch.sequence = 0;
  EXPECT_THROW((void)build_model(preset("gpt2"), batch, 1), Error);
  batch.sequence = 1024;
  batch.micro_batch = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW((void)build_model(preset("gpt2"), batch, 1), Error);
}

}  // namespace
}  // namespace wirewise
