// Text, llm.c and nanoGPT. Formats: llm.c writes 256 int32 (magic, version, count) before uint16 (version 1) or uint32 (version 7) tokens;
// nanoGPT's file is uint16 tokens alone.
#include "wirewise/train/token_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"

namespace wirewise::tokens {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and are read in place");

constexpr std::int32_t kLlmcMagic16 = 20240520;
constexpr std::int32_t kLlmcMagic32 = 20240801;
constexpr std::int32_t kLlmcModel = 20240326;
constexpr std::int32_t kLlmcState = 20240527;
constexpr std::size_t kLlmcHeader = 256 * sizeof(std::int32_t);
constexpr std::size_t kTextProbe = 8192;

Error refuse(const MappedFile& file, const std::string& reason, const std::string& remedy) {
  return bad_input(fmt::format("{} {}.", printable(file.path().string()), reason), remedy);
}

std::int32_t word(const MappedFile& file, std::size_t index) {
  std::int32_t value = 0;
  std::memcpy(&value, file.bytes().data() + index * sizeof value, sizeof value);
  return value;
}

bool begins_with_word(const MappedFile& file, std::int32_t value) {
  return file.bytes().size() >= sizeof value && word(file, 0) == value;
}

void add_run(MappedTokens& out, MappedFile file, std::uint64_t offset, std::uint64_t count, Element element) {
  out.files.push_back(std::move(file));
  out.runs.push_back({out.files.size() - 1, offset, count, element});
}

}  // namespace

std::size_t size_of(Element element) noexcept {
  switch (element) {
    case Element::kUInt8:
    case Element::kInt8: return 1;
    case Element::kUInt16:
    case Element::kInt16: return 2;
    case Element::kUInt32:
    case Element::kInt32:
    case Element::kFloat32: return 4;
    case Element::kInt64:
    case Element::kFloat64: return 8;
  }
  return 1;
}

bool holds_text(const MappedFile& file) {
  const auto head = file.bytes().first(std::min(file.bytes().size(), kTextProbe));
  return !head.empty() && std::find(head.begin(), head.end(), std::byte{0}) == head.end();
}

void add_text(MappedTokens& out, const std::filesystem::path& path) {
  MappedFile file(path);
  const std::uint64_t count = file.bytes().size();
  if (count == 0) throw refuse(file, "is empty", "Give data that holds at least one sequence.");
  add_run(out, std::move(file), 0, count, Element::kUInt8);
}

void add_llmc(MappedTokens& out, const std::filesystem::path& path) {
  MappedFile file(path);
  const std::uint64_t bytes = file.bytes().size();
  if (bytes < kLlmcHeader) {
    throw refuse(file, fmt::format("holds {} bytes, fewer than an llm.c header's {}", bytes, kLlmcHeader), "Write the file anew.");
  }
  const std::int32_t magic = word(file, 0), version = word(file, 1), count = word(file, 2);
  if (magic == kLlmcModel || magic == kLlmcState) {
    throw refuse(file, fmt::format("is an llm.c {} file, no tokens", magic == kLlmcModel ? "model" : "optimizer state"),
                 "Give the file of tokens.");
  }
  if (magic != kLlmcMagic16 && magic != kLlmcMagic32) {
    throw refuse(file, fmt::format("begins with {}, which is no magic of llm.c tokens ({} or {})", magic, kLlmcMagic16, kLlmcMagic32),
                 "Set data.format to what the file is.");
  }
  const std::int32_t expected = magic == kLlmcMagic16 ? 1 : 7;
  if (version != expected) {
    throw refuse(file, fmt::format("has version {} under llm.c magic {}, which goes with {}", version, magic, expected),
                 "Write the file anew with a current llm.c script.");
  }
  const Element element = magic == kLlmcMagic16 ? Element::kUInt16 : Element::kUInt32;
  if (count <= 0) throw refuse(file, fmt::format("counts {} tokens in its header", count), "Give data that holds at least one sequence.");
  const std::uint64_t whole = kLlmcHeader + static_cast<std::uint64_t>(count) * size_of(element);
  if (bytes != whole) {
    throw refuse(file, fmt::format("is torn: {} tokens need {} bytes, it holds {}", count, whole, bytes), "Copy or write it again.");
  }
  add_run(out, std::move(file), kLlmcHeader, static_cast<std::uint64_t>(count), element);
}

void add_nanogpt(MappedTokens& out, const std::filesystem::path& path) {
  MappedFile file(path);
  const std::uint64_t bytes = file.bytes().size();
  if (bytes == 0) throw refuse(file, "is empty", "Give data that holds at least one sequence.");
  if (begins_with_word(file, kLlmcMagic16) || begins_with_word(file, kLlmcMagic32)) {
    throw refuse(file, "begins with llm.c's magic, which nanoGPT's format doesn't have", "Set data.format = \"llmc\".");
  }
  if (begins_with_word(file, kLlmcModel) || begins_with_word(file, kLlmcState)) {
    throw refuse(file, "is an llm.c model or optimizer state, no tokens", "Give the file of tokens.");
  }
  if (bytes % 2 != 0) throw refuse(file, fmt::format("is torn: {} bytes are no whole number of uint16 tokens", bytes), "Copy it again.");
  add_run(out, std::move(file), 0, bytes / 2, Element::kUInt16);
}

DataFormat detect(const std::filesystem::path& path) {
  std::error_code error;
  if (path.extension() == ".idx") return DataFormat::kMegatron;
  if (path.extension() != ".bin") {
    const MappedFile file(path);
    if (file.bytes().empty()) throw refuse(file, "is empty", "Give data that holds at least one sequence.");
    if (!holds_text(file)) throw refuse(file, "is not text, and its name tells no format", "Set data.format to what it is.");
    return DataFormat::kText;
  }
  if (std::filesystem::exists(std::filesystem::path(path).replace_extension(".idx"), error)) return DataFormat::kMegatron;
  const MappedFile file(path);
  const bool llmc = begins_with_word(file, kLlmcMagic16) || begins_with_word(file, kLlmcMagic32) || begins_with_word(file, kLlmcModel) ||
                    begins_with_word(file, kLlmcState);
  return llmc ? DataFormat::kLlmc : DataFormat::kNanoGpt;
}

}  // namespace wirewise::tokens
