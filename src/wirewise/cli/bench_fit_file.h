// The file of `wirewise bench --fit`: a description of a cluster that a person wrote or that there isn't yet, into which measured figures
// go so that nothing else in it is lost.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "wirewise/wiring/link_pairs.h"
#include "wirewise/wiring/measured_file.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise::bench {

inline constexpr const char* kFitSource = "wirewise bench --fit";

struct Description {
  std::string text;
  Wiring wiring;
};
/// The description that there is; none where there is no such file yet. Throws bad input for what is no description.
[[nodiscard]] std::optional<Description> read_description(const std::string& file);

/// Throws bad input where the file can't take measured figures: it is no description, or its folder isn't there or not writable.
void check_fit_file(const std::string& file);

/// Puts the figures into the file: into what it holds by then, or into a new description of `spots` where there is none. True where it is
/// a new one. Throws where they can't be put in, once the figures stand on standard error or in the error; the file is then as it was.
bool keep_figures(const std::string& file, std::span<const MeasuredClass> figures, const std::vector<RankSpot>& spots);

}  // namespace wirewise::bench
