#include "wirewise/cli/bench_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/bench_fit_file.h"
#include "wirewise/cli/bench_fit_messages.h"
#include "wirewise/cli/bench_fit_report.h"
#include "wirewise/cli/bench_fit_spots.h"
#include "wirewise/wiring/link_pairs.h"
#include "wirewise/wiring/measured_file.h"

namespace wirewise::bench {
namespace {

/// What is measured takes the names that the description has for it; what it hasn't is left out, with a word why.
void name_as(const Wiring& known, std::vector<RankSpot>& spots, std::vector<std::string>& left_out) {
  const KnownClasses classes = known_classes(known);
  const bool several = std::any_of(spots.begin(), spots.end(), [&](const RankSpot& spot) { return spot.host != spots.front().host; });
  for (RankSpot& spot : spots) {
    spot.sockets = classes.cores && classes.sockets.size() == 1 ? classes.sockets.front() : "";
    std::string port = port_class_of(known, spot.host_name);
    if (port.empty() && classes.ports.size() == 1) port = classes.ports.front();
    if (port.empty() && several && classes.ports.size() > 1) {
      throw bad_input("host " + printable(spot.host_name) + " isn't in the description, whose hosts have several kinds of ports (" +
                          join(classes.ports, ", ") + ").",
                      "Name the hosts in it as they are called, or measure into a new file.");
    }
    spot.network = !port.empty();
    spot.port = std::move(port);
  }
  if (several && classes.ports.empty()) left_out.emplace_back("between hosts: the description has no network of a known class");
}

/// What is to be measured. Rank 0 alone knows all of it; the others learn the ranks of its pairs.
struct Wanted {
  std::vector<RankSpot> spots;  // with classes as the file names them
  std::vector<ClassPair> pairs;
  KnownClasses classes;
  bool known = false;  // there is such a file
  std::vector<std::string> left_out;
};

Wanted choose_pairs(const std::string& file, std::vector<RankSpot> spots) {
  check_fit_file(file);
  Wanted wanted{.spots = std::move(spots), .pairs = {}, .classes = {}, .known = false, .left_out = {}};
  if (const auto description = read_description(file)) {
    wanted.known = true;
    wanted.classes = known_classes(description->wiring);
    name_as(description->wiring, wanted.spots, wanted.left_out);
  }
  wanted.pairs = class_pairs(wanted.spots);
  if (wanted.pairs.empty()) throw bad_input("no two of these ranks are joined by a link that can be measured.", "Start 2 ranks or more.");
  return wanted;
}

/// Rank 0's number on every rank.
std::int64_t share(Communicator& communicator, std::int64_t number) {
  communicator.broadcast({&number, DType::kInt64}, 1, 0).wait();
  return number;
}

/// Rank 0's pairs on every rank, which need to know no more of them than whose they are.
void share_pairs(Communicator& communicator, std::vector<ClassPair>& pairs) {
  pairs.resize(static_cast<std::size_t>(share(communicator, static_cast<std::int64_t>(pairs.size()))));
  std::vector<std::int64_t> ends;
  for (const ClassPair& pair : pairs) ends.insert(ends.end(), {pair.from, pair.to});
  communicator.broadcast({ends.data(), DType::kInt64}, ends.size(), 0).wait();
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    pairs[i].from = static_cast<int>(ends[2 * i]);
    pairs[i].to = static_cast<int>(ends[2 * i + 1]);
  }
}

/// Both directions; a link is as fast as the slower of them.
MeasuredLink measure(Communicator& communicator, const ClassPair& pair, std::span<const Bytes> sizes) {
  const LinkFit there = fit_link(time_messages(communicator, pair.from, pair.to, sizes));
  const LinkFit back = fit_link(time_messages(communicator, pair.to, pair.from, sizes));
  const bool slower = back.beta < there.beta;
  return {pair, slower ? back : there, 0, slower ? there.beta / back.beta : back.beta / there.beta};
}

std::vector<MeasuredLink> measure_all(Communicator& communicator, const std::vector<ClassPair>& pairs, std::span<const Bytes> sizes) {
  std::vector<MeasuredLink> links;
  std::optional<Seconds> memory_alpha;
  for (const ClassPair& pair : pairs) {
    MeasuredLink& link = links.emplace_back(measure(communicator, pair, sizes));
    link.alpha_of_link = alpha_of_link(pair, link.fit, memory_alpha);
    if (pair.kind == LinkKind::kSharedMemory) memory_alpha = link.alpha_of_link;
  }
  return links;
}

/// A network whose interfaces state no speed gets the slowest class that can carry what was measured.
void name_unstated_ports(std::vector<MeasuredLink>& links, Wanted& wanted) {
  for (MeasuredLink& link : links) {
    if (!link.pair.name.empty()) continue;
    const RankSpot& first = wanted.spots[static_cast<std::size_t>(link.pair.from)];
    link.pair.name = port_class_by_beta(first.port_kind, link.fit.beta, first.rdma);
    wanted.left_out.push_back("The interfaces between hosts don't state their speed: the class is the slowest that can carry what was measured, " +
                              link.pair.name + ".");
    for (RankSpot& spot : wanted.spots) {
      if (spot.network && spot.port.empty()) spot.port = link.pair.name;
    }
  }
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

std::string between(const ClassPair& pair, const std::vector<RankSpot>& spots) {
  const RankSpot& a = spots[static_cast<std::size_t>(pair.from)];
  const RankSpot& b = spots[static_cast<std::size_t>(pair.to)];
  if (a.host == b.host) return fmt::format("ranks {} and {} on {}", pair.from, pair.to, a.host_name);
  return fmt::format("rank {} on {} and rank {} on {}", pair.from, a.host_name, pair.to, b.host_name);
}

/// What the file has a link for; marks the rest as not saved.
std::vector<MeasuredClass> figures_to_keep(std::vector<MeasuredLink>& links, const Wanted& wanted) {
  std::vector<MeasuredClass> figures;
  for (MeasuredLink& link : links) {
    const bool of_cores = link.pair.kind == LinkKind::kSharedMemory || link.pair.kind == LinkKind::kSockets;
    link.saved = !wanted.known || wanted.classes.cores || !of_cores;
    if (!link.saved) continue;
    figures.push_back({link.pair.name, link.alpha_of_link, link.fit.beta, link.fit.residual, kFitSource, between(link.pair, wanted.spots), today(), link.fit.sizes});
  }
  return figures;
}

}  // namespace

int fit_links(Communicator& communicator, const FitOptions& options) {
  std::vector<RankSpot> spots = introduce_ranks(communicator);
  Wanted wanted;
  std::optional<Error> refusal;
  if (communicator.rank() == 0) {
    try {
      wanted = choose_pairs(options.file, std::move(spots));
    } catch (const Error& error) {
      refusal = error;
    }
  }
  const auto code = static_cast<int>(share(communicator, refusal ? exit_code(refusal->kind()) : 0));
  if (refusal) throw *refusal;
  if (code != 0) return code;
  share_pairs(communicator, wanted.pairs);
  std::vector<MeasuredLink> links = measure_all(communicator, wanted.pairs, options.sizes);
  communicator.barrier().wait();
  if (communicator.rank() != 0) return 0;
  name_unstated_ports(links, wanted);
  const std::vector<MeasuredClass> figures = figures_to_keep(links, wanted);
  const bool fresh = !figures.empty() && keep_figures(options.file, figures, wanted.spots);
  print_links(links, options.json);
  print_notes(links, wanted.left_out, options.file, options.json, fresh);
  return 0;
}

}  // namespace wirewise::bench
