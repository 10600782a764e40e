// Samples: each is read once an epoch, by exactly one rank, in an order that depends on seed and epoch alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "train/token_files.h"
#include "wirewise/base/error.h"
#include "wirewise/train/data.h"

namespace wirewise::testing {
namespace {

/// Token at position p is p.
class Counting final : public TokenSource {
 public:
  explicit Counting(std::uint64_t size) : size_(size) {}
  [[nodiscard]] std::uint64_t size() const noexcept override { return size_; }
  void read(std::uint64_t position, std::int32_t* out, std::size_t count) const override {
    ASSERT_LE(position + count, size_);
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::int32_t>(position + i);
  }
  [[nodiscard]] std::string where(std::uint64_t position) const override { return "token " + std::to_string(position); }
  [[nodiscard]] std::string describe() const override { return "counting"; }

 private:
  std::uint64_t size_;
};

constexpr std::int64_t kVocab = 1 << 30;

Sampler sampler(std::uint64_t size, std::int64_t sequence, std::uint64_t seed = 1, bool shuffle = true, std::int64_t vocab = kVocab) {
  return Sampler(std::make_shared<Counting>(size), 0, size, sequence, vocab, seed, shuffle);
}

TEST(Sampler, EveryWindowComesOnceAnEpoch) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 40; ++round) {
    const auto sequence = static_cast<std::int64_t>(1 + random() % 9);
    const std::uint64_t windows = round < 12 ? static_cast<std::uint64_t>(round) + 1 : 1 + random() % 3000;
    const std::uint64_t begin = random() % 50, size = windows * static_cast<std::uint64_t>(sequence) + 1 + random() % static_cast<std::uint64_t>(sequence);
    const Sampler samples(std::make_shared<Counting>(begin + size + 7), begin, begin + size, sequence, kVocab, random(), true);
    ASSERT_EQ(samples.samples_per_epoch(), windows);
    std::vector<std::uint64_t> orders[2];
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      std::set<std::uint64_t> seen;
      for (std::uint64_t i = 0; i < windows; ++i) {
        const std::uint64_t position = samples.position_of(epoch * windows + i);
        orders[epoch].push_back(position);
        EXPECT_EQ((position - begin) % static_cast<std::uint64_t>(sequence), 0U);
        EXPECT_LE(position + static_cast<std::uint64_t>(sequence) + 1, begin + size);
        seen.insert(position);
      }
      EXPECT_EQ(seen.size(), windows);
    }
    if (windows > 50) {
      EXPECT_NE(orders[0], orders[1]);
      EXPECT_FALSE(std::is_sorted(orders[0].begin(), orders[0].end()));
    }
  }
}

TEST(Sampler, RowsAreTheTokensOfTheirWindows) {
  const Sampler plain = sampler(101, 10, 1, false);
  const TokenBatch batch = plain.batch(8, 3);  // past the end of the epoch: sample 10 is sample 0 again
  EXPECT_EQ(batch.samples, 3);
  EXPECT_EQ(batch.sequence, 10);
  EXPECT_EQ(batch.sample_ids, (std::vector<std::uint64_t>{8, 9, 10}));
  std::vector<std::int32_t> expected;
  for (const int first : {80, 90, 0}) {
    for (int i = 0; i <= 10; ++i) expected.push_back(first + i);
  }
  EXPECT_EQ(batch.tokens, expected);
}

TEST(Sampler, ShufflingHasNoVisibleOrder) {
  // Mean displacement of a random permutation of n is n/3, with a deviation below n / sqrt(n): a wide band around it.
  const std::uint64_t n = 10000;
  const Sampler samples = sampler(n + 1, 1, 99);
  double displacement = 0, neighbours = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const auto here = static_cast<double>(samples.position_of(i));
    displacement += std::abs(here - static_cast<double>(i)) / static_cast<double>(n);
    neighbours += std::abs(static_cast<double>(samples.position_of((i + 1) % n)) - here) == 1 ? 1 : 0;
  }
  EXPECT_NEAR(displacement / n, 1.0 / 3, 0.02);
  EXPECT_LT(neighbours, 20);  // 2 expected
}

/// What the training loop does: every rank reads its micro-batches of each step.
TEST(Sampler, EverySampleOfAStepIsReadByExactlyOneRank) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    const int ranks = 1 + static_cast<int>(random() % 7);
    const auto micro_batch = static_cast<std::int64_t>(1 + random() % 4), accumulation = static_cast<std::int64_t>(1 + random() % 3);
    const std::uint64_t global = static_cast<std::uint64_t>(ranks * micro_batch * accumulation);
    const Sampler samples = sampler(1000 + random() % 1000, 4, random());
    std::uint64_t consumed = random() % 500;
    for (int step = 0; step < 3; ++step, consumed += global) {
      std::multiset<std::uint64_t> read;
      std::vector<std::uint64_t> hashes;
      for (std::int64_t micro = 0; micro < accumulation; ++micro) {
        for (int rank = 0; rank < ranks; ++rank) {
          const auto batch = samples.batch(first_sample(consumed, micro, rank, ranks, micro_batch), micro_batch);
          read.insert(batch.sample_ids.begin(), batch.sample_ids.end());
          if (micro == 0) hashes.push_back(stream_hash(batch));
        }
      }
      ASSERT_EQ(read.size(), global);
      std::uint64_t next = consumed;
      for (const auto id : read) ASSERT_EQ(id, next++);
      EXPECT_EQ(equal_streams(hashes), "");
    }
  }
}

TEST(Sampler, RanksThatReadTheSameSamplesAreNamed) {
  const Sampler samples = sampler(1000, 4);
  const std::uint64_t a = stream_hash(samples.batch(0, 2)), b = stream_hash(samples.batch(2, 2));
  const std::uint64_t hashes[] = {a, b, a, a};
  EXPECT_EQ(equal_streams(hashes), "data ranks 0, 2, 3 read the same samples: their work is done more than once. Check how ranks are numbered.");
}

TEST(Sampler, DataShorterThanASampleIsRefused) {
  EXPECT_NE(message_of([] { (void)sampler(10, 10); }).find("gives 10 tokens here, fewer than one sample of train.sequence 10 + 1. Set train.sequence to at most 9"),
            std::string::npos);
  EXPECT_EQ(sampler(11, 10).samples_per_epoch(), 1U);
  EXPECT_NE(message_of([] { (void)sampler(1, 1); }).find("Give more data"), std::string::npos);
}

TEST(Sampler, ATokenBeyondTheVocabularyIsNamedWithFileAndPlace) {
  const TemporaryFolder folder;
  const auto file = write_text(folder / "t.bin", bytes_of(std::vector<std::uint16_t>{1, 2, 3, 300, 4}));
  const std::shared_ptr<const TokenSource> source = open_tokens(file.string(), DataFormat::kNanoGpt, 256, 1);
  const Sampler samples(source, 0, 5, 4, 256, 1, true);
  const std::string message = message_of([&] { (void)samples.batch(0, 1); });
  EXPECT_NE(message.find("token 300 in " + file.string() + ", byte 6 (token 3 of the data) is not below model.vocab 256"), std::string::npos) << message;
  EXPECT_NE(message.find("at least 301"), std::string::npos) << message;
}

TrainConfig text_config(const std::filesystem::path& file, std::int64_t sequence) {
  TrainConfig config;
  config.data_path = file.string();
  config.sequence = sequence;
  config.model.vocab = 256;
  return config;
}

TEST(DataSet, ValidationIsKeptApartFromTraining) {
  const TemporaryFolder folder;
  std::mt19937_64 random(4);
  for (int round = 0; round < 30; ++round) {
    const std::size_t size = 30 + random() % 3000;
    TrainConfig config = text_config(write_text(folder / "t.txt", std::string(size, 'x')), 8);
    config.validation_fraction = std::uniform_real_distribution<>(0.001, 0.999)(random);
    const DataSet data = open_data(config);
    ASSERT_TRUE(data.validation.has_value());
    std::uint64_t train_end = 0, validation_begin = size;
    for (std::uint64_t i = 0; i < data.train.samples_per_epoch(); ++i) train_end = std::max(train_end, data.train.position_of(i) + 9);
    for (std::uint64_t i = 0; i < data.validation->samples_per_epoch(); ++i) {
      validation_begin = std::min(validation_begin, data.validation->position_of(i));
    }
    EXPECT_LE(train_end, validation_begin);
  }
}

TEST(DataSet, ValidationNeedsRoomForASample) {
  const TemporaryFolder folder;
  TrainConfig config = text_config(write_text(folder / "t.txt", std::string(17, 'x')), 8);
  EXPECT_NE(message_of([&] { (void)open_data(config); }).find("holds 17 tokens, too few"), std::string::npos);
  config.validation_fraction = 0;
  EXPECT_EQ(open_data(config).train.samples_per_epoch(), 2U);
  EXPECT_FALSE(open_data(config).validation.has_value());
  config.validation_path = write_text(folder / "v.txt", std::string(9, 'v')).string();
  const DataSet data = open_data(config);
  EXPECT_EQ(data.validation->batch(0, 1).tokens, std::vector<std::int32_t>(9, 'v'));
  config = text_config("random", 8);
  EXPECT_TRUE(open_data(config).validation.has_value());
}

}  // namespace
}  // namespace wirewise::testing
