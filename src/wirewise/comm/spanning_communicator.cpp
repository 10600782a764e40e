#include "wirewise/comm/spanning_communicator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/comm/calls.h"
#include "wirewise/comm/partials.h"
#include "wirewise/comm/spanning_doubling.h"
#include "wirewise/comm/spanning_message.h"
#include "wirewise/comm/spanning_move.h"
#include "wirewise/comm/spanning_reduce.h"
#include "wirewise/comm/spanning_ring.h"

namespace wirewise::comm {
namespace {

Caller caller_of(const SpanningGroup& group) { return {group.rank(), group.size()}; }

}  // namespace

SpanningCommunicator::SpanningCommunicator(HostMap hosts, int rank, std::vector<RankIdentity> identities,
                                           std::unique_ptr<LocalCommunicator> local, Wires wires, MakeWireEnd make_end,
                                           FlightTicket flight, CommunicatorOptions options,
                                           std::chrono::milliseconds start_timeout, std::optional<ChoiceBasis> parent,
                                           const std::shared_ptr<Overseer>& overseer)
    : group_(std::make_shared<SpanningGroup>(std::move(hosts), rank, std::move(identities), std::move(local), std::move(wires),
                                             std::move(flight), std::move(options))),
      make_end_(std::move(make_end)) {
  // Connections are made with the first message: here, where a host that can't be reached is an error of the start. Twice: what comes back
  // after a peer has heard from this rank shows that none is half made, which UCX 1.13 can't close without ending the process.
  const WhileOverseen overseen(group_->overseen(), overseer);
  CallOptions call;
  call.timeout = start_timeout;
  call.label = "start of " + group_->options().name;
  call.progress = CallOptions::Progress::kOnWait;
  for (int i = 0; i < 2; ++i) barrier(call).wait();
  agree(std::move(parent));
  group_->count_from_here();
}

SpanningCommunicator::~SpanningCommunicator() { group_->close(); }

std::filesystem::path SpanningCommunicator::dump_flight(const std::filesystem::path& folder) {
  if (!group_->flight().recorder) return Communicator::dump_flight(folder);
  return group_->flight().recorder->dump(folder);
}

void SpanningCommunicator::progress() {
  group_->progress();
  group_->local().progress();
}

Work SpanningCommunicator::issue_reduction(Operation operation, std::span<const ReducePart> parts, int root, Reduction op, CallOptions options) {
  ReductionCall call = check_reduction(caller_of(*group_), operation, parts, root, op, options);
  CollectiveShape shape{operation};
  Bytes partial = 0;
  for (const ReducePlanPart& part : call.parts) {
    const Bytes elements = part.count * (operation == Operation::kReduceScatter ? static_cast<Bytes>(size()) : 1);
    shape.bytes += elements * size_of(part.kind.in);
    partial += elements * size_of(partial_type(part.kind.in));
  }
  if (shape.bytes > 0) shape.widened = static_cast<double>(partial) / static_cast<double>(shape.bytes);
  const Algorithm algorithm = choose(shape);
  if (algorithm == Algorithm::kDoubling || algorithm == Algorithm::kWholeDoubling) {
    const auto form = algorithm == Algorithm::kDoubling ? SpanningDoubling::Form::kHalves : SpanningDoubling::Form::kWhole;
    return group_->issue(std::make_shared<SpanningDoubling>(group_, call.print, std::move(options), std::move(call.parts), form));
  }
  const auto form = algorithm == Algorithm::kWhole ? SpanningReduce::Form::kWhole : SpanningReduce::Form::kSegments;
  return group_->issue(std::make_shared<SpanningReduce>(group_, call.print, std::move(options), std::move(call.parts), form));
}

Work SpanningCommunicator::all_reduce(std::span<const ReducePart> parts, Reduction op, CallOptions options) {
  return issue_reduction(Operation::kAllReduce, parts, -1, op, std::move(options));
}

Work SpanningCommunicator::reduce_scatter(std::span<const ReducePart> parts, Reduction op, CallOptions options) {
  return issue_reduction(Operation::kReduceScatter, parts, -1, op, std::move(options));
}

Work SpanningCommunicator::reduce(ConstBuffer in, Buffer out, std::size_t count, int root, Reduction op, CallOptions options) {
  const ReducePart part{in, out, count};
  return issue_reduction(Operation::kReduce, std::span(&part, 1), root, op, std::move(options));
}

Work SpanningCommunicator::all_gather(std::span<const AllGatherPart> parts, CallOptions options) {
  const Fingerprint print = check_all_gather(caller_of(*group_), parts, options);
  std::vector<GatherPart> gathered;
  CollectiveShape shape{Operation::kAllGather};
  for (const AllGatherPart& part : parts) {
    gathered.push_back({bytes_of(part.shard), bytes_of(part.full), part.count * size_of(part.shard.dtype)});
    shape.bytes += static_cast<Bytes>(size()) * gathered.back().bytes;
  }
  if (choose(shape) == Algorithm::kRing) {
    return group_->issue(std::make_shared<SpanningRingGather>(group_, print, std::move(options), std::move(gathered)));
  }
  return group_->issue(std::make_shared<SpanningGather>(group_, print, std::move(options), std::move(gathered)));
}

Work SpanningCommunicator::broadcast(Buffer buffer, std::size_t count, int root, CallOptions options) {
  const Fingerprint print = check_broadcast(caller_of(*group_), buffer, count, root, options);
  const std::size_t bytes = count * size_of(buffer.dtype);
  const bool chain = choose({Operation::kBroadcast, bytes}) == Algorithm::kChain;
  const auto way = chain ? SpanningBroadcast::Way::kChain : SpanningBroadcast::Way::kDirect;
  return group_->issue(std::make_shared<SpanningBroadcast>(group_, print, std::move(options), bytes_of(buffer), bytes, way));
}

Work SpanningCommunicator::issue_exchange(const Fingerprint& print, CallOptions options, std::vector<ConstSpan> to, std::vector<Span> from) {
  return group_->issue(std::make_shared<SpanningExchange>(group_, print, std::move(options), std::move(to), std::move(from)));
}

Work SpanningCommunicator::gather(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) {
  const Fingerprint print = check_gather(caller_of(*group_), in, out, count, root, options);
  const std::size_t bytes = count * size_of(in.dtype);
  std::vector<ConstSpan> to(static_cast<std::size_t>(size()));
  std::vector<Span> from(to.size());
  to[static_cast<std::size_t>(root)] = {bytes_of(in), bytes};
  for (std::size_t r = 0; r < from.size() && root == rank(); ++r) from[r] = {bytes_of(out) + r * bytes, bytes};
  return issue_exchange(print, std::move(options), std::move(to), std::move(from));
}

Work SpanningCommunicator::scatter(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) {
  const Fingerprint print = check_scatter(caller_of(*group_), in, out, count, root, options);
  const std::size_t bytes = count * size_of(out.dtype);
  std::vector<ConstSpan> to(static_cast<std::size_t>(size()));
  std::vector<Span> from(to.size());
  from[static_cast<std::size_t>(root)] = {bytes_of(out), bytes};
  for (std::size_t r = 0; r < to.size() && root == rank(); ++r) to[r] = {bytes_of(in) + r * bytes, bytes};
  return issue_exchange(print, std::move(options), std::move(to), std::move(from));
}

Work SpanningCommunicator::all_to_all(ConstBuffer in, std::span<const std::size_t> send_counts, Buffer out,
                                      std::span<const std::size_t> recv_counts, CallOptions options) {
  const Fingerprint print = check_all_to_all(caller_of(*group_), in, send_counts, out, recv_counts, options);
  const std::size_t element = size_of(in.dtype);
  std::vector<ConstSpan> to;
  std::vector<Span> from;
  std::size_t sent = 0;
  std::size_t received = 0;
  for (std::size_t r = 0; r < send_counts.size(); ++r) {
    to.push_back({bytes_of(in) + sent, send_counts[r] * element});
    from.push_back({bytes_of(out) + received, recv_counts[r] * element});
    sent += to.back().bytes;
    received += from.back().bytes;
  }
  return issue_exchange(print, std::move(options), std::move(to), std::move(from));
}

CallOptions SpanningCommunicator::local_options(const Fingerprint& print, CallOptions options) const {
  Fingerprint named = print;
  named.set_label(options.label);
  options.label = describe_call(named, group_->options().name);
  if (options.timeout.count() <= 0) options.timeout = group_->options().timeout;
  return options;
}

Work SpanningCommunicator::send(ConstBuffer in, std::size_t count, int peer, int tag, CallOptions options) {
  const Fingerprint print = check_message(caller_of(*group_), Operation::kSend, in, count, peer, tag, options);
  if (is_here(peer)) return group_->local().send(in, count, group_->hosts().place_of(peer), tag, local_options(print, std::move(options)));
  return group_->issue(std::make_shared<SpanningSend>(group_, print, std::move(options), in.data));
}

Work SpanningCommunicator::recv(Buffer out, std::size_t count, int peer, int tag, CallOptions options) {
  const Fingerprint print = check_message(caller_of(*group_), Operation::kRecv, out, count, peer, tag, options);
  if (peer != kAnySource && is_here(peer)) return group_->local().recv(out, count, group_->hosts().place_of(peer), tag, local_options(print, std::move(options)));
  return group_->issue(std::make_shared<SpanningRecv>(group_, print, std::move(options), out.data));
}

Work SpanningCommunicator::barrier(CallOptions options) {
  const Fingerprint print = check_barrier(options);
  return group_->issue(std::make_shared<SpanningBarrier>(group_, print, std::move(options)));
}

std::vector<std::string> SpanningCommunicator::gather_texts(const std::string& text) {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::int64_t> lengths(ranks);
  const auto length = static_cast<std::int64_t>(text.size());
  CallOptions call;
  call.progress = CallOptions::Progress::kOnWait;
  all_gather(ConstBuffer{&length, DType::kInt64}, Buffer{lengths.data(), DType::kInt64}, 1, call).wait();
  const auto most = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::string padded = text;
  padded.resize(most);
  std::string all(most * ranks, '\0');
  all_gather(ConstBuffer{padded.data(), DType::kUInt8}, Buffer{all.data(), DType::kUInt8}, most, call).wait();
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < ranks; ++r) texts.push_back(all.substr(r * most, static_cast<std::size_t>(lengths[r])));
  return texts;
}

}  // namespace wirewise::comm
