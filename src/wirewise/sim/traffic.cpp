#include "wirewise/sim/traffic.h"

#include <algorithm>
#include <map>

#include "wirewise/sim/costs.h"

namespace wirewise {
namespace {

/// Of the first buffer among `ids` in one of two roles; `otherwise` where there is none.
DType dtype_of(const Program& program, const std::vector<BufferId>& ids, BufferRole role, DType otherwise) {
  for (const BufferId id : ids) {
    const BufferInfo& buffer = program.buffers.at(static_cast<std::size_t>(id));
    if (buffer.role == role) return buffer.dtype;
  }
  return otherwise;
}

}  // namespace

Traffic traffic_of(const Program& program, const Op& op, std::span<const int> host_of_ranks) {
  std::map<int, int> members;
  for (const int host : host_of_ranks) ++members[host];
  int most = 1;
  for (const auto& [host, count] : members) most = std::max(most, count);
  Traffic traffic;
  traffic.hosts = static_cast<int>(members.size());
  if (op.kind == OpKind::kClip || op.kind == OpKind::kBarrier) return traffic;  // a few numbers
  const double bytes = static_cast<double>(op.bytes);
  const auto share = [](int n) { return (n - 1.0) / n; };
  const bool twice = op.kind == OpKind::kAllReduce || op.kind == OpKind::kTokenCount || op.kind == OpKind::kReport;
  traffic.inside = (twice ? 2 : 1) * share(most) * bytes;
  const double across = share(traffic.hosts) * bytes;
  if (op.kind != OpKind::kAllReduce && op.kind != OpKind::kReduceScatter) {
    traffic.between = (twice ? 2 : 1) * across;
    return traffic;
  }
  const DType in = dtype_of(program, op.reads, BufferRole::kGrad, DType::kFloat32);
  const DType out = dtype_of(program, op.writes, BufferRole::kReducedGrad, in);
  const double elements = across / static_cast<double>(size_of(in));
  traffic.between = elements * static_cast<double>(std::max(size_of(in), size_of(DType::kFloat32)));
  if (twice) traffic.between += elements * static_cast<double>(size_of(out));
  return traffic;
}

double sent_between_hosts(const Schedule& schedule, const std::vector<int>& host_of) {
  const Mesh mesh(schedule.strategy, schedule.ranks);
  double most = 0;
  for (const Program& program : schedule.programs) {
    double sum = 0;
    for (const Op& op : program.ops) {
      if (!is_communication(op.kind)) continue;
      std::vector<int> hosts;
      for (const int rank : mesh.group_of(program.ranks.front(), op.group)) hosts.push_back(host_of.at(static_cast<std::size_t>(rank)));
      sum += traffic_of(program, op, hosts).between;
    }
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace wirewise
