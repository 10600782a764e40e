// Samples in shuffled order without a table of the order: the permutation of an epoch is a keyed bijection, so any position is computed
// alone and a resumed run goes on at it.
#include <fmt/format.h>

#include <bit>

#include "wirewise/base/error.h"
#include "wirewise/base/philox.h"
#include "wirewise/train/data.h"

namespace wirewise {
namespace {

/// A bijection of [0, count): a Feistel network over the smallest even number of bits that holds count, walked along its cycle until it
/// falls inside (at most 4 values outside for each inside, so a few steps).
std::uint64_t permute(std::uint64_t index, std::uint64_t count, std::uint64_t seed, std::uint64_t epoch) {
  constexpr int kRounds = 6;
  if (count <= 1) return 0;
  const int half = (std::bit_width(count - 1) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  const std::uint64_t stream = stream_of("samples");
  do {
    std::uint64_t left = index >> half, right = index & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = random_bits(seed, stream ^ (epoch * kRounds + round), right) & mask;
      const std::uint64_t next = left ^ mixed;
      left = right;
      right = next;
    }
    index = left << half | right;
  } while (index >= count);
  return index;
}

}  // namespace

Sampler::Sampler(std::shared_ptr<const TokenSource> source, std::uint64_t begin, std::uint64_t end, std::int64_t sequence,
                 std::int64_t vocab, std::uint64_t seed, bool shuffle)
    : source_(std::move(source)), begin_(begin), windows_(0), sequence_(sequence), vocab_(vocab), seed_(seed), shuffle_(shuffle) {
  if (sequence < 1) throw bad_input(fmt::format("a sequence of {} tokens can't be read.", sequence), "Set train.sequence to at least 1.");
  if (begin > end || end > source_->size()) {
    throw Error(ErrorKind::kFailed, fmt::format("tokens {} to {} lie outside the {} there are.", begin, end, source_->size()));
  }
  const std::uint64_t tokens = end - begin;
  if (tokens > 0) windows_ = (tokens - 1) / static_cast<std::uint64_t>(sequence);
  if (windows_ == 0) {
    throw bad_input(fmt::format("the data ({}) gives {} tokens here, fewer than one sample of train.sequence {} + 1.", source_->describe(),
                                tokens, sequence),
                    tokens > 1 ? fmt::format("Set train.sequence to at most {}, or give more data.", tokens - 1) : "Give more data.");
  }
}

std::uint64_t Sampler::position_of(std::uint64_t sample) const noexcept {
  const std::uint64_t epoch = sample / windows_, index = sample % windows_;
  const std::uint64_t window = shuffle_ ? permute(index, windows_, seed_, epoch) : index;
  return begin_ + window * static_cast<std::uint64_t>(sequence_);
}

TokenBatch Sampler::batch(std::uint64_t first_sample, std::int64_t micro_batch) const {
  TokenBatch out;
  out.samples = micro_batch;
  out.sequence = sequence_;
  const auto width = static_cast<std::size_t>(sequence_) + 1;
  out.tokens.resize(static_cast<std::size_t>(micro_batch) * width);
  for (std::int64_t row = 0; row < micro_batch; ++row) {
    const std::uint64_t sample = first_sample + static_cast<std::uint64_t>(row);
    const std::uint64_t position = position_of(sample);
    std::int32_t* tokens = out.tokens.data() + static_cast<std::size_t>(row) * width;
    source_->read(position, tokens, width);
    for (std::size_t i = 0; i < width; ++i) {
      if (tokens[i] < vocab_) continue;
      throw bad_input(fmt::format("token {} in {} is not below model.vocab {}.", tokens[i], source_->where(position + i), vocab_),
                      fmt::format("Set model.vocab to at least {}, or data.format to what the file is.", tokens[i] + std::int64_t{1}));
    }
    out.sample_ids.push_back(sample);
  }
  return out;
}

}  // namespace wirewise
