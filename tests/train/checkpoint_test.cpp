// What a checkpoint must keep: every element whatever the ranks that wrote and read it, the older checkpoint whatever fails, and a name
// for every flipped bit.
#include "wirewise/train/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "train/checkpoint_ranks.h"
#include "train/temporary_folder.h"
#include "wirewise/train/checkpoint_format.h"

namespace wirewise::testing {
namespace {

using std::filesystem::path;

const TrainState kState{{"consumed_samples", "1280"}, {"loss_scale", "65536"}, {"note", "Grüße \"quoted\"\n"}};

std::vector<std::string> names_in(const path& folder) {
  std::vector<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(folder)) names.push_back(item.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// One small checkpoint of two ranks at folder/step-7.
ModelState save_small(const path& folder, std::uint64_t step, std::uint64_t seed = 3) {
  std::mt19937_64 random(seed);
  ModelState state = random_state(random, 4, 100);
  for (const auto& thrown : save_on(2, folder, step, deal(state, 2, random), kState)) EXPECT_EQ(thrown, "");
  return state;
}

void expect_equal(const CheckpointReader& reader, const ModelState& state) {
  ASSERT_EQ(reader.tensors().size(), state.size());
  for (const auto& [name, tensor] : state) {
    std::vector<unsigned char> read(tensor.bytes.size());
    reader.read(name, tensor.shape, 0, tensor.numel(), read.data());
    EXPECT_EQ(read, tensor.bytes) << name;
  }
}

TEST(Checkpoint, AnyRangeReadsBackWhateverRanksWroteIt) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 12; ++round) {
    const TemporaryFolder folder;
    const int ranks = 1 + static_cast<int>(random() % 5);
    const ModelState state = random_state(random, 6, round % 4 == 0 ? 200000 : 400);
    for (const auto& thrown : save_on(ranks, folder.path(), 12, deal(state, ranks, random), kState)) ASSERT_EQ(thrown, "");
    const CheckpointReader reader(folder / "step-000012");
    EXPECT_EQ(reader.step(), 12U);
    EXPECT_EQ(reader.ranks(), ranks);
    EXPECT_EQ(reader.state(), kState);
    EXPECT_TRUE(reader.verify().empty());
    expect_equal(reader, state);
    for (const auto& [name, tensor] : state) {
      const std::uint64_t offset = random() % tensor.numel(), length = random() % (tensor.numel() - offset + 1);
      const std::size_t element = size_of(tensor.dtype);
      std::vector<unsigned char> read(length * element);
      reader.read(name, tensor.shape, offset, length, read.data());
      EXPECT_EQ(0, std::memcmp(read.data(), tensor.bytes.data() + offset * element, read.size())) << name;
    }
  }
}

TEST(Checkpoint, FolderHoldsTheRanksFilesTheIndexAndTheMarker) {
  const TemporaryFolder folder;
  save_small(folder.path(), 7);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"step-000007"});
  EXPECT_EQ(names_in(folder / "step-000007"),
            (std::vector<std::string>{"COMPLETE", "index.json", "rank-00000.safetensors", "rank-00001.safetensors"}));
}

TEST(Checkpoint, ARankReadsOnlyTheChunksItNeeds) {
  const TemporaryFolder folder;
  const std::uint64_t numel = 8 << 20;
  const std::vector<float> data(numel, 1.5F);
  const std::vector<std::vector<Fragment>> fragments{{{"model/w", {8, 1 << 20}, 0, numel, DType::kFloat32, data.data()}}};
  ASSERT_EQ(save_on(1, folder.path(), 1, fragments, {}).front(), "");
  const CheckpointReader reader(folder / "step-000001");
  std::vector<float> part(numel / 8);
  reader.read("model/w", {8, 1 << 20}, numel / 8 + 5, numel / 8, part.data());
  EXPECT_EQ(part, std::vector<float>(numel / 8, 1.5F));
  EXPECT_GE(reader.bytes_read(), part.size() * sizeof(float));
  EXPECT_LE(reader.bytes_read(), part.size() * sizeof(float) + 2 * checkpoint::kChunk);
}

TEST(Checkpoint, TensorsWithoutElementsAndRanksWithoutTensorsAreKept) {
  const TemporaryFolder folder;
  const float one = 1;
  const std::vector<std::vector<Fragment>> fragments{
      {{"model/none", {0, 4}, 0, 0, DType::kFloat32, nullptr}},
      {},
      {{"model/scalar", {}, 0, 1, DType::kFloat32, &one}, {"model/none", {0, 4}, 0, 0, DType::kFloat32, nullptr}}};
  for (const auto& thrown : save_on(3, folder.path(), 2, fragments, {})) ASSERT_EQ(thrown, "");
  const CheckpointReader reader(folder / "step-000002");
  EXPECT_EQ(reader.tensors().at("model/none").numel, 0U);
  float read = 0;
  reader.read("model/scalar", {}, 0, 1, &read);
  EXPECT_EQ(read, 1.0F);
  EXPECT_TRUE(reader.verify().empty());
}

TEST(Checkpoint, EachElementMustBeHeldExactlyOnce) {
  const std::vector<float> data(10);
  const auto piece = [&](std::uint64_t offset, std::uint64_t length) {
    return Fragment{"model/w", {10}, offset, length, DType::kFloat32, data.data()};
  };
  struct Case {
    std::vector<std::vector<Fragment>> fragments;
    std::string message;
  };
  const std::vector<Case> cases{
      {{{piece(0, 4)}, {piece(5, 5)}}, "elements 4 to 5 of model/w are missing"},
      {{{piece(0, 6)}, {piece(5, 5)}}, "elements 5 to 6 of model/w are held twice"},
      {{{piece(0, 10)}, {piece(0, 10)}}, "elements 0 to 10 of model/w are held twice"},
      {{{piece(0, 4)}, {piece(4, 5)}}, "elements 9 to 10 of model/w are missing"},
      {{{piece(0, 4)}, {{"model/w", {5, 2}, 4, 6, DType::kFloat32, data.data()}}}, "model/w is float32 [10] in one fragment and float32 [5, 2]"},
      {{{piece(0, 11)}, {}}, "elements 0 + 11 lie outside model/w of shape [10]"},
  };
  for (const auto& item : cases) {
    const TemporaryFolder folder;
    for (const auto& thrown : save_on(2, folder.path(), 1, item.fragments, {})) {
      EXPECT_NE(thrown.find(item.message), std::string::npos) << thrown << "\nexpected: " << item.message;
    }
    EXPECT_TRUE(names_in(folder.path()).empty());
  }
}

TEST(Checkpoint, WrongShapeAndAbsentTensorNameBoth) {
  const TemporaryFolder folder;
  const std::vector<float> data(6);
  ASSERT_EQ(save_on(1, folder.path(), 1, {{{"model/w", {2, 3}, 0, 6, DType::kFloat32, data.data()}}}, {}).front(), "");
  const CheckpointReader reader(folder / "step-000001");
  float out[6];
  EXPECT_NE(message_of([&] { reader.read("model/w", {3, 2}, 0, 6, out); }).find("model/w of shape [2, 3], this model needs [3, 2]"),
            std::string::npos);
  EXPECT_NE(message_of([&] { reader.read("model/v", {2, 3}, 0, 6, out); }).find("holds no tensor model/v"), std::string::npos);
}

TEST(Checkpoint, EveryFlippedBitIsFoundAndItsTensorNamed) {
  const TemporaryFolder folder;
  const ModelState state = save_small(folder.path(), 7);
  const path checkpoint = folder / "step-000007";
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    const path file = checkpoint / (random() % 2 == 0 ? "rank-00000.safetensors" : "rank-00001.safetensors");
    const std::string good = read_text(file);
    std::string bad = good;
    bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
    write_text(file, bad);
    const CheckpointReader reader(checkpoint);
    const auto different = reader.verify();
    ASSERT_EQ(different.size(), 1U);
    EXPECT_NE(different.front().find(file.filename().string()), std::string::npos);
    if (different.front().starts_with("model/")) {
      const std::string tensor = different.front().substr(0, different.front().find(' '));
      std::vector<unsigned char> out(state.at(tensor).bytes.size());
      const std::string message = message_of([&] { reader.read(tensor, state.at(tensor).shape, 0, state.at(tensor).numel(), out.data()); });
      EXPECT_NE(message.find(tensor), std::string::npos) << message;
    }
    write_text(file, good);
  }
}

TEST(Checkpoint, KeepsTheNewestCompleteOnesAndNothingForeignIsRemoved) {
  const TemporaryFolder folder;
  save_small(folder.path(), 1);
  write_text(folder / "step-000001/notes.txt", "mine");
  std::filesystem::create_directories(folder / "step-000002");                       // no checkpoint at all
  std::filesystem::create_directories(folder / ".step-000003.tmp-123-abc");          // a killed save
  write_text(folder / ".step-000003.tmp-123-abc/rank-00000.safetensors", "torn");
  std::filesystem::create_directory_symlink(folder / "step-000001", folder / "step-000000");
  std::mt19937_64 random(5);
  const ModelState state = random_state(random, 3, 50);
  for (const std::uint64_t step : {4, 5, 6, 7}) {
    for (const auto& thrown : save_on(2, folder.path(), step, deal(state, 2, random), kState, 2)) ASSERT_EQ(thrown, "");
  }
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"step-000000", "step-000001", "step-000002", "step-000006", "step-000007"}));
  EXPECT_EQ(newest_checkpoint(folder.path()), folder / "step-000007");
  // A save of an earlier step than the newest is kept itself, and so is the newest.
  for (const auto& thrown : save_on(2, folder.path(), 3, deal(state, 2, random), kState, 1)) ASSERT_EQ(thrown, "");
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"step-000000", "step-000001", "step-000002", "step-000003", "step-000007"}));
}

TEST(Checkpoint, SavingAStepAgainReplacesIt) {
  const TemporaryFolder folder;
  save_small(folder.path(), 7, 1);
  const ModelState newer = save_small(folder.path(), 7, 2);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"step-000007"});
  expect_equal(CheckpointReader(folder / "step-000007"), newer);
}

TEST(Checkpoint, NewestSkipsWhatIsNotComplete) {
  const TemporaryFolder folder;
  EXPECT_EQ(newest_checkpoint(folder / "absent"), std::nullopt);
  EXPECT_EQ(newest_checkpoint(folder.path()), std::nullopt);
  save_small(folder.path(), 999999);
  save_small(folder.path(), 1000000);
  EXPECT_EQ(newest_checkpoint(folder.path()), folder / "step-1000000");
  std::filesystem::remove(folder / "step-1000000/COMPLETE");
  EXPECT_EQ(newest_checkpoint(folder.path()), folder / "step-999999");
  EXPECT_NE(message_of([&] { CheckpointReader reader(folder / "step-1000000"); }).find("it has no COMPLETE"), std::string::npos);
}

}  // namespace
}  // namespace wirewise::testing
