#include "wirewise/train/loop_sample.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "wirewise/base/philox.h"

namespace wirewise {
namespace {

constexpr double kTemperature = 0.8;

/// The token at `u` of the softmax's cumulative distribution.
std::int32_t draw(const at::Tensor& logits, double u) {
  const at::Tensor row = logits.to(c10::kFloat).contiguous();
  const float* values = row.const_data_ptr<float>();
  const std::int64_t vocab = row.numel();
  const double top = *std::max_element(values, values + vocab);
  std::vector<double> weight(static_cast<std::size_t>(vocab));
  double total = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) total += weight[i] = std::exp((values[i] - top) / kTemperature);
  double left = u * total;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    left -= weight[i];
    if (left < 0) return static_cast<std::int32_t>(i);
  }
  return static_cast<std::int32_t>(vocab - 1);
}

/// Bytes of the UTF-8 character that starts at `text[i]`; 0 when none does.
std::size_t utf8_length(const std::string& text, std::size_t i) {
  const auto byte = static_cast<unsigned char>(text[i]);
  const std::size_t length = byte < 0x80 ? 1 : byte >= 0xc2 && byte < 0xe0 ? 2 : byte >= 0xe0 && byte < 0xf0 ? 3 : byte >= 0xf0 && byte < 0xf5 ? 4 : 0;
  if (length == 0 || i + length > text.size()) return 0;
  for (std::size_t k = 1; k < length; ++k) {
    if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::string sample_text(Executor& forward, const std::string& prompt, std::int64_t count, std::int64_t context, std::uint64_t seed) {
  std::vector<std::int32_t> tokens;
  for (const char c : prompt) tokens.push_back(static_cast<unsigned char>(c));
  const std::uint64_t stream = stream_of("sample");
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t window = std::min(tokens.size(), static_cast<std::size_t>(context));
    const std::span<const std::int32_t> last(tokens.data() + tokens.size() - window, window);
    const at::Tensor logits = forward.logits(token_micro_batch(1, static_cast<std::int64_t>(window), last, {}));
    tokens.push_back(draw(logits, uniform(seed, stream, static_cast<std::uint64_t>(i))));
  }
  std::string text;
  for (const std::int32_t token : tokens) text += static_cast<char>(token);
  return text;
}

std::string printable_text(const std::string& bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t length = utf8_length(bytes, i);
    const bool control = length == 1 && (static_cast<unsigned char>(bytes[i]) < 0x20 || bytes[i] == 0x7f) && bytes[i] != '\n' && bytes[i] != '\t';
    if (length == 0 || control) {
      text += '?';
      ++i;
    } else {
      text += bytes.substr(i, length);
      i += length;
    }
  }
  return text;
}

}  // namespace wirewise
