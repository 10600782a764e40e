// Readers of the formats that token data comes in: each finds the runs of tokens in mapped files, after checking that the files are whole.
// Private to train/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "wirewise/train/data.h"
#include "wirewise/train/mapped_file.h"

namespace wirewise::tokens {

/// How a token is stored.
enum class Element : std::uint8_t { kUInt8, kInt8, kUInt16, kInt16, kUInt32, kInt32, kInt64, kFloat32, kFloat64 };
[[nodiscard]] std::size_t size_of(Element element) noexcept;

/// Tokens stored back to back in a file.
struct Run {
  std::size_t file = 0;         // index into MappedTokens::files
  std::uint64_t offset = 0;     // bytes
  std::uint64_t count = 0;      // tokens
  Element element = Element::kUInt8;
};

/// What a reader found.
struct MappedTokens {
  std::vector<MappedFile> files;
  std::vector<Run> runs;
};

/// Each reader adds one file (Megatron: one .bin with its .idx). Throw bad input naming file and reason.
void add_text(MappedTokens& out, const std::filesystem::path& path);
void add_llmc(MappedTokens& out, const std::filesystem::path& path);
void add_nanogpt(MappedTokens& out, const std::filesystem::path& path);
/// `path`: the .bin, the .idx, or both without their extension.
void add_megatron(MappedTokens& out, const std::filesystem::path& path);

/// The format by a file's first bytes and name, as open_tokens describes it for auto.
[[nodiscard]] DataFormat detect(const std::filesystem::path& path);
/// True when the file is non-empty and no NUL is among its first 8 KiB.
[[nodiscard]] bool holds_text(const MappedFile& file);

/// A source over the runs, one after the other. `format` is for describe().
[[nodiscard]] std::unique_ptr<TokenSource> make_mapped_source(MappedTokens tokens, DataFormat format);
/// Tokens drawn uniformly below `vocab`, each from (seed, position).
[[nodiscard]] std::unique_ptr<TokenSource> make_random_source(std::int64_t vocab, std::uint64_t seed);

}  // namespace wirewise::tokens
