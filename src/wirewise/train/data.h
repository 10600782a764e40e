// Token data: text files or folders as bytes, llm.c and nanoGPT .bin, Megatron .bin/.idx; memory-mapped. Each sample is read by exactly
// one data-parallel rank, and the position is a number of samples, so any number of ranks can go on where another stopped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
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

/// A sequence of tokens, read by position.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  [[nodiscard]] virtual std::uint64_t size() const noexcept = 0;  // tokens
  /// Tokens [position, position + count), which lie within size(). Throws bad input naming value and place when one is no 31-bit number.
  virtual void read(std::uint64_t position, std::int32_t* out, std::size_t count) const = 0;
  /// The file of a token and its index there: "corpus/train.bin, token 17".
  [[nodiscard]] virtual std::string where(std::uint64_t position) const = 0;
  /// "text, 812 files, 21400000 tokens": for reports.
  [[nodiscard]] virtual std::string describe() const = 0;
};

/// Opens `path` in `format`.
///
/// path    a file, a folder, or a pattern such as "shards/*.bin" (its files in byte order of their names).
/// text    every byte is a token. A folder gives, recursively and in byte order of their paths, all files that hold text: neither the name
///         nor a folder above begins with a dot, not empty, no NUL among the first 8 KiB. Links to files are followed, to folders not.
/// llmc, nanogpt, megatron   a file, a pattern, or a folder's *.bin (megatron: each with its .idx); a Megatron path may omit the extension.
/// random  no file: tokens by counter from the seed, whatever `path` says. The path "random" is that in every format.
/// auto    .idx, or .bin beside an .idx, is megatron; .bin is llmc by its magic, else nanogpt; a folder of nothing but .bin and
///         .idx files likewise; anything else text.
///
/// Throws bad input naming the file for missing or empty data, a torn file, an unknown magic.
[[nodiscard]] std::unique_ptr<TokenSource> open_tokens(const std::string& path, DataFormat format, std::int64_t vocab, std::uint64_t seed);

/// Throws bad input naming the largest token that is not below `vocab` and its place. Looks at all of a source of up to 2^24 tokens, and at
/// as many spread over a larger one; a sampler refuses those that this doesn't see.
void check_tokens(const TokenSource& source, std::int64_t vocab);

/// A hash of a source's length and of tokens spread over it: equal data has an equal fingerprint wherever it lies.
[[nodiscard]] std::string fingerprint(const TokenSource& source);

/// The samples of one training run: windows of sequence + 1 tokens (each starts `sequence` after the one before), visited in an order
/// shuffled by (seed, epoch), epoch after epoch. Sample g of a run is the same window whatever ranks and micro-batches there are.
class Sampler {
 public:
  /// `begin`, `end`: the range of tokens used (validation keeps its own range apart). Throws bad input when it holds no whole sample.
  Sampler(std::shared_ptr<const TokenSource> source, std::uint64_t begin, std::uint64_t end, std::int64_t sequence, std::int64_t vocab,
          std::uint64_t seed, bool shuffle);
  /// The rows of samples first_sample, first_sample + 1, …, first_sample + micro_batch - 1. Throws bad input naming value, position and
  /// file when a token is not below the vocabulary.
  [[nodiscard]] TokenBatch batch(std::uint64_t first_sample, std::int64_t micro_batch) const;
  /// The window of a sample: its first token's position in the source.
  [[nodiscard]] std::uint64_t position_of(std::uint64_t sample) const noexcept;
  [[nodiscard]] std::uint64_t samples_per_epoch() const noexcept { return windows_; }

 private:
  std::shared_ptr<const TokenSource> source_;
  std::uint64_t begin_, windows_;
  std::int64_t sequence_, vocab_;
  std::uint64_t seed_;
  bool shuffle_;
};

/// The first sample that data rank `data_rank` of `data_ranks` reads for micro-batch `micro` (0, 1, … accumulation - 1) of a step that
/// begins after `consumed` samples: consumed + (micro * data_ranks + data_rank) * micro_batch. Over a step the ranks read each sample of
/// [consumed, consumed + global_batch) once.
[[nodiscard]] constexpr std::uint64_t first_sample(std::uint64_t consumed, std::int64_t micro, int data_rank, int data_ranks,
                                                   std::int64_t micro_batch) noexcept {
  return consumed + static_cast<std::uint64_t>((micro * data_ranks + data_rank) * micro_batch);
}

/// A run's data: training, and validation kept apart from it.
struct DataSet {
  std::shared_ptr<const TokenSource> source;
  Sampler train;
  std::optional<Sampler> validation;   // absent when data.validation = 0
  std::string fingerprint;             // of the training data: must be equal for an exact resume
};

/// Opens what a finished configuration names. A validation fraction takes that share of the tokens from the end, at least one sample.
[[nodiscard]] DataSet open_data(const TrainConfig& config);

/// A hash of the ids of a batch's samples: differs between ranks that read different samples.
[[nodiscard]] std::uint64_t stream_hash(const TokenBatch& batch);

/// `hashes`: stream_hash of each data rank's batch. A warning that names ranks which read the same samples; empty when all differ.
[[nodiscard]] std::string equal_streams(std::span<const std::uint64_t> hashes);

}  // namespace wirewise
