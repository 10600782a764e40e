// What `wirewise bench` prints: nccl-tests' table and footer, JSON lines, and warnings about curves that no machine should show.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "wirewise/cli/bench_case.h"

namespace wirewise::bench {

[[nodiscard]] std::string table_header();
/// One row; a form that the operation does not have stands as N/A.
[[nodiscard]] std::string table_row(const std::optional<Result>& out_of_place, const std::optional<Result>& in_place);
/// The contract's keys.
[[nodiscard]] std::string json_line(const Result& result);
[[nodiscard]] std::string footer(std::span<const Result> results);

/// For each operation, type and form whose bus bandwidth falls by more than a third as sizes grow past its peak: a sentence that names the
/// sizes. `cache` is the last-level cache's size where the buffers stay the same and may fit it, else 0: leaving it explains a fall.
[[nodiscard]] std::vector<std::string> monotone_warnings(std::span<const Result> results, int ranks, Bytes cache);

}  // namespace wirewise::bench
