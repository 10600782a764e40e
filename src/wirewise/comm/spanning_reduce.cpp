#include "wirewise/comm/spanning_reduce.h"

#include <algorithm>

#include "wirewise/base/units.h"
#include "wirewise/comm/move_operation.h"
#include "wirewise/comm/spanning_chunks.h"
#include "wirewise/comm/spanning_share.h"

namespace wirewise::comm {
namespace {

constexpr std::size_t kAlignment = 64;

std::uint32_t partial_step(std::size_t part) { return static_cast<std::uint32_t>(2 * part); }
std::uint32_t finished_step(std::size_t part) { return static_cast<std::uint32_t>(2 * part + 1); }

}  // namespace

SpanningReduce::SpanningReduce(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options,
                               std::vector<ReducePlanPart> parts, Form form)
    : SpanningOperation(std::move(owner), print, std::move(options)), parts_(std::move(parts)), form_(form) {
  for (int h = 0; h < hosts().count(); ++h) nodes_.push_back(nodes_of(hosts(), h));
}

void SpanningReduce::begin() {
  meet();
  if (form_ == Form::kWhole) {
    stage([this] { reduce_whole(); });
    stage([this] { exchange_whole(); });
    return;
  }
  stage([this] {
    lay_out();
    reduce_here();
  });
  if (!hosts().regular()) stage([this] { reduce_raw(); });
  stage([this] { exchange(); });
  if (scatters()) return;
  stage([this] { share(); });
  stage([this] { take_over_shared(); });
}

// --- segments

void SpanningReduce::add_row(std::size_t part, std::size_t slice, std::size_t total, std::size_t offset, int host, int places) {
  rows_.push_back({part, offset, slice, total, segments_.size()});
  for (int j = 0; j < places; ++j) {
    const std::size_t at = static_cast<std::size_t>(j) * slice;
    Segment segment;
    segment.part = part;
    segment.offset = offset + std::min(at, total);
    segment.length = at >= total ? 0 : std::min(slice, total - at);
    segment.home = hosts().members(host)[static_cast<std::size_t>(j)];
    segment.place = j;
    segments_.push_back(std::move(segment));
  }
}

void SpanningReduce::lay_out() {
  const bool reduces = fingerprint.operation == Operation::kReduce;
  const int root_host = reduces ? hosts().host_of(fingerprint.root) : 0;
  if (reduces && root_host == host()) {
    // Only the root knows the output's type.
    parts_[0].kind.out = print_of_place(hosts().place_of(fingerprint.root)).out;
  }
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const ReducePlanPart& part = parts_[p];
    if (scatters() && !hosts().regular()) {
      for (int r = 0; r < size(); ++r) {
        Segment segment;
        segment.part = p;
        segment.offset = static_cast<std::size_t>(r) * part.count;
        segment.length = part.count;
        segment.home = r;
        segment.place = hosts().place_of(r);
        segments_.push_back(std::move(segment));
      }
      continue;
    }
    const int first = reduces ? root_host : 0;
    const int last = reduces ? root_host + 1 : hosts().count();
    const int places = scatters() || reduces ? hosts().members_count(first) : hosts().fewest();
    const auto pieces = static_cast<std::size_t>(places) * static_cast<std::size_t>(last - first);
    const std::size_t slice =
        scatters() ? part.count : round_up((part.count + pieces - 1) / pieces, kAlignment / std::min(kAlignment, element(p)));
    const std::size_t all = scatters() ? static_cast<std::size_t>(size()) * part.count : part.count;
    for (int h = first; h < last; ++h) {
      const std::size_t offset = static_cast<std::size_t>((h - first) * places) * slice;
      const std::size_t total = offset >= all ? 0 : std::min(static_cast<std::size_t>(places) * slice, all - offset);
      add_row(p, slice, total, std::min(offset, all), h, places);
    }
  }
  for (Segment& segment : segments_) {
    const auto nodes = nodes_[static_cast<std::size_t>(host())].size();
    const bool as_it_is = hosts().regular() && local_size() == 1 && partial_type(parts_[segment.part].kind.in) == parts_[segment.part].kind.in;
    if (is_agent(segment)) {
      if (as_it_is) {
        segment.raw_input = parts_[segment.part].in + segment.offset * element(segment.part);
      } else {
        segment.partials = scratch(nodes * segment.length * held(segment.part));
      }
    }
    if (segment.home != rank()) continue;
    for (int h = 0; h < hosts().count(); ++h) {
      const auto theirs = nodes_[static_cast<std::size_t>(h)].size();
      segment.inbox.push_back(h == host() ? nullptr : scratch(theirs * segment.length * held(segment.part)));
    }
  }
  for (std::size_t p = 0; p < parts_.size() && !scatters(); ++p) {
    const ReducePlanPart& part = parts_[p];
    const bool into_output = !part.kind.accumulate && (!reduces || fingerprint.root == rank());
    const bool needed = !reduces || root_host == host();
    finished_.push_back(into_output ? part.out : needed ? scratch(part.count * size_of(part.kind.out)) : nullptr);
  }
}

std::byte* SpanningReduce::finished(const Segment& segment) const {
  const ReducePlanPart& part = parts_[segment.part];
  return scatters() ? part.out : finished_[segment.part] + segment.offset * size_of(part.kind.out);
}

// --- on this host

void SpanningReduce::reduce_here() {
  if (hosts().regular()) {
    reduce_rows();
  } else {
    pull_raw();
  }
}

void SpanningReduce::reduce_rows() {
  std::vector<ReducePlanPart> plan;
  for (const Row& row : rows_) {
    const ReducePlanPart& part = parts_[row.part];
    const Segment& own = segments_[row.first + static_cast<std::size_t>(place())];
    if (own.raw_input != nullptr) continue;
    ReducePlanPart inner;
    inner.in = part.in + row.offset * element(row.part);
    inner.out = own.partials;
    inner.count = row.slice;
    inner.kind = partial_kind(part.kind);
    inner.total = row.total;
    plan.push_back(inner);
  }
  if (plan.empty()) return;
  Fingerprint print = inner_print(Operation::kReduceScatter, fingerprint);
  print.root = -1;
  const auto& here = owner().local_group();
  CallOptions options = inner_options();
  local(here->issue(std::make_shared<ReduceOperation>(here, print, std::move(options), std::move(plan))));
}

/// Agents take the inputs of their segments from all ranks of the host.
void SpanningReduce::pull_raw() {
  MovePlan plan;
  plan.shared = false;
  plan.outgoing.resize(static_cast<std::size_t>(local_size()));
  plan.incoming.resize(static_cast<std::size_t>(local_size()));
  raw_.resize(static_cast<std::size_t>(local_size()));
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const std::size_t elements = scatters() ? static_cast<std::size_t>(size()) * parts_[p].count : parts_[p].count;
    plan.exposed.push_back({parts_[p].in, elements * element(p)});
  }
  struct Wanted {
    std::size_t part, at, bytes;
  };
  std::vector<Wanted> wanted;
  for (const Segment& segment : segments_) {
    const std::size_t at = segment.offset * element(segment.part);
    const std::size_t bytes = segment.length * element(segment.part);
    const int agent = hosts().place_of(hosts().agent(host(), segment.place));
    plan.outgoing[static_cast<std::size_t>(agent)].push_back({parts_[segment.part].in + at, bytes});
    if (agent != place()) continue;
    wanted.push_back({segment.part, at, bytes});
    for (std::size_t j = 0; j < raw_.size(); ++j) {
      std::byte* const memory = scratch(bytes);
      raw_[j].push_back(memory);
      plan.incoming[j].push_back({memory, bytes});
    }
  }
  plan.view = [wanted](int, std::span<const std::byte* const> buffers, std::span<const std::uint64_t>) {
    std::vector<ConstSpan> spans;
    for (const Wanted& want : wanted) {
      const std::byte* const base = buffers[want.part];
      spans.push_back({base == nullptr ? nullptr : base + want.at, want.bytes});
    }
    return spans;
  };
  const auto& here = owner().local_group();
  local(here->issue(
      std::make_shared<MoveOperation>(here, inner_print(Operation::kAllToAll, fingerprint), inner_options(), std::move(plan))));
}

void SpanningReduce::reduce_raw() {
  std::size_t number = 0;
  for (const Segment& segment : segments_) {
    if (!is_agent(segment)) continue;
    const std::size_t index = number++;
    std::byte* out = segment.partials;
    for (const TreeNode& node : nodes_[static_cast<std::size_t>(host())]) {
      std::vector<const std::byte*> sources;
      for (int r = node.begin; r < node.end; ++r) sources.push_back(raw_[static_cast<std::size_t>(hosts().place_of(r))][index]);
      std::byte* const target[] = {out};
      reduce(partial_kind(parts_[segment.part].kind), sources, target, segment.length);
      out += segment.length * held(segment.part);
    }
  }
}

// --- between hosts

void SpanningReduce::combine(const Segment& segment, std::size_t from, std::size_t length) {
  const ReducePlanPart& part = parts_[segment.part];
  const std::size_t width = held(segment.part);
  std::vector<Partial> partials;
  for (int h = 0; h < hosts().count(); ++h) {
    const std::byte* data = h == host() ? partial(segment) : segment.inbox[static_cast<std::size_t>(h)];
    for (const TreeNode& node : nodes_[static_cast<std::size_t>(h)]) {
      partials.push_back({node, data + from * width});
      data += segment.length * width;
    }
  }
  ReduceKind kind = part.kind;
  if (!scatters() && finished_[segment.part] != part.out) kind.accumulate = false;  // done when it is taken over
  combine_partials(kind, size(), partials, finished(segment) + from * size_of(kind.out), length);
}

void SpanningReduce::exchange() {
  greet_partners();
  for (Segment& segment : segments_) {
    if (is_agent(segment) && hosts().host_of(segment.home) != host()) send_partials(segment);
    if (segment.home == rank()) combine_arriving(segment);
  }
}

void SpanningReduce::greet_partners() {
  std::vector<int> partners;
  for (const Segment& segment : segments_) {
    if (segment.length == 0) continue;
    if (segment.home == rank()) {
      for (int h = 0; h < hosts().count(); ++h) partners.push_back(hosts().agent(h, segment.place));
    } else if (is_agent(segment)) {
      partners.push_back(segment.home);
    }
  }
  greet(partners);
}

void SpanningReduce::send_partials(Segment& segment) {
  const std::size_t width = held(segment.part);
  const auto nodes = nodes_[static_cast<std::size_t>(host())].size();
  each_chunk(segment.length, width, [&](std::size_t from, std::size_t length) {
    for (std::size_t n = 0; n < nodes; ++n) {
      send(segment.home, partial_step(segment.part), partial(segment) + (n * segment.length + from) * width, length * width);
    }
  });
  if (!returns()) return;
  const std::size_t out = size_of(parts_[segment.part].kind.out);
  each_chunk(segment.length, out, [&](std::size_t from, std::size_t length) {
    recv(segment.home, finished_step(segment.part), finished(segment) + from * out, length * out);
  });
}

void SpanningReduce::combine_arriving(Segment& segment) {
  const std::size_t width = held(segment.part);
  each_chunk(segment.length, width, [&](std::size_t from, std::size_t length) {
    std::vector<std::size_t> numbers;
    for (int h = 0; h < hosts().count(); ++h) {
      if (h == host()) continue;
      const int agent = hosts().agent(h, segment.place);
      for (std::size_t n = 0; n < nodes_[static_cast<std::size_t>(h)].size(); ++n) {
        numbers.push_back(recv(agent, partial_step(segment.part), segment.inbox[static_cast<std::size_t>(h)] + (n * segment.length + from) * width,
                               length * width));
      }
    }
    until([this, numbers, &segment, from, length] {
      // In order, so that finished chunks leave in the order in which they are awaited.
      if (segment.combined != from) return false;
      if (!std::all_of(numbers.begin(), numbers.end(), [this](std::size_t number) { return received(number); })) return false;
      combine(segment, from, length);
      segment.combined += length;
      if (returns()) send_finished(segment, from, length);
      return true;
    });
  });
}

void SpanningReduce::send_finished(Segment& segment, std::size_t from, std::size_t length) {
  // Finished elements may be narrower, so their chunks are longer: they go once the segment is whole, or chunk by chunk where equal.
  const std::size_t out = size_of(parts_[segment.part].kind.out);
  const bool even = out == held(segment.part);
  const bool last = from + length == segment.length;
  if (!even && !last) return;
  const std::size_t start = even ? from : 0;
  each_chunk(even ? length : segment.length, out, [&](std::size_t at, std::size_t count) {
    for (int h = 0; h < hosts().count(); ++h) {
      if (h != host()) send(hosts().agent(h, segment.place), finished_step(segment.part), finished(segment) + (start + at) * out, count * out);
    }
  });
}

// --- back on this host

void SpanningReduce::share() {
  const bool reduces = fingerprint.operation == Operation::kReduce;
  if (reduces && hosts().host_of(fingerprint.root) != host()) return;
  const bool takes = !reduces || fingerprint.root == rank();
  std::vector<Span> buffers;
  std::vector<Stretch> stretches;
  for (std::size_t p = 0; p < parts_.size(); ++p) buffers.push_back({finished_[p], parts_[p].count * size_of(parts_[p].kind.out)});
  for (const Segment& segment : segments_) {
    const std::size_t out = size_of(parts_[segment.part].kind.out);
    const int agent = hosts().place_of(hosts().agent(host(), segment.place));
    stretches.push_back({segment.part, segment.offset * out, segment.length * out, agent});
  }
  const auto& here = owner().local_group();
  local(here->issue(
      std::make_shared<MoveOperation>(here, inner_print(Operation::kAllGather, fingerprint), inner_options(),
                                                     share_stretches(buffers, stretches, place(), local_size(), takes))));
}

void SpanningReduce::take_over_shared() {
  if (fingerprint.root >= 0 && fingerprint.root != rank()) return;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (finished_[p] != parts_[p].out) take_over(parts_[p].kind, parts_[p].out, finished_[p], parts_[p].count);
  }
}

}  // namespace wirewise::comm
