#include "wirewise/cli/bench_fit_spots.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "wirewise/base/cgroup.h"
#include "wirewise/cli/rank_binding.h"
#include "wirewise/comm/cards.h"
#include "wirewise/comm/network_interface.h"
#include "wirewise/wiring/discover.h"

namespace wirewise::bench {
namespace {

/// What a rank tells all others of its place; plain bytes.
struct Introduction {
  char host_id[192] = {}, host_name[72] = {}, sockets[48] = {}, port[48] = {};
  std::int32_t numa = -1, network = 0, kind = 0, rdma = 0;
};

void put(char* to, std::size_t room, std::string_view text) { std::memcpy(to, text.data(), std::min(text.size(), room - 1)); }

/// Kind and class of what this rank's messages to other hosts leave by.
void describe_port(Introduction& own) {
  const comm::NetworkInterface chosen = comm::find_interface();
  double gbit = 0;
  for (const comm::HostInterface& interface : comm::host_interfaces()) {
    if (interface.name == chosen.name) gbit = static_cast<double>(interface.speed) / 1000;
  }
  LinkKind kind = LinkKind::kEthernet;
  for (const RdmaPort& port : read_rdma("/")) {
    if (std::find(chosen.rdma.begin(), chosen.rdma.end(), port.device + ":" + std::to_string(port.port)) == chosen.rdma.end()) continue;
    if (port.link_layer == "InfiniBand") kind = LinkKind::kInfiniband;
    if (port.gbit > 0) gbit = port.gbit;
  }
  own.network = 1;
  own.kind = static_cast<std::int32_t>(kind);
  own.rdma = chosen.rdma.empty() ? 0 : 1;
  put(own.port, sizeof own.port, port_class(kind, gbit, own.rdma != 0));
}

Introduction introduce_myself(bool one_host) {
  Introduction own;
  put(own.host_id, sizeof own.host_id, comm::host_id());
  put(own.host_name, sizeof own.host_name, comm::host_name());
  const HostCpus cpus = host_cpus("/", allowed_cpus(), nullptr);
  if (cpus.nodes.size() == 1) own.numa = cpus.nodes.front().number;
  put(own.sockets, sizeof own.sockets, sockets_class(read_processors("/").model));
  if (!one_host) describe_port(own);
  return own;
}

RankSpot spot_of(const Introduction& one, int host) {
  RankSpot spot;
  spot.host = host;
  spot.host_name = one.host_name;
  spot.numa = one.numa;
  spot.sockets = one.sockets;
  spot.network = one.network != 0;
  spot.port = one.port;
  spot.port_kind = static_cast<LinkKind>(one.kind);
  spot.rdma = one.rdma != 0;
  return spot;
}

}  // namespace

std::vector<RankSpot> introduce_ranks(Communicator& communicator) {
  const Introduction own = introduce_myself(communicator.one_host());
  std::vector<Introduction> all(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather({&own, DType::kUInt8}, {all.data(), DType::kUInt8}, sizeof own).wait();
  std::vector<RankSpot> spots;
  std::map<std::string, int> hosts;  // by id, numbered as they come
  for (const Introduction& one : all) {
    spots.push_back(spot_of(one, hosts.try_emplace(one.host_id, static_cast<int>(hosts.size())).first->second));
  }
  return spots;
}

}  // namespace wirewise::bench
