// The nearest known word to one that a person mistyped: every refusal of an unknown key, name or option says what was probably
// meant.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace wirewise {

/// Edits between two words: insertions, deletions, substitutions and swaps of neighbours, one each (optimal string alignment).
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The known word with the fewest edits from `word` (the first of equals), case aside. Empty when even that one needs more edits
/// than half of the longer word: no guess is better than a wild one.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word, std::span<const std::string> known);

/// The remedy of an unknown word: "Did you mean width? " followed by "Known: layers, width."
[[nodiscard]] std::string suggest(std::string_view word, std::span<const std::string> known);

}  // namespace wirewise
