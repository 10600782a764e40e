// Token data: text files or folders as bytes, llm.c and nanoGPT .bin, Megatron .bin/.idx; memory-mapped. Each sample is read by exactly
// one data-parallel rank, and the position is a number of samples, so any number of ranks can go on where another stopped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "wirewise/train/config.h"

namespace wirewise {

/// A micro-batch: `samples` rows of sequence + 1 tokens each (inputs are the first `sequence`, targets the last).
struct TokenBatch {
  std::int64_t samples = 0;
  std::int64_t sequence = 0;
  std::vector<std::int32_t> tokens;        // samples * (sequence + 1)
  std::vector<std::uint64_t> sample_ids;   // global ids, of this rank's rows
};

/// A memory-mapped sequence of tokens, read by position.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  [[nodiscard]] virtual std::uint64_t size() const noexcept = 0;  // tokens
  virtual void read(std::uint64_t position, std::int32_t* out, std::size_t count) const = 0;
};

/// Opens `path` in `format` (auto: by magic and extension; "random": tokens by counter from the seed). Throws bad input naming the file for missing or empty data, a
/// torn file, an unknown magic.
[[nodiscard]] std::unique_ptr<TokenSource> open_tokens(const std::string& path, DataFormat format, std::int64_t vocab, std::uint64_t seed);

/// The samples of one training run: windows of sequence + 1 tokens, visited in an order shuffled by (seed, epoch), epoch after epoch.
class Sampler {
 public:
  /// `begin`, `end`: the range of tokens used (validation keeps its own range apart). Throws bad input when it holds no whole sample.
  Sampler(std::shared_ptr<const TokenSource> source, std::uint64_t begin, std::uint64_t end, std::int64_t sequence, std::int64_t vocab,
          std::uint64_t seed, bool shuffle);
  /// The micro-batch `micro` of step `step` for data rank `rank` of `ranks`: its rows are global samples
  /// step * global + (micro * ranks + rank) * micro_batch + row. So a step's samples don't depend on how ranks share them… only on `global`.
  [[nodiscard]] TokenBatch batch(std::uint64_t first_sample, std::int64_t micro_batch) const;
  [[nodiscard]] std::uint64_t samples_per_epoch() const noexcept;

 private:
  std::shared_ptr<const TokenSource> source_;
  std::uint64_t begin_, end_;
  std::int64_t sequence_, vocab_;
  std::uint64_t seed_;
  bool shuffle_;
};

}  // namespace wirewise
