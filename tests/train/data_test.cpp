// Every format gives the tokens that were written; every torn, empty or foreign file is refused by name.
#include "wirewise/train/data.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <numeric>
#include <random>

#include "fuzz.h"
#include "train/token_files.h"
#include "wirewise/base/error.h"

namespace wirewise::testing {
namespace {

using std::filesystem::path;
using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kVocab = 50304;

std::unique_ptr<TokenSource> open_at(const path& where, DataFormat format = DataFormat::kAuto) {
  return open_tokens(where.string(), format, kVocab, 1);
}

Tokens all_of(const TokenSource& source) {
  Tokens out(source.size());
  source.read(0, out.data(), out.size());
  return out;
}

/// Reads in random pieces: must be equal to one read.
Tokens in_pieces(const TokenSource& source, std::mt19937_64& random) {
  Tokens out(source.size());
  for (std::uint64_t position = 0; position < source.size();) {
    const std::uint64_t count = 1 + random() % (source.size() - position);
    source.read(position, out.data() + position, count);
    position += count;
  }
  return out;
}

template <class T>
std::vector<T> random_tokens(std::mt19937_64& random, std::size_t count, std::uint64_t below) {
  std::vector<T> out(count);
  for (auto& token : out) token = static_cast<T>(random() % below);
  return out;
}

template <class T>
Tokens widen(const std::vector<T>& tokens) {
  return {tokens.begin(), tokens.end()};
}

TEST(Tokens, TextIsItsBytes) {
  const TemporaryFolder folder;
  const auto source = open_at(write_text(folder / "a.txt", "Hi \xc3\xa9\n"));
  EXPECT_EQ(all_of(*source), (Tokens{'H', 'i', ' ', 0xc3, 0xa9, '\n'}));
  EXPECT_NE(source->where(4).find("a.txt, byte 4"), std::string::npos) << source->where(4);
}

TEST(Tokens, AFolderGivesItsTextFilesInByteOrderOfPaths) {
  const TemporaryFolder folder;
  write_text(folder / "data/b.py", "b");
  write_text(folder / "data/a/z.txt", "z");
  write_text(folder / "data/B.md", "B");
  write_text(folder / "data/empty.txt", "");
  write_text(folder / "data/image.png", std::string("\x89PNG\0\1", 6));
  write_text(folder / "data/.hidden", "h");
  write_text(folder / "data/.git/config", "g");
  write_text(folder / "outside/o.txt", "o");
  std::filesystem::create_symlink("../outside/o.txt", folder / "data/c-link.txt");
  std::filesystem::create_directory_symlink("..", folder / "data/loop");
  std::filesystem::create_symlink("nowhere", folder / "data/dangling");
  ASSERT_EQ(::mkfifo((folder / "data/pipe").c_str(), 0600), 0);
  const auto source = open_at(folder / "data");
  EXPECT_EQ(all_of(*source), (Tokens{'B', 'z', 'b', 'o'}));
  EXPECT_EQ(source->describe(), "text, 4 files, 4 tokens");
}

TEST(Tokens, LlmcAndNanoGptGiveWhatWasWritten) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const TemporaryFolder folder;
  for (int round = 0; round < 20; ++round) {
    const std::size_t count = 1 + random() % 2000;
    const auto small = random_tokens<std::uint16_t>(random, count, 50257);
    const auto large = random_tokens<std::uint32_t>(random, count, 128256);
    const auto first = open_at(write_text(folder / "a.bin", llmc_file(small)));
    EXPECT_EQ(in_pieces(*first, random), widen(small));
    const auto second = open_at(write_text(folder / "b.bin", llmc_file(large)));
    EXPECT_EQ(in_pieces(*second, random), widen(large));
    const auto third = open_at(write_text(folder / "c.bin", bytes_of(small)));
    EXPECT_EQ(in_pieces(*third, random), widen(small));
  }
}

template <class T>
void megatron_round_trip(std::uint8_t code, std::mt19937_64& random) {
  const TemporaryFolder folder;
  std::vector<std::vector<T>> sequences;
  Tokens expected;
  for (int i = 0; i < 20; ++i) {
    sequences.push_back(random_tokens<T>(random, random() % 50, 100));
    expected.insert(expected.end(), sequences.back().begin(), sequences.back().end());
  }
  const auto files = megatron_files(sequences, code, random() % 2 == 0);
  write_text(folder / "set.idx", files.index);
  write_text(folder / "set.bin", files.data);
  for (const std::string name : {"set.bin", "set.idx", "set"}) EXPECT_EQ(in_pieces(*open_at(folder / name), random), expected) << int{code};
}

TEST(Tokens, MegatronGivesItsSequencesInEveryElementType) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  megatron_round_trip<std::uint8_t>(1, random);
  megatron_round_trip<std::int8_t>(2, random);
  megatron_round_trip<std::int16_t>(3, random);
  megatron_round_trip<std::int32_t>(4, random);
  megatron_round_trip<std::int64_t>(5, random);
  megatron_round_trip<double>(6, random);
  megatron_round_trip<float>(7, random);
  megatron_round_trip<std::uint16_t>(8, random);
}

TEST(Tokens, MegatronFollowsTheOrderOfItsIndex) {
  const TemporaryFolder folder;
  auto files = megatron_files<std::uint16_t>({{1, 2}, {3}, {4, 5}}, 8);
  const std::size_t offsets = 34 + 3 * 4;  // swap the places of the first and the last sequence
  files.index.replace(offsets, 8, bytes_of(std::int64_t{6}));
  files.index.replace(offsets + 16, 8, bytes_of(std::int64_t{0}));
  write_text(folder / "set.idx", files.index);
  write_text(folder / "set.bin", files.data);
  EXPECT_EQ(all_of(*open_at(folder / "set.bin")), (Tokens{4, 5, 3, 1, 2}));
}

TEST(Tokens, ShardsComeFromAFolderOrAPatternInOrder) {
  const TemporaryFolder folder;
  for (const std::uint16_t i : {2, 0, 1}) {
    write_text(folder / ("llmc/shard_" + std::to_string(i) + ".bin"), llmc_file(std::vector<std::uint16_t>{i, 9}));
    write_text(folder / ("nano/shard_" + std::to_string(i) + ".bin"), bytes_of(std::vector<std::uint16_t>{i, 9}));
    const auto files = megatron_files<std::uint16_t>({{i, 9}}, 8);
    write_text(folder / ("mega/shard_" + std::to_string(i) + ".bin"), files.data);
    write_text(folder / ("mega/shard_" + std::to_string(i) + ".idx"), files.index);
  }
  const Tokens expected{0, 9, 1, 9, 2, 9};
  for (const std::string kind : {"llmc", "nano", "mega"}) {
    EXPECT_EQ(all_of(*open_at(folder / kind)), expected) << kind;
    EXPECT_EQ(all_of(*open_at(folder / kind / "*.bin")), expected) << kind;
    EXPECT_EQ(all_of(*open_at(folder / kind / "shard_[02]*")), (Tokens{0, 9, 2, 9})) << kind;
  }
}

TEST(Tokens, RandomTokensDependOnSeedAndPositionAlone) {
  const auto source = open_tokens("random", DataFormat::kAuto, 300, 7), again = open_tokens("", DataFormat::kRandom, 300, 7);
  Tokens whole(5000), part(100);
  source->read(1000, whole.data(), whole.size());
  again->read(3000, part.data(), part.size());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 2000));
  EXPECT_NE(fingerprint(*source), fingerprint(*open_tokens("random", DataFormat::kAuto, 300, 8)));
  std::vector<int> counts(300);
  for (const auto token : whole) ++counts.at(static_cast<std::size_t>(token));
  // Each count is binomial(5000, 1/300) with mean 16.7 and deviation 4.1: a range of 8 deviations fails by chance less than once in 10^12.
  EXPECT_LE(*std::max_element(counts.begin(), counts.end()), 50);
}

TEST(Tokens, ThePathRandomGivesRandomTokensInEveryFormat) {
  const Tokens expected = [] {
    Tokens tokens(100);
    open_tokens("", DataFormat::kRandom, 500, 7)->read(0, tokens.data(), tokens.size());
    return tokens;
  }();
  for (const DataFormat format : {DataFormat::kAuto, DataFormat::kText, DataFormat::kLlmc, DataFormat::kNanoGpt, DataFormat::kMegatron}) {
    Tokens tokens(100);
    open_tokens("random", format, 500, 7)->read(0, tokens.data(), tokens.size());
    EXPECT_EQ(tokens, expected) << static_cast<int>(format);
  }
}

TEST(Tokens, FingerprintIsOfTheTokensNotOfThePlace) {
  const TemporaryFolder folder;
  const std::string text = std::string(1000, 'x') + "end";
  const auto a = fingerprint(*open_at(write_text(folder / "a.txt", text)));
  EXPECT_EQ(a, fingerprint(*open_at(write_text(folder / "b.md", text))));
  EXPECT_NE(a, fingerprint(*open_at(write_text(folder / "c.txt", text + "s"))));
  EXPECT_NE(a, fingerprint(*open_at(write_text(folder / "d.txt", "y" + text.substr(1)))));
  EXPECT_FALSE(fingerprint(*open_at(write_text(folder / "e.txt", "z"))).empty());
}

struct Refusal {
  std::string name, contents;
  DataFormat format = DataFormat::kAuto;
  std::string message;
};

TEST(Tokens, TornAndForeignFilesAreRefusedByNameAndReason) {
  const auto llmc = llmc_file(std::vector<std::uint16_t>{1, 2, 3});
  const auto with_word = [&](std::size_t index, std::int32_t value) { return std::string(llmc).replace(4 * index, 4, bytes_of(value)); };
  const std::vector<Refusal> cases{
      {"a.txt", "", DataFormat::kAuto, "a.txt is empty"},
      {"a.txt", "", DataFormat::kText, "a.txt is empty"},
      {"a.bin", "", DataFormat::kAuto, "a.bin is empty"},
      {"a.dat", std::string("x\0y", 3), DataFormat::kAuto, "a.dat is not text"},
      {"a.bin", "abc", DataFormat::kAuto, "is torn: 3 bytes"},
      {"a.bin", "abc", DataFormat::kLlmc, "holds 3 bytes, fewer than an llm.c header"},
      {"a.bin", std::string(2000, 'x'), DataFormat::kLlmc, "is no magic of llm.c tokens"},
      {"a.bin", llmc.substr(0, llmc.size() - 1), DataFormat::kAuto, "is torn: 3 tokens need 1030 bytes, it holds 1029"},
      {"a.bin", llmc + "x", DataFormat::kAuto, "is torn: 3 tokens need 1030 bytes, it holds 1031"},
      {"a.bin", with_word(2, 2147483647), DataFormat::kAuto, "2147483647 tokens need 4294968318 bytes"},
      {"a.bin", with_word(2, -1), DataFormat::kAuto, "counts -1 tokens"},
      {"a.bin", with_word(2, 0), DataFormat::kAuto, "counts 0 tokens"},
      {"a.bin", with_word(1, 2), DataFormat::kAuto, "has version 2 under llm.c magic 20240520, which goes with 1"},
      {"a.bin", with_word(0, 20240326), DataFormat::kAuto, "is an llm.c model file"},
      {"a.bin", with_word(0, 20240527), DataFormat::kNanoGpt, "is an llm.c model or optimizer state"},
      {"a.bin", llmc, DataFormat::kNanoGpt, "begins with llm.c's magic"},
      {"a.idx", "MMIDIDX", DataFormat::kAuto, "fewer than a Megatron index's header"},
      {"a.idx", std::string(100, 'x'), DataFormat::kAuto, "does not begin with a Megatron index's magic"},
      {"a.bin", "xx", DataFormat::kMegatron, "a.idx can't be opened"},
  };
  for (const auto& item : cases) {
    const TemporaryFolder folder;
    const std::string message = message_of([&] { (void)open_at(write_text(folder / item.name, item.contents), item.format); });
    EXPECT_NE(message.find(item.message), std::string::npos) << message << "\nexpected: " << item.message;
    EXPECT_NE(message.find(folder.path().string()), std::string::npos) << message;
  }
}

TEST(Tokens, MegatronIndexesThatDontFitTheirDataAreRefused) {
  const auto files = megatron_files<std::uint16_t>({{1, 2}, {3}, {4, 5}}, 8);
  const auto with = [&](std::size_t at, const std::string& bytes) { return std::string(files.index).replace(at, bytes.size(), bytes); };
  struct Case {
    std::string index, message;
  };
  const std::vector<Case> cases{
      {with(9, bytes_of(std::uint64_t{2})), "has version 2"},
      {with(17, bytes_of(std::uint8_t{9})), "element code 9"},
      {with(18, bytes_of(std::uint64_t{1} << 62)), "more than its"},
      {with(18, bytes_of(~std::uint64_t{0})), "more than its"},
      {with(26, bytes_of(~std::uint64_t{0})), "more than its"},
      {with(18, bytes_of(std::uint64_t{2})), "is torn"},
      {with(34, bytes_of(std::int32_t{-2})), "sequence 0 the length -2"},
      {with(38, bytes_of(std::int32_t{5})), "places sequence 1 of 5 tokens at byte 4, beyond the 10 bytes"},
      {with(46, bytes_of(std::int64_t{-8})), "sequence 0 at byte -8"},
      {with(46, bytes_of(std::int64_t{1} << 62)), "beyond the 10 bytes"},
      {with(78, bytes_of(std::int64_t{4})), "ends document 1 at sequence 4"},
      {files.index.substr(0, files.index.size() - 1), "more than its"},
      {files.index + "x", "is torn"},
  };
  for (const auto& item : cases) {
    const TemporaryFolder folder;
    write_text(folder / "set.idx", item.index);
    write_text(folder / "set.bin", files.data);
    const std::string message = message_of([&] { (void)open_at(folder / "set.bin"); });
    EXPECT_NE(message.find(item.message), std::string::npos) << message << "\nexpected: " << item.message;
    EXPECT_NE(message.find("set.idx"), std::string::npos) << message;
  }
}

TEST(Tokens, ValuesThatAreNoTokensAreNamedWithTheirPlace) {
  const TemporaryFolder folder;
  const auto refused = [&](const auto& sequences, std::uint8_t code) {
    const auto files = megatron_files(sequences, code);
    write_text(folder / "set.idx", files.index);
    write_text(folder / "set.bin", files.data);
    const auto source = open_at(folder / "set.bin");
    return message_of([&] { (void)all_of(*source); });
  };
  EXPECT_NE(refused(std::vector<std::vector<std::int32_t>>{{1, -1}}, 4).find("-1 in " + (folder / "set.bin").string() + ", byte 4"),
            std::string::npos);
  EXPECT_NE(refused(std::vector<std::vector<std::int64_t>>{{1}, {2, std::int64_t{1} << 33}}, 5).find("8589934592"), std::string::npos);
  EXPECT_NE(refused(std::vector<std::vector<float>>{{1.0F, 0.5F}}, 7).find("0.5"), std::string::npos);
  EXPECT_NE(refused(std::vector<std::vector<double>>{{std::nan("")}}, 6).find("nan"), std::string::npos);
  EXPECT_NE(refused(std::vector<std::vector<std::int8_t>>{{-3}}, 2).find("-3"), std::string::npos);
}

TEST(Tokens, MissingPathsAndFoldersWithoutDataAreRefused) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "none");
  EXPECT_NE(message_of([&] { (void)open_at(folder / "absent"); }).find("absent does not exist"), std::string::npos);
  EXPECT_NE(message_of([&] { (void)open_at(folder / "none"); }).find("none holds no text"), std::string::npos);
  EXPECT_NE(message_of([&] { (void)open_at(folder / "none", DataFormat::kLlmc); }).find("holds no .bin files"), std::string::npos);
  EXPECT_NE(message_of([&] { (void)open_at(folder / "none/*.bin"); }).find("no file matches"), std::string::npos);
  EXPECT_NE(message_of([&] { (void)open_at(""); }).find("no data is given"), std::string::npos);
  EXPECT_NE(message_of([&] { (void)open_at("/dev/null"); }).find("not a regular file"), std::string::npos);
}

/// A valid file of some format, damaged at random: it must open or be refused, never crash, and what opens must be readable.
TEST(Tokens, DamagedFilesNeverCrash) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto damage = [&](std::string bytes) {
    for (std::uint64_t n = 1 + random() % 4; n > 0 && !bytes.empty(); --n) {
      const std::size_t at = random() % 2 == 0 ? random() % bytes.size() : random() % std::min<std::size_t>(bytes.size(), 120);
      switch (random() % 4) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes[at] = static_cast<char>(random() % 2 == 0 ? 0xff : 0x7f); break;
        case 2: bytes.resize(random() % 3 == 0 ? at : bytes.size() - 1); break;
        default: bytes.insert(at, std::string(1 + random() % 9, '\0')); break;
      }
    }
    return bytes;
  };
  const TemporaryFolder folder;
  int opened = 0, refused = 0;
  for (FuzzRounds rounds(3000); rounds.more();) {
    const std::uint64_t round = rounds.round();
    const auto tokens = random_tokens<std::uint16_t>(random, 1 + random() % 20, 60000);
    path file;
    if (round % 3 == 0) {
      const auto files = megatron_files<std::int32_t>({random_tokens<std::int32_t>(random, 5, 100), random_tokens<std::int32_t>(random, 3, 100)}, 4);
      write_text(folder / "set.bin", random() % 4 == 0 ? damage(files.data) : files.data);
      file = write_text(folder / "set.idx", damage(files.index));
    } else {
      file = write_text(folder / "file.bin", damage(round % 3 == 1 ? llmc_file(tokens) : bytes_of(tokens)));
    }
    try {
      const auto source = open_at(file);
      std::mt19937_64 pieces(round);
      (void)in_pieces(*source, pieces);
      (void)source->where(source->size() - 1);
      (void)fingerprint(*source);
      ++opened;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      ++refused;
    }
  }
  EXPECT_GT(opened, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace wirewise::testing
