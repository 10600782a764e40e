#include "wirewise/comm/spanning_communicator.h"

#include <algorithm>

#include "wirewise/base/error.h"
#include "wirewise/comm/calls.h"
#include "wirewise/comm/partials.h"
#include "wirewise/comm/phase.h"
#include "wirewise/comm/spanning_doubling.h"
#include "wirewise/comm/spanning_message.h"
#include "wirewise/comm/spanning_move.h"
#include "wirewise/comm/spanning_reduce.h"
#include "wirewise/comm/spanning_ring.h"

namespace wirewise::comm {
namespace {

Caller caller_of(const SpanningGroup& group) { return {group.rank(), group.size()}; }

/// A communicator while it is being split: it knows who holds up the parts.
class SplitOverseer final : public Overseer {
 public:
  SplitOverseer(std::shared_ptr<SpanningGroup> group, std::string doing) : group_(std::move(group)), doing_(std::move(doing)) {}
  void look_after() override { group_->look_after(doing_); }
  [[nodiscard]] std::optional<Error> verdict(const Error& found) override { return group_->blame(found, doing_); }

 private:
  std::shared_ptr<SpanningGroup> group_;
  std::string doing_;
};


}  // namespace

SpanningCommunicator::SpanningCommunicator(HostMap hosts, int rank, std::vector<RankIdentity> identities,
                                           std::unique_ptr<LocalCommunicator> local, Wires wires, MakeWireEnd make_end,
                                           FlightTicket flight, CommunicatorOptions options,
                                           std::chrono::milliseconds start_timeout, const AlgorithmTable* parent,
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
  agree(parent);
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

std::unique_ptr<Communicator> SpanningCommunicator::split(int colour, int key, CommunicatorOptions options) {
  const auto ranks = static_cast<std::size_t>(size());
  const std::int64_t own[2] = {colour, key};
  std::vector<std::int64_t> choices(2 * ranks);
  CallOptions call;
  call.label = "split into " + options.name;
  all_gather(ConstBuffer{own, DType::kInt64}, Buffer{choices.data(), DType::kInt64}, 2, call).wait();
  std::vector<int> members;
  for (int r = 0; r < size(); ++r) {
    if (colour >= 0 && choices[2 * static_cast<std::size_t>(r)] == colour) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return choices[2 * static_cast<std::size_t>(a) + 1] < choices[2 * static_cast<std::size_t>(b) + 1];
  });
  std::vector<std::string> ids;
  int place = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    ids.push_back(std::to_string(group_->hosts().host_of(members[i])));
    if (members[i] == rank()) place = static_cast<int>(i);
  }
  HostMap hosts(ids);
  const bool spans = hosts.count() > 1;
  const auto overseer = std::make_shared<SplitOverseer>(group_, call.label);
  std::unique_ptr<Communicator> here;
  {
    const WhileOverseen overseen(group_->local_group()->overseen(), overseer);
    here = group_->local().split(colour, place, options);
  }
  // All ranks take part, also those whose part stays on one host.
  const std::unique_ptr<WireEnd> end = spans ? make_end_(static_cast<int>(members.size())) : nullptr;
  const std::vector<std::string> cards = gather_texts(end ? end->card() : std::string());
  std::unique_ptr<Communicator> result = std::move(here);
  if (spans) {
    std::vector<std::string> members_cards;
    std::vector<RankIdentity> identities;
    for (std::size_t i = 0; i < members.size(); ++i) {
      members_cards.push_back(cards[static_cast<std::size_t>(members[i])]);
      identities.push_back(group_->identities()[static_cast<std::size_t>(members[i])]);
      identities.back().number = static_cast<int>(i);
    }
    auto local = std::unique_ptr<LocalCommunicator>(static_cast<LocalCommunicator*>(result.release()));
    local->group()->serve(identities, hosts.members(hosts.host_of(place)));
    FlightTicket flight{group_->flight().recorder, {}};
    for (const int member : members) flight.job_ranks.push_back(group_->flight().job_rank(member));
    // Who waits for a connection waits for no operation: this communicator's other connections tell of deaths meanwhile.
    Acquaintance known;
    for (const int member : members) known.names.push_back(group_->name_of_rank(member));
    known.look_after = [&] { overseer->look_after(); };
    const std::shared_ptr<Group> part = local->group();  // which outlives a part that can't be made
    const WhileOverseen overseen(part->overseen(), overseer);
    try {
      phase("connecting");
      Wires wires = end->connect(place, hosts, members_cards, std::chrono::steady_clock::now() + group_->options().timeout, known);
      result = std::make_unique<SpanningCommunicator>(std::move(hosts), place, std::move(identities), std::move(local), std::move(wires), make_end_,
                                                      std::move(flight), options, group_->options().timeout, table_.get(), overseer);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kMismatch || error.kind() == ErrorKind::kBadInput) throw;  // of the part itself, and known to its ranks
      const bool says = error.sentence().find(call.label) != std::string::npos;
      const Error cause = group_->first_cause(says ? error : Error(error.kind(), call.label + ": " + error.sentence(), error.remedy()), call.label);
      if (local) local->group()->record_failure(cause);
      throw cause;
    }
  }
  // Ends live until all have connected.
  barrier(call).wait();
  return colour < 0 ? nullptr : std::move(result);
}

}  // namespace wirewise::comm
