// The two kinds of source: tokens in mapped files, and tokens drawn by counter.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/base/philox.h"
#include "wirewise/base/text.h"
#include "wirewise/train/token_formats.h"

namespace wirewise::tokens {
namespace {

class MappedSource final : public TokenSource {
 public:
  MappedSource(MappedTokens tokens, DataFormat format) : tokens_(std::move(tokens)), format_(format) {
    starts_.reserve(tokens_.runs.size());
    for (const auto& run : tokens_.runs) {
      starts_.push_back(size_);
      size_ += run.count;
    }
  }

  [[nodiscard]] std::uint64_t size() const noexcept override { return size_; }

  void read(std::uint64_t position, std::int32_t* out, std::size_t count) const override {
    for (std::size_t run = run_of(position); count > 0; ++run) {
      const std::uint64_t within = position - starts_[run];
      const auto here = static_cast<std::size_t>(std::min<std::uint64_t>(count, tokens_.runs[run].count - within));
      copy(tokens_.runs[run], within, position, out, here);
      position += here;
      out += here;
      count -= here;
    }
  }

  [[nodiscard]] std::string where(std::uint64_t position) const override {
    if (position >= size_) return fmt::format("token {}, past the end", position);
    const std::size_t index = run_of(position);
    const Run& run = tokens_.runs[index];
    return fmt::format("{}, byte {} (token {} of the data)", printable(tokens_.files[run.file].path().string()),
                       run.offset + (position - starts_[index]) * size_of(run.element), position);
  }

  [[nodiscard]] std::string describe() const override {
    return fmt::format("{}, {} file{}, {} tokens", name_of(format_), tokens_.files.size(), tokens_.files.size() == 1 ? "" : "s", size_);
  }

 private:
  [[nodiscard]] std::size_t run_of(std::uint64_t position) const {
    return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), position) - starts_.begin()) - 1;
  }

  template <class T>
  void convert(const std::byte* from, std::uint64_t position, std::int32_t* out, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, from + i * sizeof value, sizeof value);
      bool fits = true;
      if constexpr (std::is_floating_point_v<T>) {
        fits = value >= 0 && value < T(2147483648.0) && std::trunc(value) == value;
      } else if constexpr (sizeof(T) >= 4 || std::is_signed_v<T>) {
        fits = std::in_range<std::int32_t>(value) && std::cmp_greater_equal(value, 0);
      }
      if (!fits) {
        throw bad_input(fmt::format("{} in {} is no token.", value, where(position + i)), "Tokens are whole numbers from 0 to 2147483647.");
      }
      out[i] = static_cast<std::int32_t>(value);
    }
  }

  void copy(const Run& run, std::uint64_t within, std::uint64_t position, std::int32_t* out, std::size_t count) const {
    const std::byte* from = tokens_.files[run.file].bytes().data() + run.offset + within * size_of(run.element);
    switch (run.element) {
      case Element::kUInt8: return convert<std::uint8_t>(from, position, out, count);
      case Element::kInt8: return convert<std::int8_t>(from, position, out, count);
      case Element::kUInt16: return convert<std::uint16_t>(from, position, out, count);
      case Element::kInt16: return convert<std::int16_t>(from, position, out, count);
      case Element::kUInt32: return convert<std::uint32_t>(from, position, out, count);
      case Element::kInt32: return convert<std::int32_t>(from, position, out, count);
      case Element::kInt64: return convert<std::int64_t>(from, position, out, count);
      case Element::kFloat32: return convert<float>(from, position, out, count);
      case Element::kFloat64: return convert<double>(from, position, out, count);
    }
  }

  MappedTokens tokens_;
  DataFormat format_;
  std::vector<std::uint64_t> starts_;   // first position of each run
  std::uint64_t size_ = 0;
};

class RandomSource final : public TokenSource {
 public:
  RandomSource(std::int64_t vocab, std::uint64_t seed) : vocab_(static_cast<std::uint64_t>(vocab)), seed_(seed), stream_(stream_of("tokens")) {}

  [[nodiscard]] std::uint64_t size() const noexcept override { return std::uint64_t{1} << 40; }

  void read(std::uint64_t position, std::int32_t* out, std::size_t count) const override {
    for (std::size_t i = 0; i < count; ++i) {
      // The high bits scaled to the vocabulary: no modulo bias worth speaking of (below 2^-32).
      const std::uint64_t bits = random_bits(seed_, stream_, position + i) >> 32;
      out[i] = static_cast<std::int32_t>(bits * vocab_ >> 32);
    }
  }

  [[nodiscard]] std::string where(std::uint64_t position) const override { return fmt::format("random tokens, token {}", position); }
  [[nodiscard]] std::string describe() const override { return fmt::format("random tokens below {}", vocab_); }

 private:
  std::uint64_t vocab_, seed_, stream_;
};

}  // namespace

std::unique_ptr<TokenSource> make_mapped_source(MappedTokens tokens, DataFormat format) {
  return std::make_unique<MappedSource>(std::move(tokens), format);
}

std::unique_ptr<TokenSource> make_random_source(std::int64_t vocab, std::uint64_t seed) {
  if (vocab < 1 || vocab > std::numeric_limits<std::int32_t>::max()) {
    throw bad_input(fmt::format("no tokens are below model.vocab {}.", vocab), "Set model.vocab to at least 1.");
  }
  return std::make_unique<RandomSource>(vocab, seed);
}

}  // namespace wirewise::tokens
