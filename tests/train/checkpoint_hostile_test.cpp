// Checkpoints written by others, by accident or on purpose: an index that leads out of its folder, lies about ranges, or is torn; and what
// safetensors itself says of our files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "fuzz.h"
#include "train/checkpoint_ranks.h"
#include "train/python.h"
#include "train/temporary_folder.h"
#include "wirewise/train/checkpoint_format.h"

namespace wirewise::testing {
namespace {

using nlohmann::json;
using std::filesystem::path;

/// A checkpoint of two tensors on two ranks whose index can be rewritten, marker included.
class Victim {
 public:
  Victim() {
    values_.resize(20);
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i);
    std::vector<std::vector<Fragment>> fragments(2);
    fragments[0].push_back({"model/a", {2, 5}, 0, 10, DType::kFloat32, values_.data()});
    fragments[0].push_back({"model/b", {10}, 0, 4, DType::kFloat32, values_.data() + 10});
    fragments[1].push_back({"model/b", {10}, 4, 6, DType::kFloat32, values_.data() + 14});
    for (const auto& thrown : save_on(2, folder_.path(), 1, fragments, {{"key", "value"}})) EXPECT_EQ(thrown, "");
    index_ = json::parse(read_text(at() / "index.json"));
  }
  [[nodiscard]] path at() const { return folder_ / "step-000001"; }
  [[nodiscard]] const json& index() const { return index_; }
  void write(const std::string& text) const {
    write_text(at() / "index.json", text);
    write_text(at() / "COMPLETE", checkpoint::marker_text(text));
  }
  /// Opens and reads all there is.
  void use() const {
    const CheckpointReader reader(at());
    for (const auto& [name, info] : reader.tensors()) {
      std::vector<unsigned char> out(info.numel * size_of(info.dtype));
      reader.read(name, info.shape, 0, info.numel, out.data());
    }
    (void)reader.verify();
  }

 private:
  TemporaryFolder folder_;
  std::vector<float> values_;
  json index_;
};

TEST(CheckpointHostile, IndexesThatLieAreRefused) {
  const Victim victim;
  struct Case {
    std::string pointer;
    json value;
    std::string message;
  };
  const std::vector<Case> cases{
      {"/files", json::array(), "another number of files than ranks"},
      {"/ranks", 0, "another number of files than ranks"},
      {"/ranks", -1, "can't be read"},
      {"/format", "other", "no checkpoint's index"},
      {"/version", 2, "has version 2"},
      {"/chunk", 0, "chunks of 0 bytes"},
      {"/chunk", std::uint64_t{1} << 40, "chunks of"},
      {"/state/key", 5, "can't be read"},
      {"/files/0/name", "../step-000001/rank-00000.safetensors", "no plain rank-N.safetensors"},
      {"/files/0/name", "/etc/passwd", "no plain rank-N.safetensors"},
      {"/files/0/name", "", "no plain rank-N.safetensors"},
      {"/files/0/name", "index.json", "no plain rank-N.safetensors"},
      {"/files/0/name", "rank-00001.safetensors", "names a file twice"},
      {"/files/0/name", "rank-00007.safetensors", "rank-00007.safetensors can't be opened"},
      {"/files/0/bytes", 5, "beyond the end"},
      {"/files/0/bytes", 1 << 20, "is torn: rank-00000.safetensors holds"},
      {"/tensors/model~1a/dtype", "float31", "unknown dtype"},
      {"/tensors/model~1a/dtype", "float64", "beyond the end"},
      {"/tensors/model~1a/shape", json{2, 6}, "elements 10 to 12 of model/a are missing"},
      {"/tensors/model~1a/shape", json{2, 4}, "outside its 8"},
      {"/tensors/model~1a/shape", json{std::int64_t{1} << 40, std::int64_t{1} << 40}, "impossible shape"},
      {"/tensors/model~1a/shape", json{-2, -5}, "can't be read"},
      {"/tensors/model~1a/shape", json{~std::uint64_t{0}}, "can't be read"},
      {"/tensors/model~1a/fragments", json::array(), "no fragments of model/a"},
      {"/tensors/model~1a/fragments/0/offset", 1, "outside its 10"},
      {"/tensors/model~1a/fragments/0/offset", ~std::uint64_t{0}, "outside its 10"},
      {"/tensors/model~1a/fragments/0/length", ~std::uint64_t{0}, "outside its 10"},
      {"/tensors/model~1a/fragments/0/length", 9, "elements 9 to 10 of model/a are missing"},
      {"/tensors/model~1a/fragments/0/position", ~std::uint64_t{0}, "beyond the end"},
      {"/tensors/model~1a/fragments/0/file", 2, "file 2, which isn't listed"},
      {"/tensors/model~1a/fragments/0/checksums", json::array(), "0 checksums for 40 bytes"},
      {"/tensors/model~1b/fragments/1/offset", 3, "elements 3 to 4 of model/b are held twice"},
      {"/tensors/model~1b/fragments/0/length", 3, "elements 3 to 4 of model/b are missing"},
      {"/tensors/model~1b/fragments/0/position", victim.index()["tensors"]["model/a"]["fragments"][0]["position"], "overlap in rank-00000"},
      {"/tensors/model~1b/fragments/0/length", 1.5, "can't be read"},
  };
  for (const auto& item : cases) {
    json index = victim.index();
    index[json::json_pointer(item.pointer)] = item.value;
    victim.write(index.dump());
    const std::string message = message_of([&] { victim.use(); });
    EXPECT_NE(message.find(item.message), std::string::npos) << item.pointer << ": " << message << "\nexpected: " << item.message;
  }
  json none = victim.index();
  none["files"] = json::array();
  none["ranks"] = 0;
  none["tensors"] = json::object();
  victim.write(none.dump());
  EXPECT_NE(message_of([&] { victim.use(); }).find("lists no ranks"), std::string::npos);
  victim.write(victim.index().dump());
  EXPECT_NO_THROW(victim.use());
}

TEST(CheckpointHostile, LinksAndPipesAreNotFollowed) {
  const Victim victim;
  const path file = victim.at() / "rank-00000.safetensors", elsewhere = victim.at() / "copy";
  std::filesystem::rename(file, elsewhere);
  std::filesystem::create_symlink(elsewhere, file);
  EXPECT_NE(message_of([&] { victim.use(); }).find("rank-00000.safetensors is a link"), std::string::npos);
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  EXPECT_NE(message_of([&] { victim.use(); }).find("is not a regular file"), std::string::npos);
  std::filesystem::remove(file);
  std::filesystem::rename(elsewhere, file);
  EXPECT_NO_THROW(victim.use());
  std::filesystem::rename(victim.at() / "index.json", elsewhere);
  std::filesystem::create_symlink(elsewhere, victim.at() / "index.json");
  EXPECT_NE(message_of([&] { victim.use(); }).find("is a link"), std::string::npos);
  EXPECT_EQ(newest_checkpoint(victim.at().parent_path()), std::nullopt);
}

TEST(CheckpointHostile, TruncatedFilesAreRefusedOnOpening) {
  for (const std::string name : {"rank-00000.safetensors", "rank-00001.safetensors", "index.json", "COMPLETE"}) {
    const Victim victim;
    const std::string whole = read_text(victim.at() / name);
    for (std::size_t size = 0; size < whole.size(); size += 1 + whole.size() / 23) {
      write_text(victim.at() / name, whole.substr(0, size));
      EXPECT_NE(message_of([&] { victim.use(); }), "") << name << " cut to " << size;
      EXPECT_TRUE(name.starts_with("rank") || !newest_checkpoint(victim.at().parent_path()));
    }
  }
}

TEST(CheckpointHostile, AHeaderThatClaimsTooMuchIsFoundByVerify) {
  const Victim victim;
  const std::string whole = read_text(victim.at() / "rank-00000.safetensors");
  for (const std::uint64_t claim : {std::uint64_t{100'000'001}, ~std::uint64_t{0}, std::uint64_t{whole.size()}}) {
    std::string bad = whole;
    std::memcpy(bad.data(), &claim, sizeof claim);
    write_text(victim.at() / "rank-00000.safetensors", bad);
    EXPECT_EQ(CheckpointReader(victim.at()).verify(), std::vector<std::string>{"header (rank-00000.safetensors)"});
  }
}

TEST(CheckpointHostile, DamagedIndexesNeverCrash) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const Victim victim;
  const json flat = victim.index().flatten();
  const std::string text = victim.index().dump();
  int opened = 0, refused = 0;
  for (FuzzRounds rounds(1500); rounds.more();) {
    if (rounds.round() % 2 == 0) {  // a value replaced
      const json values{0, 1, -1, 3.5, ~std::uint64_t{0}, std::int64_t{1} << 62, "x", "", nullptr, true, json::array(), json::object(), json{1, 2}};
      auto item = flat.begin();
      std::advance(item, static_cast<std::ptrdiff_t>(random() % flat.size()));
      json index = victim.index();
      index[json::json_pointer(item.key())] = values[random() % values.size()];
      victim.write(index.dump());
    } else {  // text damaged
      std::string bad = text;
      for (std::uint64_t n = 1 + random() % 3; n > 0; --n) {
        const std::size_t at = random() % bad.size();
        if (random() % 2 == 0) {
          bad[at] = static_cast<char>(random());
        } else {
          bad.erase(at, 1 + random() % 20);
        }
      }
      victim.write(bad);
    }
    try {
      victim.use();
      ++opened;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(opened, 0);
  EXPECT_GT(refused, 0);
}

TEST(CheckpointHostile, TextThatIsNoUtf8IsRefusedWhenSaving) {
  const TemporaryFolder folder;
  const float one = 1;
  EXPECT_NE(save_on(1, folder.path(), 1, {{{"model/\xff", {1}, 0, 1, DType::kFloat32, &one}}}, {}).front().find("UTF-8"), std::string::npos);
  EXPECT_NE(save_on(1, folder.path(), 1, {{{"model/a", {1}, 0, 1, DType::kFloat32, &one}}}, {{"k", "\xff"}}).front().find("UTF-8"),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(CheckpointFormat, SafetensorsOpensEveryRanksFile) {
  const auto python = python_with("safetensors, numpy");
  if (!python) GTEST_SKIP() << "no Python with safetensors (.venv, or WIREWISE_PYTHON)";
  const TemporaryFolder folder;
  std::mt19937_64 random(21);
  ModelState state = random_state(random, 12, 30);
  const std::vector<std::uint16_t> halves{1, 2, 3};
  const std::vector<std::int64_t> longs{-1, 5};
  const auto add = [&](const std::string& name, DType dtype, const void* data, std::size_t bytes) {
    const auto* first = static_cast<const unsigned char*>(data);
    state[name] = {{static_cast<std::int64_t>(bytes / size_of(dtype))}, dtype, {first, first + bytes}};
  };
  add("half", DType::kFloat16, halves.data(), 6);
  add("short", DType::kInt16, halves.data(), 6);
  add("long", DType::kInt64, longs.data(), 16);
  add("flags", DType::kBool, "\1\0\1", 3);
  const auto fragments = deal(state, 3, random);
  for (const auto& thrown : save_on(3, folder.path(), 4, fragments, {})) ASSERT_EQ(thrown, "");
  write_text(folder / "read.py", R"(
import json, sys, safetensors
out = {}
for rank in range(3):
    path = "%s/rank-%05d.safetensors" % (sys.argv[1], rank)
    with safetensors.safe_open(path, framework="np") as file:
        metadata = file.metadata()
    with open(path, "rb") as file:
        tensors = safetensors.deserialize(file.read())
    out[str(rank)] = {"metadata": metadata, "tensors": {name: [t["dtype"], t["shape"], bytes(t["data"]).hex()] for name, t in tensors}}
print("JSON" + json.dumps(out))
)");
  const std::string out = run_python(*python, folder / "read.py", (folder / "step-000004").string());
  const auto start = out.find("JSON{");
  ASSERT_NE(start, std::string::npos) << out;
  const json read = json::parse(out.substr(start + 4));
  for (int rank = 0; rank < 3; ++rank) {
    const json& file = read[std::to_string(rank)];
    EXPECT_EQ(file["metadata"]["step"], "4");
    EXPECT_EQ(file["metadata"]["rank"], std::to_string(rank));
    EXPECT_EQ(file["tensors"].size(), fragments[static_cast<std::size_t>(rank)].size());
    for (const auto& fragment : fragments[static_cast<std::size_t>(rank)]) {
      const Tensor& tensor = state.at(fragment.tensor);
      const bool whole = fragment.length == tensor.numel();
      const std::string key = whole ? fragment.tensor
                                    : fragment.tensor + "[" + std::to_string(fragment.offset) + ":" + std::to_string(fragment.offset + fragment.length) + "]";
      ASSERT_TRUE(file["tensors"].contains(key)) << key;
      const json& found = file["tensors"][key];
      EXPECT_EQ(found[0], checkpoint::safetensors_dtype(fragment.dtype));
      EXPECT_EQ(found[1], whole ? json(tensor.shape) : json{fragment.length});
      std::string hex;
      const auto* data = static_cast<const unsigned char*>(fragment.data);
      for (std::size_t i = 0; i < fragment.length * size_of(fragment.dtype); ++i) {
        constexpr char kDigits[] = "0123456789abcdef";
        hex += {kDigits[data[i] >> 4], kDigits[data[i] & 15]};
      }
      EXPECT_EQ(found[2], hex) << key;
      if (whole) continue;
      const json place = json::parse(file["metadata"][key].get<std::string>());
      EXPECT_EQ(place["tensor"], fragment.tensor);
      EXPECT_EQ(place["offset"], fragment.offset);
      EXPECT_EQ(place["shape"], json(fragment.shape));
    }
  }
}

}  // namespace
}  // namespace wirewise::testing
