// Degrees against ranks: what fits is filled in, what doesn't is refused with a remedy that works.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <regex>

#include "wirewise/base/error.h"
#include "wirewise/strategy/strategy.h"

namespace wirewise {
namespace {

std::string refusal(Strategy strategy, int ranks) {
  try {
    resolve(strategy, ranks);
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.what();
    EXPECT_FALSE(error.remedy().empty()) << error.what();
    return error.what();
  }
}

Strategy with(const std::function<void(Strategy&)>& change) {
  Strategy strategy;
  change(strategy);
  return strategy;
}

TEST(Strategy, AliasAutoIsOnForZero3OverSeveralRanksOfOneHost) {
  for (int zero : {0, 1, 2, 3}) {
    for (int ranks : {1, 2, 4}) {
      for (int hosts : {1, 2}) {
        if (hosts > ranks) continue;
        Strategy strategy = with([&](Strategy& s) { s.zero = zero; });
        resolve(strategy, ranks);
        EXPECT_EQ(strategy.alias, Alias::kAuto) << "hosts aren't known yet";
        resolve_alias(strategy, hosts);
        EXPECT_EQ(is_aliased(strategy), zero == 3 && ranks > 1 && hosts == 1) << zero << " " << ranks << " " << hosts;
        Strategy again = strategy;
        resolve_alias(again, hosts);
        EXPECT_EQ(again, strategy);
        strategy.alias = Alias::kOff;
        resolve_alias(strategy, hosts);
        EXPECT_FALSE(is_aliased(strategy));
      }
    }
  }
}

TEST(Strategy, AliasOnIsRefusedWhereParametersAreWholeOrRanksApart) {
  for (int zero : {0, 1, 2}) {
    const auto said = refusal(with([&](Strategy& s) {
                                s.zero = zero;
                                s.alias = Alias::kOn;
                              }),
                              2);
    EXPECT_NE(said.find("strategy.alias on"), std::string::npos) << said;
  }
  Strategy strategy = with([](Strategy& s) { s.alias = Alias::kOn; });
  resolve(strategy, 4);
  try {
    resolve_alias(strategy, 2);
    ADD_FAILURE() << "accepted on two hosts";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_NE(std::string(error.what()).find("they are on 2"), std::string::npos) << error.what();
  }
}

TEST(Strategy, ShardsOverAllRanksThatAreLeft) {
  for (int ranks : {1, 2, 3, 4, 64}) {
    Strategy strategy;
    resolve(strategy, ranks);
    EXPECT_EQ(strategy.dp_shard, ranks);
    Strategy again = strategy;
    resolve(again, ranks);  // resolving twice changes nothing
    EXPECT_EQ(again, strategy);
  }
}

TEST(Strategy, OneShardKeepsTheNameOfItsStage) {
  for (const std::string name : {"ddp", "zero1", "zero2", "zero3"}) {
    Strategy strategy;
    apply_name(strategy, name);
    resolve(strategy, 1);
    EXPECT_EQ(strategy.dp_shard, 1);
    EXPECT_EQ(name_of(strategy), name);
  }
}

TEST(Strategy, OtherNamesAreTheSameStages) {
  const std::vector<std::pair<std::string, std::string>> names{
      {"no_shard", "ddp"}, {"shard_grad_op", "zero2"}, {"fsdp", "zero3"}, {"full_shard", "zero3"}};
  for (const auto& [name, canonical] : names) {
    Strategy strategy, expected;
    apply_name(strategy, name);
    apply_name(expected, canonical);
    EXPECT_EQ(strategy, expected) << name;
    EXPECT_EQ(name_of(strategy), canonical);
  }
}

TEST(Strategy, UnknownAndAbsentNamesAreRefused) {
  for (const std::string name : {"hsdp", "hybrid_shard", "zero4", "", "DDP"}) {
    Strategy strategy;
    try {
      apply_name(strategy, name);
      ADD_FAILURE() << "accepted " << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_NE(error.sentence().find(name), std::string::npos);
      EXPECT_FALSE(error.remedy().empty());
    }
    EXPECT_EQ(strategy, Strategy{}) << "changed by a refused name";
  }
}

TEST(Strategy, RanksThatDoNotFitTheMeshAreRefusedWithBothWaysOut) {
  EXPECT_EQ(refusal(with([](auto& s) { s.tp = s.pp = 4; }), 8),
            "strategy needs 16 ranks (tp 4 x pp 4), but 8 were started. Start 16, or set tp or pp to 2.");
  EXPECT_EQ(refusal(with([](auto& s) { s.dp_shard = 4; }), 2),
            "strategy needs 4 ranks (dp_shard 4), but 2 were started. Start 4, or set dp_shard to 2.");
  EXPECT_EQ(refusal(with([](auto& s) { s.dp_shard = 2; }), 3),
            "strategy needs 2 ranks (dp_shard 2), but 3 were started. Start 2, or set dp_shard to 3 or -1 (what is left).");
  EXPECT_EQ(
      refusal(with([](auto& s) { s.tp = s.dp_shard = 1 << 30; }), 3),
      "strategy needs more than a billion ranks (tp 1073741824 x dp_shard 1073741824), but 3 were started. Set smaller degrees.");
}

TEST(Strategy, RemediesOfRandomMeshesFit) {
  constexpr std::uint64_t kSeed = 991;
  for (std::uint64_t seed = kSeed; seed < kSeed + 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    Strategy strategy;
    strategy.tp = draw(1, 6);
    strategy.cp = draw(1, 3);
    strategy.pp = draw(1, 4);
    strategy.dp_shard = draw(0, 1) == 0 ? -1 : draw(1, 6);
    const int ranks = draw(1, 48);
    const std::string message = refusal(strategy, ranks);
    const int others = strategy.tp * strategy.cp * strategy.pp;
    const bool fits = strategy.dp_shard == -1 ? ranks % others == 0 : ranks == others * strategy.dp_shard;
    ASSERT_EQ(message.find("strategy needs") == std::string::npos, fits) << message;
    if (fits) continue;

    const auto mesh_fits = [](const Strategy& tried, int started) {
      return refusal(tried, started).find("strategy needs") == std::string::npos;
    };
    std::smatch match;
    ASSERT_TRUE(std::regex_search(message, match, std::regex("Start (\\d+)")));
    EXPECT_TRUE(mesh_fits(strategy, std::stoi(match[1]))) << message;
    const std::regex change("(?:set |or )((?:tp|cp|pp|dp_shard)(?: or (?:tp|cp|pp|dp_shard))*) to (\\d+)");
    for (std::sregex_iterator it(message.begin(), message.end(), change), end; it != end; ++it) {
      const std::string keys = (*it)[1];
      const int value = std::stoi((*it)[2]);
      const std::regex key("[a-z_]+");
      for (std::sregex_iterator word(keys.begin(), keys.end(), key); word != end; ++word) {
        Strategy tried = strategy;
        if (word->str() == "tp") tried.tp = value;
        if (word->str() == "cp") tried.cp = value;
        if (word->str() == "pp") tried.pp = value;
        if (word->str() == "dp_shard") tried.dp_shard = value;
        EXPECT_TRUE(word->str() == "or" || mesh_fits(tried, ranks)) << word->str() << ": " << message;
      }
    }
  }
}

TEST(Strategy, FeaturesThatAreAbsentAreRefusedByName) {
  const std::vector<std::pair<std::string, Strategy>> absent{
      {"strategy.tp 2", with([](auto& s) { s.tp = 2; })},
      {"strategy.pp 2", with([](auto& s) { s.pp = 2; })},
      {"strategy.cp 2", with([](auto& s) { s.cp = 2; })},
      {"strategy.ep 2", with([](auto& s) { s.ep = 2; })},
      {"strategy.dp_replicate 2", with([](auto& s) { s.dp_replicate = 2; })},
      {"strategy.virtual_stages 2", with([](auto& s) { s.virtual_stages = 2; })},
      {"strategy.pipeline gpipe", with([](auto& s) { s.pipeline = Pipeline::kGpipe; })},
      {"strategy.pipeline zb-h1", with([](auto& s) { s.pipeline = Pipeline::kZbH1; })},
      {"strategy.recompute selective", with([](auto& s) { s.recompute = Recompute::kSelective; })},
      {"strategy.offload true", with([](auto& s) { s.offload = true; })},
  };
  for (const auto& [named, strategy] : absent) {
    const auto message = refusal(strategy, 4);
    EXPECT_EQ(message.find(named + ":"), 0u) << message;
    EXPECT_NE(message.find("isn't there yet."), std::string::npos) << message;
  }
}

TEST(Strategy, ValuesThatMakeNoSenseAreRefused) {
  const std::vector<std::pair<std::string, Strategy>> wrong{
      {"strategy.zero is 4", with([](auto& s) { s.zero = 4; })},
      {"strategy.zero is -1", with([](auto& s) { s.zero = -1; })},
      {"strategy.tp is 0", with([](auto& s) { s.tp = 0; })},
      {"strategy.ep is -2", with([](auto& s) { s.ep = -2; })},
      {"strategy.dp_shard is 0", with([](auto& s) { s.dp_shard = 0; })},
      {"strategy.dp_shard is -2", with([](auto& s) { s.dp_shard = -2; })},
      {"strategy.prefetch is -1", with([](auto& s) { s.prefetch = -1; })},
      {"strategy.accumulation is 0", with([](auto& s) { s.accumulation = 0; })},
      {"strategy.virtual_stages is 0", with([](auto& s) { s.virtual_stages = 0; })},
      {"strategy.param_dtype is int8", with([](auto& s) { s.param_dtype = DType::kInt8; })},
      {"strategy.reduce_dtype is float64", with([](auto& s) { s.reduce_dtype = DType::kFloat64; })},
      {"strategy.buffer_dtype is bool", with([](auto& s) { s.buffer_dtype = DType::kBool; })},
  };
  for (const auto& [named, strategy] : wrong) EXPECT_EQ(refusal(strategy, 4).find(named), 0u) << refusal(strategy, 4);
  EXPECT_NE(refusal({}, 0).find("can't run on 0 ranks"), std::string::npos);
}

TEST(Strategy, EveryStageDtypeAndAccumulationResolves) {
  for (int zero = 0; zero <= 3; ++zero) {
    for (auto dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      for (int accumulation : {1, 4}) {
        Strategy strategy;
        strategy.zero = zero;
        strategy.param_dtype = strategy.reduce_dtype = strategy.buffer_dtype = dtype;
        strategy.accumulation = accumulation;
        strategy.recompute = Recompute::kFull;
        EXPECT_EQ(refusal(strategy, 4), "");
      }
    }
  }
}

}  // namespace
}  // namespace wirewise
