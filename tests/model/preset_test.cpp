// Published models have their published sizes.
#include <gtest/gtest.h>

#include <fstream>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/model/model.h"

namespace wirewise {
namespace {

std::uint64_t count(const ModelConfig& config) {
  BatchShape batch;
  batch.sequence = 1;
  return build_model(config, batch, 8).parameters();
}

TEST(Preset, HasThePublishedParameterCount) {
  std::ifstream file(WIREWISE_SOURCE_DIR "/data/model_parameters.csv");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  ASSERT_EQ(line, "source,preset,parameters");
  std::vector<std::string> seen;
  while (std::getline(file, line)) {
    const auto fields = split(line, ',');
    ASSERT_EQ(fields.size(), 3u) << line;
    EXPECT_EQ(count(preset(fields[1])), std::stoull(fields[2])) << line;
    seen.push_back(fields[1]);
  }
  EXPECT_EQ(seen, preset_names());
}

TEST(Preset, Gpt2CountIsItsClosedForm) {
  for (const std::string name : {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"}) {
    const ModelConfig c = preset(name);
    // A block: 12 C^2 of matrices; biases 3C + C + 4C + C and two norms of 2C. The last norm: 2C.
    const auto expected =
        c.vocab * c.width + c.context * c.width + c.layers * (12 * c.width * c.width + 13 * c.width) + 2 * c.width;
    EXPECT_EQ(count(c), static_cast<std::uint64_t>(expected)) << name;
  }
}

TEST(Preset, LlamaCountIsItsClosedForm) {
  for (const auto& name : preset_names()) {
    const ModelConfig c = preset(name);
    if (c.family != Family::kLlama) continue;
    const auto kv_width = c.width / c.heads * c.kv_heads;
    const auto block = 2 * c.width * c.width + 2 * c.width * kv_width + 3 * c.width * c.ffn + 2 * c.width;
    EXPECT_EQ(count(c), static_cast<std::uint64_t>(2 * c.vocab * c.width + c.layers * block + c.width)) << name;
  }
}

TEST(Preset, UntyingAddsOneVocabularyMatrix) {
  for (const auto& name : preset_names()) {
    ModelConfig config = preset(name);
    config.tied = true;
    const auto tied = count(config);
    config.tied = false;
    EXPECT_EQ(count(config) - tied, static_cast<std::uint64_t>(config.vocab * config.width)) << name;
  }
}

TEST(Preset, UnknownNameIsRefusedWithTheNearest) {
  try {
    (void)preset("gpt2-extra-large");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_NE(error.sentence().find("'gpt2-extra-large'"), std::string::npos);
    EXPECT_NE(error.remedy().find("Did you mean gpt2-large?"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace wirewise
