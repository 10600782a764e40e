// Two graphs as one: every device and link equal, figures to the bit; or only what a person asks: how GPUs and NICs are joined.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/relation.h"

namespace wirewise::same {

inline auto parts(const Device& d) { return std::tie(d.name, d.kind, d.host, d.numa, d.level, d.placed, d.pci, d.model, d.cpus, d.rack, d.memory, d.nvls); }
inline auto parts(const Link& l) { return std::tie(l.from, l.to, l.kind, l.alpha, l.beta, l.provenance, l.source, l.lanes, l.generation, l.spec); }

inline void expect_equal(const Wiring& before, const Wiring& after, const std::string& what) {
  ASSERT_EQ(before.devices.size(), after.devices.size()) << what;
  ASSERT_EQ(before.links.size(), after.links.size()) << what;
  for (std::size_t i = 0; i < before.devices.size(); ++i) ASSERT_EQ(parts(before.devices[i]), parts(after.devices[i])) << what << ": device " << i;
  for (std::size_t i = 0; i < before.links.size(); ++i) ASSERT_EQ(parts(before.links[i]), parts(after.links[i])) << what << ": link " << i;
  EXPECT_EQ(before.rank_device, after.rank_device) << what;
}

inline void expect_equal_facts(const Reading& before, const Reading& after, const std::string& what) {
  ASSERT_EQ(before.facts.size(), after.facts.size()) << what;
  for (std::size_t i = 0; i < before.facts.size(); ++i) {
    const Fact &a = before.facts[i], &b = after.facts[i];
    EXPECT_EQ(std::tie(a.subject, a.name, a.value), std::tie(b.subject, b.name, b.value)) << what;
  }
  EXPECT_EQ(before.partial, after.partial) << what;
}

/// NUMA node and relation to every other, of each GPU and NIC of host `host`, by number: GPUs first, then NICs.
inline std::map<std::string, std::string> relations(const Wiring& wiring, int host) {
  std::map<std::string, std::string> all;
  std::vector<std::pair<std::string, int>> ends;
  for (const auto& [kind, prefix] : {std::pair{DeviceKind::kGpu, "GPU"}, std::pair{DeviceKind::kNic, "NIC"}}) {
    int number = 0;
    for (int device : devices_of(wiring, kind, host)) ends.emplace_back(prefix + std::to_string(number++), device);
  }
  const Relations relations(wiring);
  for (const auto& [name, device] : ends) {
    all[name] = "numa " + std::to_string(wiring.devices[static_cast<std::size_t>(device)].numa);
    for (const auto& [other, there] : ends) {
      const Relation relation = relations.between(device, there);
      all[name + "-" + other] = name_of(relation) + "/" + name_of(Relation{relation.pcie});
    }
  }
  return all;
}

}  // namespace wirewise::same
