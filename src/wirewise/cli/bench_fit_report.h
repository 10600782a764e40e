// What `wirewise bench --fit` prints: a line a class of links, and what became of the file.
#pragma once

#include <string>
#include <vector>

#include "wirewise/base/units.h"
#include "wirewise/wiring/link_fit.h"
#include "wirewise/wiring/link_pairs.h"

namespace wirewise::bench {

/// A class of links as it was measured.
struct MeasuredLink {
  ClassPair pair;
  LinkFit fit;                 // of the slower direction
  Seconds alpha_of_link = 0;
  double other_direction = 0;  // its bandwidth over the slower one's
  bool saved = true;           // goes into the file
};

/// Classes as JSON lines or as a table on standard output.
void print_links(const std::vector<MeasuredLink>& links, bool json);

/// Which directions differ, what isn't kept and why (`left_out`), and how the file is now; on standard error beside JSON. `fresh`: the file
/// is a new one.
void print_notes(const std::vector<MeasuredLink>& links, const std::vector<std::string>& left_out, const std::string& file, bool json, bool fresh);

}  // namespace wirewise::bench
