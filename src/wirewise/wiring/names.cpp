// Names of the wiring's enumerations, as reports print them.
#include "wirewise/wiring/wiring.h"

namespace wirewise {

std::string_view name_of(LinkKind kind) noexcept {
  switch (kind) {
    case LinkKind::kSharedMemory:
      return "shared memory";
    case LinkKind::kPcie:
      return "pcie";
    case LinkKind::kNvlink:
      return "nvlink";
    case LinkKind::kEthernet:
      return "ethernet";
    case LinkKind::kInfiniband:
      return "infiniband";
  }
  return "unknown";
}

std::string_view name_of(Provenance provenance) noexcept {
  switch (provenance) {
    case Provenance::kSpec:
      return "spec";
    case Provenance::kDriver:
      return "driver";
    case Provenance::kMeasured:
      return "measured";
    case Provenance::kAssumed:
      return "assumed";
  }
  return "unknown";
}

}  // namespace wirewise
