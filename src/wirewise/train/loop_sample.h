// Text from a trained byte-level model.
#pragma once

#include <string>

#include "wirewise/torch/executor.h"
#include "wirewise/train/config.h"

namespace wirewise {

/// Draws `count` bytes after `prompt` at temperature 0.8, one forward pass a byte over the last `context` bytes. Every rank draws the same.
/// Collective.
[[nodiscard]] std::string sample_text(Executor& forward, const std::string& prompt, std::int64_t count, std::int64_t context, std::uint64_t seed);

/// What a terminal can show of bytes that may be anything: invalid UTF-8 and control characters become '?', newlines and tabs stay.
[[nodiscard]] std::string printable_text(const std::string& bytes);

}  // namespace wirewise
