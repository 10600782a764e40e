#include "wirewise/cli/cluster_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

#include "wirewise/base/outliers.h"

namespace wirewise {
namespace {

constexpr const char* kRaiseLimit = "Raise the CPU limit of its container or job (cpu.max, docker --cpus, a Kubernetes limit).";

class Judge {
 public:
  Judge(const ClusterProbe& probe, double share) : probe_(probe), share_(share) { result_.host_named.resize(static_cast<std::size_t>(probe.hosts), false); }

  ClusterFindings judge() {
    ranks("computes slowly", "GFLOP/s", 1e9, [](const RankProbe& rank) { return rank.flops; },
          "Look for other processes on its cores, a CPU limit of its container or job, a power or temperature limit (turbostat, ipmitool sensor).");
    ranks("copies memory slowly", "GB/s", 1e9, [](const RankProbe& rank) { return rank.copy; },
          "Look for other processes on its socket, memory of another NUMA node (numactl -H), a missing memory module (dmidecode -t memory).");
    limits();
    wrong_data();
    wrong_pairs();
    hosts("sends", [](const LinkProbe& link) { return link.from; });
    hosts("receives", [](const LinkProbe& link) { return link.to; });
    paths();
    sort_findings(result_.findings);
    return std::move(result_);
  }

 private:
  void add(Severity severity, int host, std::string title, std::string evidence, std::string remedy) {
    result_.findings.push_back({severity, std::move(title), std::move(evidence), std::move(remedy)});
    if (severity == Severity::kError && host >= 0) result_.host_named[static_cast<std::size_t>(host)] = true;
  }

  /// "host node1 (ranks 2-3)".
  [[nodiscard]] std::string host_text(int host) const {
    int first = -1, last = -1, count = 0;
    std::string name;
    for (const RankProbe& rank : probe_.ranks) {
      if (rank.host != host) continue;
      if (first == -1) first = rank.rank;
      last = rank.rank;
      name = rank.host_name;
      ++count;
    }
    const std::string ranks = count == 1 ? fmt::format("rank {}", first) : last - first + 1 == count ? fmt::format("ranks {}-{}", first, last) : fmt::format("{} ranks, first {}", count, first);
    return fmt::format("host {} ({})", name, ranks);
  }

  void ranks(const std::string& what, const std::string& unit, double scale, const std::function<double(const RankProbe&)>& of, const std::string& remedy) {
    std::vector<double> figures;
    for (const RankProbe& rank : probe_.ranks) figures.push_back(of(rank));
    const double middle = median(figures);
    for (std::size_t low : low_outliers(figures, share_)) {
      const RankProbe& rank = probe_.ranks[low];
      std::string evidence = fmt::format("{:.3g} {}, {:.0f} % of the median of {} ranks ({:.3g} {})", figures[low] / scale, unit, 100 * figures[low] / middle, figures.size(),
                                         middle / scale, unit);
      if (rank.quota > 0) evidence += fmt::format("; its control group allows {:.3g} CPUs", rank.quota);
      if (rank.throttled > 0) evidence += fmt::format(" and was held back {} times meanwhile", rank.throttled);
      add(Severity::kError, rank.host, fmt::format("Rank {} on host {} (pid {}) {}.", rank.rank, rank.host_name, rank.pid, what), evidence + ".",
          rank.throttled > 0 ? kRaiseLimit : remedy);
    }
  }

  /// A limit is a fact, whether or not the machine had a whole core to give meanwhile.
  void limits() {
    for (const RankProbe& rank : probe_.ranks) {
      if (rank.quota <= 0 || rank.quota >= 1) continue;
      std::string evidence = fmt::format("Its control group allows {:.3g} CPUs, and a rank keeps at least one busy", rank.quota);
      if (rank.throttled > 0) evidence += fmt::format("; it was held back {} times while it measured itself", rank.throttled);
      add(Severity::kError, rank.host, fmt::format("Rank {} on host {} (pid {}) may not use a whole core.", rank.rank, rank.host_name, rank.pid), evidence + ".", kRaiseLimit);
    }
  }

  void wrong_data() {
    for (const LinkProbe& link : probe_.links) {
      if (link.wrong == 0) continue;
      add(Severity::kError, link.to, fmt::format("Data from {} to {} comes wrong.", host_text(link.from), host_text(link.to)),
          fmt::format("{} bytes differ from what was sent.", link.wrong), "Take both hosts out; check cables, NICs and memory (ethtool -S, edac-util).");
    }
  }

  /// Pairs of ranks. Those of first ranks that wrong_data() named with their hosts aren't named again.
  void wrong_pairs() {
    for (const PairFault& fault : probe_.pairs.faults) {
      const RankProbe& from = probe_.ranks[static_cast<std::size_t>(fault.from)];
      const RankProbe& to = probe_.ranks[static_cast<std::size_t>(fault.to)];
      const bool named = std::any_of(probe_.links.begin(), probe_.links.end(), [&](const LinkProbe& link) { return link.wrong > 0 && link.from == from.host && link.to == to.host; });
      if (named) continue;
      const bool inside = from.host == to.host;
      add(Severity::kError, to.host,
          inside ? fmt::format("Data from rank {} to rank {} on host {} comes wrong.", from.rank, to.rank, to.host_name)
                 : fmt::format("Data from rank {} on host {} to rank {} on host {} comes wrong.", from.rank, from.host_name, to.rank, to.host_name),
          fmt::format("{} bytes differ from what was sent.", fault.wrong),
          inside && probe_.pairs.on_device ? "Set NCCL_P2P_DISABLE=1 there, which is slow but right, and turn ACS and the IOMMU off (wirewise doctor as root); a driver patched for peer-to-peer isn't to be trusted."
          : inside ? "Take the host out; check its memory and its PCIe devices (edac-util, dmesg, wirewise doctor as root)."
                 : "Take both hosts out; check cables, NICs and memory (ethtool -S, edac-util).");
    }
  }

  /// Hosts whose best link in one direction is slow: whatever they reach, they reach it slowly.
  void hosts(const std::string& what, const std::function<int(const LinkProbe&)>& host_of) {
    std::vector<double> best(static_cast<std::size_t>(probe_.hosts), 0);
    for (const LinkProbe& link : probe_.links) {
      double& figure = best[static_cast<std::size_t>(host_of(link))];
      figure = std::max(figure, link.bandwidth);
    }
    if (probe_.links.empty()) return;
    (what == "sends" ? sends_ : receives_) = best;
    const double middle = median(best);
    for (std::size_t low : low_outliers(best, share_)) {
      slow_.push_back(static_cast<int>(low));
      add(Severity::kError, static_cast<int>(low), fmt::format("The link of {} {} slowly.", host_text(static_cast<int>(low)), what),
          fmt::format("It {} at most {:.3g} GB/s with any other host, {:.0f} % of the median of {} hosts ({:.3g} GB/s).", what, best[low] / 1e9, 100 * best[low] / middle, best.size(),
                      middle / 1e9),
          "Look at its negotiated speed and errors (ethtool, ibstat, ibqueryerrors), its cable and its switch port.");
    }
  }

  /// Pairs that are slow though both ends are fast with others.
  void paths() {
    std::vector<double> shares;
    for (const LinkProbe& link : probe_.links) {
      const double possible = std::min(sends_[static_cast<std::size_t>(link.from)], receives_[static_cast<std::size_t>(link.to)]);
      shares.push_back(possible > 0 ? link.bandwidth / possible : 1);
    }
    for (std::size_t low : low_outliers(shares, share_)) {
      const LinkProbe& link = probe_.links[low];
      const auto named = [&](int host) { return std::find(slow_.begin(), slow_.end(), host) != slow_.end(); };
      if (named(link.from) || named(link.to)) continue;
      add(Severity::kWarning, -1, fmt::format("The path from {} to {} is slow.", host_text(link.from), host_text(link.to)),
          fmt::format("{:.3g} GB/s, {:.0f} % of what both reach with others.", link.bandwidth / 1e9, 100 * shares[low]),
          "Look at the switches between them: an uplink that is down or shared, uneven routes.");
    }
  }

  const ClusterProbe& probe_;
  double share_;
  ClusterFindings result_;
  std::vector<double> sends_, receives_;
  std::vector<int> slow_;
};

}  // namespace

ClusterFindings judge_cluster(const ClusterProbe& probe, double share) { return Judge(probe, share).judge(); }

}  // namespace wirewise
