#include "wirewise/comm/spanning_move.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "wirewise/base/units.h"
#include "wirewise/comm/spanning_chunks.h"
#include "wirewise/comm/spanning_share.h"

namespace wirewise::comm {
namespace {

constexpr std::size_t kWholeBytes = 64 * 1024;  // a broadcast of up to so many travels as one slice

constexpr std::uint32_t kDataStep = 0;
constexpr std::uint32_t kSizeStep = 1;

}  // namespace

void SpanningBarrier::begin() {
  meet();
  stage([this] { greet({}); });
}

// --- all_gather

void SpanningGather::begin() {
  meet();
  stage([this] { exchange(); });
  stage([this] { share(true); });
}

void SpanningGather::place_own(const GatherPart& part, int rank) {
  std::byte* const own = part.full + static_cast<std::size_t>(rank) * part.bytes;
  if (own != part.shard && part.bytes > 0) std::memcpy(own, part.shard, part.bytes);
}

void SpanningGather::exchange() {
  std::vector<int> readers;
  std::vector<int> sources;
  for (int h = 0; h < hosts().count(); ++h) {
    if (h != host()) readers.push_back(hosts().agent(h, place()));
  }
  for (int r = 0; r < size(); ++r) {
    if (hosts().host_of(r) != host() && hosts().agent(host(), hosts().place_of(r)) == rank()) sources.push_back(r);
  }
  std::vector<int> partners = readers;
  partners.insert(partners.end(), sources.begin(), sources.end());
  greet(partners);
  for (const GatherPart& part : parts_) {
    std::byte* const own = part.full + static_cast<std::size_t>(rank()) * part.bytes;
    place_own(part, rank());
    for (const int reader : readers) send(reader, kDataStep, own, part.bytes);
    for (const int source : sources) recv(source, kDataStep, part.full + static_cast<std::size_t>(source) * part.bytes, part.bytes);
  }
  share(false);
}

void SpanningGather::share(bool received_blocks) {
  std::vector<Span> buffers;
  std::vector<Stretch> stretches;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const GatherPart& part = parts_[p];
    buffers.push_back({part.full, static_cast<std::size_t>(size()) * part.bytes});
    for (int r = 0; r < size(); ++r) {
      const bool ours = hosts().host_of(r) == host();
      if (ours == received_blocks) continue;
      const int owner = ours ? hosts().place_of(r) : hosts().place_of(hosts().agent(host(), hosts().place_of(r)));
      stretches.push_back({p, static_cast<std::size_t>(r) * part.bytes, part.bytes, owner});
    }
  }
  const auto& here = owner().local_group();
  local(here->issue(std::make_shared<MoveOperation>(here, inner_print(Operation::kAllGather, fingerprint), inner_options(),
                                                     share_stretches(buffers, stretches, place(), local_size(), true))));
}

// --- broadcast

void SpanningBroadcast::begin() {
  meet();
  if (root_host() == host()) {
    stage([this] { take_from_root(); });
    stage([this] { travel(); });
  } else {
    stage([this] { travel(); });
    stage([this] { share(); });
  }
}

SpanningBroadcast::Slice SpanningBroadcast::slice(int at_place) const noexcept {
  const auto places = static_cast<std::size_t>(bytes_ <= kWholeBytes ? 1 : hosts().fewest());
  const std::size_t most = round_up((bytes_ + places - 1) / places, 64);
  const std::size_t at = std::min(bytes_, static_cast<std::size_t>(at_place) * most);
  return {at, std::min(most, bytes_ - at)};
}

void SpanningBroadcast::take_from_root() {
  const std::vector<Stretch> whole{{0, 0, bytes_, hosts().place_of(fingerprint.root)}};
  const auto& here = owner().local_group();
  local(here->issue(std::make_shared<MoveOperation>(here, inner_print(Operation::kAllGather, fingerprint), inner_options(),
                                                     share_stretches({{data_, bytes_}}, whole, place(), local_size(), true))));
}

void SpanningBroadcast::travel() {
  const int count = hosts().count();
  const int position = (host() - root_host() + count) % count;
  const auto at = [&](int steps) { return hosts().agent((root_host() + steps) % count, place()); };
  const Slice own = place() < hosts().fewest() ? slice(place()) : Slice{};
  const bool direct = way_ == Way::kDirect;
  std::vector<int> readers;
  if (own.bytes > 0 && direct && position == 0) {
    for (int steps = 1; steps < count; ++steps) readers.push_back(at(steps));
  } else if (own.bytes > 0 && !direct && position + 1 < count) {
    readers.push_back(at(position + 1));
  }
  std::vector<int> partners = readers;
  const int source = position == 0 ? rank() : at(direct ? 0 : position - 1);
  partners.push_back(source);
  greet(partners);
  std::vector<std::size_t> numbers;
  for (std::size_t from = 0; from < own.bytes; from += kChunkBytes) {
    std::byte* const chunk = data_ + own.at + from;
    const std::size_t bytes = std::min(kChunkBytes, own.bytes - from);
    if (position == 0) {
      for (const int reader : readers) send(reader, kDataStep, chunk, bytes);
      continue;
    }
    const std::size_t number = recv(source, kDataStep, chunk, bytes);
    numbers.push_back(number);
    if (readers.empty()) continue;
    until([this, numbers, readers, chunk, bytes] {
      // Those before it too: chunks leave in order.
      if (!std::all_of(numbers.begin(), numbers.end(), [this](std::size_t n) { return received(n); })) return false;
      for (const int reader : readers) send(reader, kDataStep, chunk, bytes);
      return true;
    });
  }
}

void SpanningBroadcast::share() {
  std::vector<Stretch> stretches;
  for (int p = 0; p < hosts().fewest(); ++p) {
    const Slice part = slice(p);
    if (part.bytes > 0) stretches.push_back({0, part.at, part.bytes, p});
  }
  const auto& here = owner().local_group();
  local(here->issue(std::make_shared<MoveOperation>(here, inner_print(Operation::kAllGather, fingerprint), inner_options(),
                                                     share_stretches({{data_, bytes_}}, stretches, place(), local_size(), true))));
}

// --- all_to_all, gather, scatter

void SpanningExchange::begin() {
  meet();
  if (fingerprint.operation == Operation::kAllToAll) stage([this] { exchange_sizes(); });
  stage([this] { exchange(); });
}

void SpanningExchange::exchange_sizes() {
  std::vector<int> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  greet(all);
  for (const ConstSpan& span : to_) sizes_.push_back(span.bytes);
  theirs_.resize(all.size());
  for (const int r : all) {
    if (hosts().host_of(r) == host()) continue;
    const auto i = static_cast<std::size_t>(r);
    send(r, kSizeStep, &sizes_[i], sizeof sizes_[i]);
    recv(r, kSizeStep, &theirs_[i], sizeof theirs_[i]);
  }
}

void SpanningExchange::exchange() {
  std::vector<int> partners;
  for (int r = 0; r < size(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (hosts().host_of(r) == host()) continue;
    if (to_[i].bytes > 0 || from_[i].bytes > 0) partners.push_back(r);
    if (fingerprint.operation != Operation::kAllToAll || theirs_[i] == from_[i].bytes) continue;
    const std::size_t element = size_of(fingerprint.in);
    throw Error(ErrorKind::kMismatch,
                "ranks disagree: in " + describe_call(fingerprint, owner().options().name) + " " + owner().name_of_rank(r) + " sends " +
                    std::to_string(theirs_[i] / element) + " elements to " + owner().name_of_rank(rank()) + ", which expects " +
                    std::to_string(from_[i].bytes / element) + ".",
                "Make what each rank sends equal what its peer expects.");
  }
  if (fingerprint.operation != Operation::kAllToAll) greet(partners);
  for (const int r : partners) {
    const auto i = static_cast<std::size_t>(r);
    send(r, kDataStep, to_[i].data, to_[i].bytes);
    recv(r, kDataStep, from_[i].data, from_[i].bytes);
  }
  exchange_here();
}

void SpanningExchange::exchange_here() {
  if (fingerprint.root >= 0 && hosts().host_of(fingerprint.root) != host()) return;
  MovePlan plan;
  plan.shared = false;
  plan.incoming.resize(static_cast<std::size_t>(local_size()));
  for (int p = 0; p < local_size(); ++p) {
    const auto i = static_cast<std::size_t>(member(p));
    plan.exposed.push_back(to_[i]);
    plan.outgoing.push_back({to_[i]});
    plan.counts.push_back(to_[i].bytes);
    plan.incoming[static_cast<std::size_t>(p)] = {from_[i]};
  }
  plan.view = [this](int source, std::span<const std::byte* const> buffers, std::span<const std::uint64_t> counts) {
    const auto me = static_cast<std::size_t>(place());
    const std::size_t wanted = from_[static_cast<std::size_t>(member(source))].bytes;
    if (counts[me] != wanted) {
      const std::size_t element = size_of(fingerprint.in);
      throw Error(ErrorKind::kMismatch,
                  "ranks disagree: in " + describe_call(fingerprint, owner().options().name) + " " + owner().name_of_rank(member(source)) +
                      " sends " + std::to_string(counts[me] / element) + " elements to " + owner().name_of_rank(rank()) + ", which expects " +
                      std::to_string(wanted / element) + ".",
                  "Make what each rank sends equal what its peer expects.");
    }
    return std::vector<ConstSpan>{{buffers[me], wanted}};
  };
  Fingerprint print = inner_print(Operation::kAllToAll, fingerprint);
  print.root = -1;
  const auto& here = owner().local_group();
  local(here->issue(std::make_shared<MoveOperation>(here, print, inner_options(), std::move(plan))));
}

}  // namespace wirewise::comm
