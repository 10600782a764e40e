// The small all_reduce across hosts: every rank holds its host's whole sum, exchanges it with its rails, and combines for itself.
#include "wirewise/comm/move_operation.h"
#include "wirewise/comm/spanning_reduce.h"

namespace wirewise::comm {

void SpanningReduce::reduce_whole() {
  const auto& here = owner().local_group();
  const auto& nodes = nodes_[static_cast<std::size_t>(host())];
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    Segment segment;
    segment.part = p;
    segment.length = parts_[p].count;
    segment.home = rank();
    segment.place = place();
    segment.partials = scratch(nodes.size() * segment.length * held(p));
    for (int h = 0; h < hosts().count(); ++h) {
      segment.inbox.push_back(h == host() ? nullptr : scratch(nodes_[static_cast<std::size_t>(h)].size() * segment.length * held(p)));
    }
    finished_.push_back(parts_[p].out);
    segments_.push_back(std::move(segment));
  }
  if (hosts().regular()) {
    std::vector<ReducePlanPart> plan;
    for (const Segment& segment : segments_) {
      ReducePlanPart inner = parts_[segment.part];
      inner.out = segment.partials;
      inner.kind = partial_kind(inner.kind);
      plan.push_back(inner);
    }
    local(here->issue(std::make_shared<ReduceOperation>(here, inner_print(Operation::kAllReduce, fingerprint), inner_options(), std::move(plan))));
    return;
  }
  MovePlan plan;
  plan.outgoing.resize(1);
  plan.incoming.resize(static_cast<std::size_t>(local_size()));
  raw_.resize(static_cast<std::size_t>(local_size()));
  std::vector<std::size_t> sizes;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const std::size_t bytes = parts_[p].count * element(p);
    sizes.push_back(bytes);
    plan.exposed.push_back({parts_[p].in, bytes});
    plan.outgoing[0].push_back({parts_[p].in, bytes});
    for (std::size_t j = 0; j < raw_.size(); ++j) {
      std::byte* const memory = scratch(bytes);
      raw_[j].push_back(memory);
      plan.incoming[j].push_back({memory, bytes});
    }
  }
  plan.view = [sizes](int, std::span<const std::byte* const> buffers, std::span<const std::uint64_t>) {
    std::vector<ConstSpan> spans;
    for (std::size_t i = 0; i < sizes.size(); ++i) spans.push_back({buffers[i], sizes[i]});
    return spans;
  };
  local(here->issue(
      std::make_shared<MoveOperation>(here, inner_print(Operation::kAllGather, fingerprint), inner_options(), std::move(plan))));
}

void SpanningReduce::exchange_whole() {
  if (!hosts().regular()) reduce_raw();
  std::vector<int> sources;
  for (int h = 0; h < hosts().count(); ++h) {
    if (h != host()) sources.push_back(hosts().agent(h, place()));
  }
  greet(sources);
  std::vector<std::size_t> numbers;
  for (const Segment& segment : segments_) {
    const std::size_t bytes = segment.length * held(segment.part);
    for (const int r : owner().rails()) {
      if (hosts().agent(host(), hosts().place_of(r)) != rank()) continue;
      send(r, static_cast<std::uint32_t>(segment.part), segment.partials, nodes_[static_cast<std::size_t>(host())].size() * bytes);
    }
    for (const int source : sources) {
      const auto h = static_cast<std::size_t>(hosts().host_of(source));
      numbers.push_back(recv(source, static_cast<std::uint32_t>(segment.part), segment.inbox[h], nodes_[h].size() * bytes));
    }
  }
  until([this, numbers] {
    for (const std::size_t number : numbers) {
      if (!received(number)) return false;
    }
    for (const Segment& segment : segments_) combine(segment, 0, segment.length);
    return true;
  });
}

}  // namespace wirewise::comm
