// The tables that nccl-tests, rccl-tests and all_reduce_bench print, as measurements.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wirewise/base/units.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {

struct Measurement {
  std::string op;            // "all_reduce"; empty where the table doesn't say
  int ranks = 0;             // 0: not stated
  Bytes bytes = 0;
  double time_us = 0;        // 0: not stated
  BytesPerSecond algbw = 0, busbw = 0;
  bool in_place = false;
  long long wrong = -1;      // elements that were wrong; -1: not checked
  std::string label;         // of a table of several columns: "4 nodes"
  int line = 0;
};

struct NcclTestsTable {
  std::vector<Measurement> rows;  // in the file's order, out of place before in place
  Reading reading;                // facts of each row, and notes: a curve that falls with size, wrong results, rows cut off
};

/// Reads rows wherever they stand: behind labels of Slurm ("0: ", "[0]"), split over lines, without heads; old columns and new ones. What no
/// head states is found from the figures: the operation from busbw / algbw where the ranks are known.
[[nodiscard]] NcclTestsTable read_nccl_tests_table(std::string_view text, std::string_view file);

}  // namespace wirewise
