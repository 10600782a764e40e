// A document of hwloc's that hwloc can't stumble over, made of one that anybody may have written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace pugi {
class xml_node;
}

namespace wirewise {

/// Machine, sockets, groups that have memory of their own, NUMA nodes, CPUs, bridges, PCI devices and what systems call them; caches and cores
/// are left out. Sets of CPUs and of nodes are made anew of where these stand, so that they can't contradict each other.
/// `topology`  the element of that name, of hwloc 1 or 2.
/// `refuse`    is called for what no machine has, with the element and what is wrong; throws.
[[nodiscard]] std::string sound_hwloc_document(const pugi::xml_node& topology, const std::function<void(const pugi::xml_node&, const std::string&)>& refuse);

}  // namespace wirewise
