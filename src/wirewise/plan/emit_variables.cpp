#include "wirewise/plan/emit_variables.h"

#include <algorithm>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"

namespace wirewise {
namespace {

/// NCCL and Wirewise separate names by commas.
std::string listed(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name.find_first_of(",:^= \t\n") != std::string::npos) {
      throw bad_input("the NIC " + printable(name) + " can't stand in a list of NICs.", "Rename it, or leave it out of the description.");
    }
  }
  return join(names, ",");
}

/// "NIC3" is a description's or nvidia-smi's number for an adapter: no library finds one by it.
bool is_number(const std::string& name) { return name.starts_with("NIC") && name.find_first_not_of("0123456789", 3) == std::string::npos; }

void add_nics(NamedValues& values, std::vector<std::string> rdma, std::vector<std::string> interfaces) {
  std::erase_if(rdma, is_number);
  std::erase_if(interfaces, is_number);
  if (!rdma.empty()) values.emplace_back("NCCL_IB_HCA", "=" + listed(rdma));  // "=": these very names
  if (interfaces.empty()) return;
  values.emplace_back("NCCL_SOCKET_IFNAME", "=" + listed(interfaces));
  values.emplace_back("WIREWISE_NET", listed({interfaces.front()}));
}

}  // namespace

NamedValues variables_of_rank(const RankPlace& place) {
  NamedValues values;
  if (place.gpu >= 0) {
    values.emplace_back("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    values.emplace_back("CUDA_VISIBLE_DEVICES", std::to_string(place.gpu));
  }
  add_nics(values, place.rdma_nics, place.interfaces);
  return values;
}

NamedValues variables_of_host(const std::vector<const RankPlace*>& ranks) {
  NamedValues values;
  std::vector<std::string> gpus, rdma, interfaces;
  const auto add = [](std::vector<std::string>& to, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (std::find(to.begin(), to.end(), name) == to.end()) to.push_back(name);
    }
  };
  for (const RankPlace* rank : ranks) {
    if (rank->gpu >= 0) gpus.push_back(std::to_string(rank->gpu));
    add(rdma, rank->rdma_nics);
    add(interfaces, rank->interfaces);
  }
  if (!gpus.empty()) {
    values.emplace_back("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    values.emplace_back("CUDA_VISIBLE_DEVICES", join(gpus, ","));
  }
  add_nics(values, rdma, interfaces);
  return values;
}

}  // namespace wirewise
