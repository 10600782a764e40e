#include "wirewise/wiring/group_times_json.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "wirewise/wiring/group_time.h"

namespace wirewise {

std::string group_times_json(const Wiring& wiring, std::span<const Bytes> sizes) {
  std::vector<int> members = devices_of(wiring, DeviceKind::kGpu);
  if (members.empty()) members = devices_of(wiring, DeviceKind::kCpu);
  nlohmann::ordered_json times = nlohmann::ordered_json::array();
  for (const Bytes size : sizes) {
    if (members.size() < 2) break;
    const GroupTime one = group_time(wiring, members, GroupCollective::kAllReduce, size);
    times.push_back({{"devices", members.size()},
                     {"bytes", size},
                     {"seconds", one.time},
                     {"at_least", one.at_least},
                     {"bus_bandwidth_GBps", one.bus / 1e9},
                     {"algorithm", name_of(one.large.algorithm)},
                     {"from", one.from},
                     {"provenance", name_of(one.provenance)}});
  }
  return times.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace wirewise
