// Sockets, NUMA nodes and CPUs, as hwloc finds them.
#include <hwloc.h>

#include <cstdlib>
#include <memory>

#include "wirewise/wiring/machine.h"

namespace wirewise {
namespace {

/// hwloc looks at another root when this variable names it, and in no other way. Only tests do so, in one thread.
class OtherRoot {
 public:
  explicit OtherRoot(const std::filesystem::path& root) : set_(root != "/") {
    if (set_) ::setenv("HWLOC_FSROOT", root.c_str(), 1);
  }
  ~OtherRoot() {
    if (set_) ::unsetenv("HWLOC_FSROOT");
  }
  OtherRoot(const OtherRoot&) = delete;
  OtherRoot& operator=(const OtherRoot&) = delete;

 private:
  bool set_;
};

std::string list_of(hwloc_const_bitmap_t set) {
  char* text = nullptr;
  if (set == nullptr || hwloc_bitmap_list_asprintf(&text, set) < 0) return {};
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  return text;
}

}  // namespace

Processors read_processors(const std::filesystem::path& root) {
  const OtherRoot other(root);
  Processors found;
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return found;
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> owner(topology, &hwloc_topology_destroy);
  if (hwloc_topology_load(topology) != 0) return found;
  found.cpus = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
  for (hwloc_obj_t socket = nullptr; (socket = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, socket)) != nullptr;) {
    const char* const model = hwloc_obj_get_info_by_name(socket, "CPUModel");
    if (found.sockets.empty() && model != nullptr) found.model = model;
    found.sockets.push_back(static_cast<int>(socket->logical_index));
  }
  for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != nullptr;) {
    NumaNode node;
    node.number = object->os_index == HWLOC_UNKNOWN_INDEX ? 0 : static_cast<int>(object->os_index);
    node.cpus = list_of(object->cpuset);
    node.memory = object->attr->numanode.local_memory;
    const hwloc_obj_t socket = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, object);
    if (socket != nullptr) node.socket = static_cast<int>(socket->logical_index);
    found.nodes.push_back(std::move(node));
  }
  return found;
}

}  // namespace wirewise
