#include "wirewise/wiring/hwloc_machine.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>

#include "wirewise/base/text.h"

namespace wirewise {
namespace {

std::string list_of(hwloc_const_bitmap_t set) {
  char* text = nullptr;
  if (set == nullptr || hwloc_bitmap_list_asprintf(&text, set) < 0) return {};
  const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
  return text;
}

std::string info_of(hwloc_obj_t object, const char* name) {
  const char* const value = object == nullptr ? nullptr : hwloc_obj_get_info_by_name(object, name);
  return value == nullptr ? std::string() : value;
}

std::string address_of(const hwloc_obj_attr_u::hwloc_pcidev_attr_s& device) { return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", device.domain, device.bus, device.dev, device.func); }

bool is_bridge_to_pci(hwloc_obj_t object) { return object->type == HWLOC_OBJ_BRIDGE && object->attr->bridge.downstream_type == HWLOC_OBJ_BRIDGE_PCI; }

class Gathering {
 public:
  explicit Gathering(hwloc_topology* topology) : topology_(topology) {}

  Machine machine() {
    const hwloc_obj_t root = hwloc_get_root_obj(topology_);
    machine_.host = info_of(root, "HostName");
    machine_.kernel = info_of(root, "OSRelease");
    machine_.processors = processors_of(topology_);
    for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_bridge(topology_, object)) != nullptr;) {
      if (object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI) add(object, object->attr->bridge.upstream.pci);
    }
    for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_pcidev(topology_, object)) != nullptr;) add(object, object->attr->pcidev);
    std::sort(machine_.pci.begin(), machine_.pci.end(), [](const PciDevice& a, const PciDevice& b) { return a.address < b.address; });
    for (hwloc_obj_t object = nullptr; (object = hwloc_get_next_osdev(topology_, object)) != nullptr;) add_named(object);
    return std::move(machine_);
  }

 private:
  void add(hwloc_obj_t object, const hwloc_obj_attr_u::hwloc_pcidev_attr_s& attributes) {
    PciDevice device;
    device.address = address_of(attributes);
    if (!seen_.insert(device.address).second) return;
    device.type = static_cast<unsigned>(attributes.class_id) << 8U;
    device.vendor = attributes.vendor_id;
    device.model = attributes.device_id;
    device.gbyte = attributes.linkspeed > 0 && attributes.linkspeed < 1e4F ? static_cast<double>(attributes.linkspeed) : 0;
    hwloc_obj_t above = object->parent;
    for (; above != nullptr && hwloc_obj_type_is_io(above->type); above = above->parent) {
      if (!is_bridge_to_pci(above)) continue;
      const auto& bridge = above->attr->bridge;
      if (bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI) device.above.insert(device.above.begin(), address_of(bridge.upstream.pci));
      else device.host_bridge = fmt::format("pci{:04x}:{:02x}", bridge.downstream.pci.domain, bridge.downstream.pci.secondary_bus);
    }
    // Files may leave bridges out: then the first bus that they name is a bridge's.
    if (device.host_bridge.empty()) device.host_bridge = "pci" + (device.above.empty() ? device.address : device.above.front()).substr(0, device.address.rfind(':'));
    if (above != nullptr) {
      device.cpus = list_of(above->cpuset);
      if (above->nodeset != nullptr && hwloc_bitmap_weight(above->nodeset) == 1) device.numa = hwloc_bitmap_first(above->nodeset);
    }
    machine_.pci.push_back(std::move(device));
  }

  /// Interfaces, RDMA devices and GPUs as the system and its libraries name them.
  void add_named(hwloc_obj_t object) {
    const std::string name = object->name == nullptr ? std::string() : object->name;
    const hwloc_obj_t parent = object->parent;
    const std::string pci = parent != nullptr && parent->type == HWLOC_OBJ_PCI_DEVICE ? address_of(parent->attr->pcidev) : std::string();
    if (name.empty()) return;
    switch (object->attr->osdev.type) {
      case HWLOC_OBJ_OSDEV_NETWORK: machine_.net.push_back({name, pci, "", -1, name.starts_with("wl")}); break;
      case HWLOC_OBJ_OSDEV_OPENFABRICS: add_rdma(object, name, pci); break;
      case HWLOC_OBJ_OSDEV_GPU:
      case HWLOC_OBJ_OSDEV_COPROC:
        if (std::string model = info_of(object, "GPUModel"); !model.empty() && !pci.empty()) machine_.gpu_models.emplace_back(pci, std::move(model));
        break;
      default: break;
    }
  }

  void add_rdma(hwloc_obj_t object, const std::string& name, const std::string& pci) {
    constexpr const char* kStates[] = {"", "DOWN", "INIT", "ARMED", "ACTIVE"};
    for (int port = 1; port <= 8; ++port) {
      const std::string state = info_of(object, ("Port" + std::to_string(port) + "State").c_str());
      if (state.empty() && port > 1) continue;
      const auto number = parse_integer(state);
      RdmaPort one;
      one.device = name;
      one.port = port;
      one.pci = pci;
      one.state = number && *number >= 1 && *number <= 4 ? kStates[*number] : state;
      machine_.rdma.push_back(std::move(one));
    }
  }

  hwloc_topology* topology_;
  Machine machine_;
  std::set<std::string> seen_;
};

}  // namespace

Processors processors_of(hwloc_topology* topology) {
  Processors found;
  found.cpus = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
  for (hwloc_obj_t socket = nullptr; (socket = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, socket)) != nullptr;) {
    if (found.sockets.empty()) found.model = info_of(socket, "CPUModel");
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

Machine machine_of(hwloc_topology* topology) { return Gathering(topology).machine(); }

}  // namespace wirewise
