// Small helpers on text that several layers need.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wirewise {

/// "a, b, c".
[[nodiscard]] std::string join(std::span<const std::string> parts, std::string_view separator);

/// The parts between separators; an empty text has none, "a,," has three.
[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);

/// A whole decimal number that fits in 64 bits, with nothing before or after it. Empty otherwise.
[[nodiscard]] std::optional<long long> parse_integer(std::string_view text) noexcept;

/// With A to Z as a to z; all else stays.
[[nodiscard]] std::string lower_case(std::string_view text);

/// The text with control characters and invalid UTF-8 bytes written as \xNN, so that a hostile name can't steer a terminal.
[[nodiscard]] std::string printable(std::string_view text);

/// Whether all of the text is well-formed UTF-8, as TOML and JSON need it.
[[nodiscard]] bool is_utf8(std::string_view text) noexcept;

}  // namespace wirewise
