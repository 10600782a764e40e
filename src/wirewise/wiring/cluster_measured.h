// [[measured]] of a cluster.toml: figures that someone measured take the place of a class's.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/settings.h"

namespace wirewise {

/// On all links of the class that `entry` names, or on those of some hosts, which have to be among `hosts_known`. How it was measured becomes
/// facts. Throws bad input with its place.
void read_measured(Settings& entry, const std::map<std::string, std::size_t>& hosts_known, Reading& reading);

}  // namespace wirewise
