#include "wirewise/cli/cluster_probe.h"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "wirewise/base/cgroup.h"
#include "wirewise/comm/cards.h"

namespace wirewise {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostRounds = 64;
constexpr std::size_t kArray = std::size_t{64} << 20;  // of the memory probe
constexpr int kPingTag = 1, kDataTag = 2;

Seconds since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Fixed work: 2 * kLanes * `times` operations, on values that stay finite.
Flops multiply_add(int times) {
  constexpr int kLanes = 64;
  float values[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) values[lane] = 1.0F + static_cast<float>(lane) * 1e-3F;
  for (int i = 0; i < times; ++i) {
    for (float& value : values) value = value * 0.999F + 1e-3F;
  }
  volatile float kept = 0;
  for (float value : values) kept = kept + value;
  return 2.0 * kLanes * times;
}

Flops measure_flops(const ProbeOptions& options) {
  double best = 0;
  for (int window = 0; window < options.windows; ++window) {
    const auto begin = Clock::now();
    double done = 0;
    while (since(begin) < options.window) done += multiply_add(20000);
    best = std::max(best, done / since(begin));
  }
  return best;
}

BytesPerSecond measure_copy(const ProbeOptions& options) {
  std::vector<std::byte> from(kArray, std::byte{1});
  std::vector<std::byte> to(kArray, std::byte{2});
  double best = 0;
  for (int window = 0; window < options.windows; ++window) {
    const auto begin = Clock::now();
    double done = 0;
    while (since(begin) < options.window / 2) {
      std::memcpy(to.data(), from.data(), kArray);
      std::swap(from, to);
      done += static_cast<double>(kArray);
    }
    best = std::max(best, done / since(begin));
  }
  return best;
}

/// What one rank tells all others; plain bytes.
struct Report {
  char host_name[64] = {};
  std::uint64_t host_id = 0, machine_id = 0;
  std::int64_t pid = 0, cores = 0, throttled = 0;
  double flops = 0, copy = 0, quota = 0;
};

template <typename T>
std::vector<T> gather_all(Communicator& communicator, const T& own, std::size_t count = 1) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<T> all(ranks * count);
  communicator.all_gather({&own, DType::kUInt8}, {all.data(), DType::kUInt8}, count * sizeof(T)).wait();
  return all;
}

Report introduce() {
  Report report;
  const std::string name = comm::host_name();
  std::memcpy(report.host_name, name.data(), std::min(name.size(), sizeof report.host_name - 1));
  const std::string host = comm::host_id();
  const std::string machine = comm::machine_id();
  report.host_id = XXH64(host.data(), host.size(), 0);
  report.machine_id = XXH64(machine.data(), machine.size(), 0);
  report.pid = ::getpid();
  report.cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  report.quota = cgroup_limits().cpus.value_or(0);
  return report;
}

/// Whether some machine has more ranks than cores: then they must not measure themselves at once.
bool crowded(const std::vector<Report>& reports) {
  std::map<std::uint64_t, std::int64_t> ranks;
  return std::any_of(reports.begin(), reports.end(), [&](const Report& report) { return ++ranks[report.machine_id] > report.cores; });
}

void measure_self(Communicator& communicator, const std::vector<Report>& all, Report& own, const ProbeOptions& options) {
  const bool in_turn = crowded(all);
  std::map<std::uint64_t, int> ranks;
  int turns = 0, own_turn = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const int turn = in_turn ? ranks[all[rank].machine_id]++ : 0;
    if (static_cast<int>(rank) == communicator.rank()) own_turn = turn;
    turns = std::max(turns, turn + 1);
  }
  for (int turn = 0; turn < turns; ++turn) {
    communicator.barrier().wait();
    if (turn != own_turn) continue;
    const auto before = throttled_periods();
    own.flops = measure_flops(options);
    own.copy = measure_copy(options);
    own.throttled = before ? throttled_periods().value_or(*before) - *before : -1;
  }
  communicator.barrier().wait();
}

/// A pair of hosts, first ranks only. The receiver measures: it asks for each message, so that none waits on its way.
class PairProbe {
 public:
  PairProbe(Communicator& communicator, const ProbeOptions& options)
      : communicator_(communicator), options_(options), words_(static_cast<std::size_t>(options.message) / sizeof(std::uint64_t)), data_(words_) {}

  void send(int to, std::uint64_t seed) {
    for (std::size_t word = 0; word < words_; ++word) data_[word] = pattern(seed, word);
    for (int message = 0; message < options_.messages; ++message) answer(to);
    for (int message = 0; message < options_.messages; ++message) {
      receive(nullptr, 0, to, kPingTag);
      communicator_.send({data_.data(), DType::kInt64}, words_, to, kDataTag).wait();
    }
  }

  LinkProbe receive_from(int from, std::uint64_t seed) {
    LinkProbe link;
    link.latency = ask(from);
    for (int message = 1; message < options_.messages; ++message) link.latency = std::min(link.latency, ask(from));
    for (int message = 0; message < options_.messages; ++message) {
      std::fill(data_.begin(), data_.end(), 0);
      communicator_.send({&nothing_, DType::kUInt8}, 0, from, kPingTag).wait();
      const auto begin = Clock::now();
      receive(data_.data(), words_, from, kDataTag);
      const Seconds time = std::max(since(begin) - link.latency, 1e-9);
      link.bandwidth = std::max(link.bandwidth, static_cast<double>(words_ * sizeof(std::uint64_t)) / time);
      for (std::size_t word = 0; word < words_; ++word) link.wrong += data_[word] == pattern(seed, word) ? 0 : sizeof(std::uint64_t);
    }
    return link;
  }

 private:
  void receive(void* to, std::size_t words, int from, int tag) {
    communicator_.recv({words > 0 ? to : &nothing_, words > 0 ? DType::kInt64 : DType::kUInt8}, words, from, tag).wait();
  }
  Seconds ask(int peer) {
    const auto begin = Clock::now();
    communicator_.send({&nothing_, DType::kUInt8}, 0, peer, kPingTag).wait();
    receive(nullptr, 0, peer, kPingTag);
    return since(begin) / 2;
  }
  void answer(int peer) {
    receive(nullptr, 0, peer, kPingTag);
    communicator_.send({&nothing_, DType::kUInt8}, 0, peer, kPingTag).wait();
  }

  Communicator& communicator_;
  const ProbeOptions& options_;
  std::size_t words_;
  std::vector<std::uint64_t> data_;
  std::byte nothing_{};
};

std::vector<LinkProbe> measure_links(Communicator& communicator, const std::vector<int>& first_rank, const ProbeOptions& options) {
  const int hosts = static_cast<int>(first_rank.size());
  const int all_rounds = hosts < 2 ? 0 : hosts % 2 == 0 ? hosts - 1 : hosts;
  const int rounds = std::min(all_rounds, options.rounds > 0 ? options.rounds : kMostRounds);
  std::vector<LinkProbe> links;
  const auto self = std::find(first_rank.begin(), first_rank.end(), communicator.rank());
  const int own = self == first_rank.end() ? -1 : static_cast<int>(self - first_rank.begin());
  PairProbe pair(communicator, options);
  for (int round = 0; round < rounds; ++round) {
    communicator.barrier().wait();
    // Rounds that are left out are spread over all.
    const int partner = own == -1 ? -1 : tournament_round(hosts, round * all_rounds / rounds)[static_cast<std::size_t>(own)];
    LinkProbe link;
    link.from = link.to = -1;
    if (partner != -1) {
      const int peer = first_rank[static_cast<std::size_t>(partner)];
      const auto seed = static_cast<std::uint64_t>(round) << 32;
      if (own < partner) pair.send(peer, seed + static_cast<std::uint64_t>(own));
      link = pair.receive_from(peer, seed + static_cast<std::uint64_t>(partner));
      if (own > partner) pair.send(peer, seed + static_cast<std::uint64_t>(own));
      link.from = partner;
      link.to = own;
    }
    for (const LinkProbe& found : gather_all(communicator, link)) {
      if (found.from != -1) links.push_back(found);
    }
  }
  return links;
}

}  // namespace

ClusterProbe best_of(const ClusterProbe& a, const ClusterProbe& b) {
  ClusterProbe best = a;
  for (std::size_t rank = 0; rank < best.ranks.size(); ++rank) {
    const RankProbe& other = b.ranks[rank];
    RankProbe& own = best.ranks[rank];
    own.flops = std::max(own.flops, other.flops);
    own.copy = std::max(own.copy, other.copy);
    own.throttled = std::max(own.throttled, other.throttled);
  }
  for (std::size_t i = 0; i < best.links.size(); ++i) {
    best.links[i].bandwidth = std::max(best.links[i].bandwidth, b.links[i].bandwidth);
    best.links[i].latency = std::min(best.links[i].latency, b.links[i].latency);
    best.links[i].wrong += b.links[i].wrong;
  }
  for (const PairFault& fault : b.pairs.faults) {
    const auto same = std::find_if(best.pairs.faults.begin(), best.pairs.faults.end(), [&](const PairFault& other) { return other.from == fault.from && other.to == fault.to; });
    if (same == best.pairs.faults.end()) best.pairs.faults.push_back(fault);
    else same->wrong += fault.wrong;
  }
  return best;
}

ClusterProbe probe_cluster(Communicator& communicator, const ProbeOptions& options) {
  Report own = introduce();
  measure_self(communicator, gather_all(communicator, own), own, options);
  const std::vector<Report> all = gather_all(communicator, own);
  ClusterProbe probe;
  std::vector<int> first_rank;
  std::map<std::uint64_t, int> host_of;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Report& report = all[rank];
    const auto [host, first] = host_of.try_emplace(report.host_id, static_cast<int>(first_rank.size()));
    if (first) first_rank.push_back(static_cast<int>(rank));
    probe.ranks.push_back({static_cast<int>(rank), host->second, report.host_name, static_cast<long>(report.pid), report.flops, report.copy, report.quota, report.throttled});
  }
  probe.hosts = static_cast<int>(first_rank.size());
  probe.links = measure_links(communicator, first_rank, options);
  std::vector<int> host_of_rank;
  for (const RankProbe& rank : probe.ranks) host_of_rank.push_back(rank.host);
  probe.pairs = check_pairs(communicator, host_of_rank, options.pair_message, kMostRounds, options.pairs_on);
  return probe;
}

}  // namespace wirewise
