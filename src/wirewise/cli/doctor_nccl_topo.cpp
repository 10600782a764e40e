// What NCCL's log says of a machine beside what another source says of it: where they differ, one of them is wrong.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "wirewise/base/text.h"
#include "wirewise/cli/doctor_nccl.h"
#include "wirewise/wiring/relation.h"

namespace wirewise {
namespace {

/// SOC is what old versions call SYS.
Connection connection_of(const std::string& word) {
  static const std::map<std::string, Connection> known{{"PIX", Connection::kPix}, {"PXB", Connection::kPxb}, {"PHB", Connection::kPhb}, {"NODE", Connection::kNode}, {"SYS", Connection::kSys}, {"SOC", Connection::kSys}};
  const auto found = known.find(word);
  return found == known.end() ? Connection::kUnknown : found->second;
}

std::string name_of_way(Connection way) {
  Relation relation;
  relation.pcie = way;
  return name_of(relation);
}

}  // namespace

std::vector<Finding> compare_nccl(const NcclLog& log, const Wiring& wiring, const std::string& source) {
  const std::vector<int> gpus = devices_of(wiring, DeviceKind::kGpu, 0);
  const std::vector<int> nics = devices_of(wiring, DeviceKind::kNic, 0);
  const Relations relations(wiring);
  std::vector<std::string> differ;
  int compared = 0;
  for (const NcclNicDistance& said : log.nic_distances) {
    Connection in_log = Connection::kUnknown, there = Connection::kUnknown;
    for (const std::string& way : said.ways) in_log = std::min(in_log, connection_of(way));
    const auto gpu = std::find_if(gpus.begin(), gpus.end(), [&](int device) { return wiring.devices[static_cast<std::size_t>(device)].name == "GPU" + std::to_string(said.device); });
    if (gpu == gpus.end() || in_log == Connection::kUnknown) continue;
    for (const int nic : nics) there = std::min(there, relations.between(*gpu, nic).pcie);
    if (there == Connection::kUnknown) continue;
    ++compared;
    if (in_log != there) differ.push_back(fmt::format("GPU{} on {}: {} in the log, {} in {}", said.device, said.host, name_of_way(in_log), name_of_way(there), source));
  }
  if (compared == 0) {
    return {{Severity::kInfo, "The log and " + source + " say nothing about the same GPUs and NICs.",
             "Only old versions of NCCL print how far a NIC is (\"NIC distance\"); newer ones write it to NCCL_TOPO_DUMP_FILE, which topo --from reads.", ""}};
  }
  if (differ.empty()) return {{Severity::kInfo, "The log and " + source + " agree on how far the NICs are.", fmt::format("{} GPUs compared.", compared), ""}};
  constexpr std::size_t kMostNamed = 16;
  const std::size_t more = differ.size() - std::min(differ.size(), kMostNamed);
  differ.resize(differ.size() - more);
  return {{Severity::kWarning, "NCCL and " + source + " disagree on how far NICs are from GPUs.",
           fmt::format("{}{}. One of them sees virtual functions or bridges that aren't the machine's.", join(differ, "; "), more > 0 ? fmt::format(" and {} more", more) : ""),
           "Compare with lspci -tv on the host itself. Where NCCL is wrong, give it the machine's own topology: wirewise topo --from FILE --to nccl-xml, and NCCL_TOPO_FILE."}};
}

}  // namespace wirewise
