// Slurm's bracketed lists of names, "n[001-003,7],login", read and written.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wirewise {

inline constexpr std::size_t kMostNodes = std::size_t{1} << 20;  // names that one list may stand for

/// What a list can't be read for, and where.
struct NodeListFault {
  std::size_t offset = 0;  // in bytes from the list's begin
  std::string what;        // "the bracket is never closed"
};

/// Appends the names of a list in its order: "n[001-003,7],login" is n001 n002 n003 n7 login, "r[1-2]n[08-10]x" six names. A range's
/// numbers have at least as many digits as its first. Refuses, before it takes memory, what stands for more than `most` names.
[[nodiscard]] std::optional<NodeListFault> expand_node_list(std::string_view list, std::vector<std::string>& names, std::size_t most = kMostNodes);

/// The same; an empty list has no names. Throws bad input that names the column.
[[nodiscard]] std::vector<std::string> expand_node_list(std::string_view list);

/// The shortest list that this way of writing gives: neighbours that differ in their last number only share a bracket, and those that count
/// up a range. Names keep their order: expand_node_list() gives them back. Throws bad input for names that no list can hold (empty ones,
/// brackets, commas, blanks).
[[nodiscard]] std::string compress_node_list(std::span<const std::string> names);

}  // namespace wirewise
