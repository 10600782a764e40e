// Devices and links as a cluster file lists them one by one: what write_cluster() writes is what these read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/settings.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {

/// The class of this name, refused at the place of `key` where there is none.
[[nodiscard]] const LinkClass& class_setting(const Settings& at, std::string_view key, const std::string& name);

/// Names of hosts, one by one or in Slurm's brackets. Throws bad input with the place of a list that is none.
[[nodiscard]] std::vector<std::string> names_setting(Settings& at, std::string_view key);

/// name, kind, numa, pci, model, cpus, memory_gib, nvls, placed, level, rack.
[[nodiscard]] Device read_device(Settings& entry);

/// A link between a and b, each way: `class` and `units`, or kind, beta_GBps, alpha_us and the rest by themselves
/// (beta_Bps, alpha_s, spec_Bps: to the bit). `one_way`: from a to b only.
void add_link_setting(Wiring& wiring, int a, int b, Settings& entry);

}  // namespace wirewise
