// Sockets, NUMA nodes and CPUs, as hwloc finds them.
#include <hwloc.h>

#include <cstdlib>
#include <memory>

#include "wirewise/wiring/hwloc_machine.h"

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

}  // namespace

Processors read_processors(const std::filesystem::path& root) {
  const OtherRoot other(root);
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return {};
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> owner(topology, &hwloc_topology_destroy);
  return hwloc_topology_load(topology) == 0 ? processors_of(topology) : Processors{};
}

}  // namespace wirewise
