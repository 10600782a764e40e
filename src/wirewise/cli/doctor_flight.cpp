// `wirewise doctor flight DIR`: which rank diverged, and where, from the flight records of all ranks.
#include "wirewise/cli/doctor_flight.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>

#include "wirewise/base/text.h"
#include "wirewise/cli/commands.h"
#include "wirewise/cli/doctor_flight_view.h"

namespace wirewise {
namespace {

std::string seconds_text(std::int64_t nanoseconds) {
  char text[32];
  const double seconds = static_cast<double>(nanoseconds) / 1e9;
  if (seconds >= 1) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  } else {
    std::snprintf(text, sizeof text, seconds >= 1e-3 ? "%.1f ms" : "%.3f ms", seconds * 1e3);
  }
  return text;
}

class Diagnosis {
 public:
  explicit Diagnosis(const FlightFolder& folder) : folder_(folder), views_(flight_views(folder)) {}

  std::vector<Finding> run() {
    if (!folder_.dumps.empty()) {
      for (const FlightView& view : views_) {
        const auto parted = find_divergence(view);
        find_absent(view, parted);
        find_unmatched_messages(view);
      }
      find_errors();
      find_silent();
      for (const FlightView& view : views_) find_slowest(view);
    }
    findings_.insert(findings_.end(), folder_.findings.begin(), folder_.findings.end());
    sort_findings(findings_);
    return std::move(findings_);
  }

 private:
  /// The first call that ranks don't agree on.
  std::optional<std::uint64_t> find_divergence(const FlightView& view) {
    std::set<std::uint64_t> sequences;
    for (const auto& calls : view.calls) {
      for (const auto& [sequence, call] : calls) sequences.insert(sequence);
    }
    for (const std::uint64_t sequence : sequences) {
      std::map<std::string, std::vector<std::size_t>> sides;
      for (std::size_t r = 0; r < view.size(); ++r) {
        if (const FlightCall* const call = view.call_at(r, sequence)) sides[call->key].push_back(r);
      }
      if (sides.size() < 2) continue;
      std::vector<std::vector<std::size_t>> ordered;
      for (auto& [key, ranks] : sides) ordered.push_back(ranks);
      std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.size() > b.size() || (a.size() == b.size() && a < b); });
      tell_divergence(view, sequence, ordered);
      return sequence;
    }
    return std::nullopt;
  }

  void tell_divergence(const FlightView& view, std::uint64_t sequence, const std::vector<std::vector<std::size_t>>& sides) {
    const std::vector<std::size_t>& most = sides.front();
    std::string title = "ranks disagree in " + view.place(sequence) + ": ";
    std::string evidence;
    for (std::size_t i = 0; i < std::min(sides.size(), kMostNamedRanks); ++i) {
      const FlightCall& call = *view.call_at(sides[i].front(), sequence);
      title += (i == 0 ? "" : ", ") + view.names(sides[i]) + " called " + called(call);
      if (i == 0) continue;
      for (const std::size_t r : sides[i]) {
        const std::string how = shift(view, most.front(), r, sequence);
        if (!how.empty()) evidence += view.who(r) + " " + how + " ";
        if (evidence.size() > 2000) break;
      }
    }
    if (const FlightCall* const before = sequence > 0 ? view.call_at(most.front(), sequence - 1) : nullptr) {
      evidence += "Before it all called " + called(*before) + ".";
    } else if (sequence == 0) {
      evidence += "It is the communicator's first call.";
    }
    findings_.push_back({Severity::kError, title + ".", evidence,
                         "Make all ranks call the same operations in one order, with equal types, counts, root and reduction: look for a branch that "
                         "not all ranks take."});
  }

  /// How rank `odd`'s calls relate to those of rank `even` from `sequence` on, where neighbours tell.
  [[nodiscard]] static std::string shift(const FlightView& view, std::size_t even, std::size_t odd, std::uint64_t sequence) {
    const auto same = [&](std::uint64_t a, std::uint64_t b) {
      const FlightCall* const first = view.call_at(even, a);
      const FlightCall* const second = view.call_at(odd, b);
      return first != nullptr && second != nullptr && first->key == second->key;
    };
    const bool ahead = same(sequence + 1, sequence);
    const bool behind = same(sequence, sequence + 1);
    if (ahead && behind) return "made calls " + std::to_string(sequence) + " and " + std::to_string(sequence + 1) + " in the other order.";
    if (ahead) return "left out " + called(*view.call_at(even, sequence)) + ": its call is the others' next.";
    if (behind) return "made a call more, " + called(*view.call_at(odd, sequence)) + ": its next is what the others called.";
    return {};
  }

  /// Ranks that have not entered a call that others wait in.
  void find_absent(const FlightView& view, std::optional<std::uint64_t> parted) {
    std::set<std::uint64_t> waiting;
    for (const auto& calls : view.calls) {
      for (const auto& [sequence, call] : calls) {
        if (call->state != "completed") waiting.insert(sequence);
      }
    }
    for (const std::uint64_t sequence : waiting) {
      if (parted && sequence >= *parted) return;
      std::vector<std::size_t> absent;
      std::vector<std::size_t> present;
      for (std::size_t r = 0; r < view.size(); ++r) {
        const bool is_absent = view.known[r] ? view.entered[r] <= sequence : said_absent(view, sequence, r);
        if (is_absent) absent.push_back(r);
        if (view.call_at(r, sequence) != nullptr) present.push_back(r);
      }
      if (absent.empty()) {
        tell_unfinished(view, sequence);
        continue;
      }
      return tell_absent(view, sequence, absent, present);
    }
  }

  static bool said_absent(const FlightView& view, std::uint64_t sequence, std::size_t rank) {
    return std::any_of(view.errors.begin(), view.errors.end(), [&](const auto& error) {
      const FlightError& one = *error.second;
      return one.call && !one.call->message && one.call->sequence == sequence &&
             std::find(one.missing.begin(), one.missing.end(), std::pair(static_cast<int>(rank), false)) != one.missing.end();
    });
  }

  void tell_absent(const FlightView& view, std::uint64_t sequence, const std::vector<std::size_t>& absent, const std::vector<std::size_t>& present) {
    const FlightCall& call = *view.call_at(present.front(), sequence);
    std::string evidence;
    for (std::size_t i = 0; i < std::min(absent.size(), kMostNamedRanks); ++i) evidence += where_is(view, absent[i]) + " ";
    std::size_t first = present.front();
    for (const std::size_t r : present) {
      if (view.call_at(r, sequence)->issued.value_or(0) < view.call_at(first, sequence)->issued.value_or(0)) first = r;
    }
    if (const FlightCall& earliest = *view.call_at(first, sequence); earliest.issued) {
      evidence += view.who(first) + " entered it first and had waited " + seconds_text(view.dumps[first]->time - *earliest.issued) + " when its record was written.";
    }
    findings_.push_back({view.errors.empty() ? Severity::kWarning : Severity::kError,
                         view.names(absent) + (absent.size() == 1 ? " has" : " have") + " not entered " + view.place(sequence) + ", " + called(call) +
                             ", in which " + view.names(present) + (present.size() == 1 ? " waits." : " wait."),
                         evidence,
                         "See what " + std::string(absent.size() == 1 ? "that rank does" : "those ranks do") +
                             ": a branch that not all ranks take, a slow or blocked step outside of collectives, a rank that died."});
  }

  /// What is known of a rank that is missed.
  [[nodiscard]] std::string where_is(const FlightView& view, std::size_t r) const {
    std::string text = view.who(r);
    if (view.dumps[r] == nullptr) text += " left no record;";
    if (!view.known[r]) return text + " how far it came is unknown.";
    if (view.entered[r] == 0) {
      text += " made no collective call of " + view.party->name;
    } else {
      text += " last entered call " + std::to_string(view.entered[r] - 1);
      if (const FlightCall* const last = view.call_at(r, view.entered[r] - 1)) {
        text += " (" + called(*last) + ", " + last->state + ")";
      }
    }
    if (view.dumps[r] != nullptr) {
      // Where it waits instead.
      const auto& calls = view.dumps[r]->calls;
      const auto other = std::find_if(calls.rbegin(), calls.rend(), [](const FlightCall& call) { return call.state != "completed"; });
      if (other != calls.rend()) {
        const auto party = view.dumps[r]->parties.find(other->communicator);
        text += "; it waits in " + called(*other) + (party == view.dumps[r]->parties.end() ? "" : " of " + party->second.name);
      }
    }
    return text + ".";
  }

  /// All entered a call, and some rank never finished its part.
  void tell_unfinished(const FlightView& view, std::uint64_t sequence) {
    std::set<std::size_t> late;
    for (const auto& [dump, error] : view.errors) {
      if (!error->call || error->call->message || error->call->sequence != sequence) continue;
      for (const auto& [rank, arrived] : error->missing) {
        if (arrived && rank >= 0 && static_cast<std::size_t>(rank) < view.size() && view.dumps[static_cast<std::size_t>(rank)] == nullptr) {
          late.insert(static_cast<std::size_t>(rank));
        }
      }
    }
    if (late.empty()) return;
    const std::vector<std::size_t> ranks(late.begin(), late.end());
    const FlightCall* call = nullptr;
    for (std::size_t r = 0; r < view.size() && call == nullptr; ++r) call = view.call_at(r, sequence);
    findings_.push_back({Severity::kError, view.names(ranks) + " entered " + view.place(sequence) + ", " + called(*call) + ", and did not finish it.",
                         "Peers saw the call, but not its end, and there is no record of " + view.who(ranks.front()) + ".",
                         "It died or was stopped in the midst of it: look at its own output and the kernel log."});
  }

  /// Receives whose message was never sent.
  void find_unmatched_messages(const FlightView& view) {
    for (const auto& [dump, error] : view.errors) {
      if (!error->call || !error->call->message || error->call->send) continue;
      const FlightCall& wanted = *error->call;
      const auto self = static_cast<std::size_t>(std::find(view.dumps.begin(), view.dumps.end(), dump) - view.dumps.begin());
      if (wanted.peer < 0 || static_cast<std::size_t>(wanted.peer) >= view.size() || self >= view.size()) continue;
      const auto peer = static_cast<std::size_t>(wanted.peer);
      const FlightDump* const theirs = view.dumps[peer];
      if (theirs == nullptr || !theirs->whole || !dump->whole) continue;
      const auto count = [&](const FlightDump& of, bool sends, std::size_t other) {
        return std::count_if(of.calls.begin(), of.calls.end(), [&](const FlightCall& call) {
          const auto party = of.parties.find(call.communicator);
          return call.message && call.send == sends && call.peer == static_cast<int>(other) && call.tag == wanted.tag && party != of.parties.end() &&
                 party->second.name == view.party->name && party->second.instance == view.party->instance;
        });
      };
      const auto sent = count(*theirs, true, self);
      const auto received = count(*dump, false, peer);
      if (sent >= received) continue;
      findings_.push_back({Severity::kError, view.who(self) + " waits for a message with tag " + std::to_string(wanted.tag) + " that " + view.short_name(peer) + " never sent.",
                           "It asked for " + std::to_string(received) + " such messages; " + view.short_name(peer) + " sent " + std::to_string(sent) + ". " +
                               where_is(view, peer),
                           "Make sends and receives match in peer and tag."});
    }
  }

  /// What ranks said themselves: each first cause once.
  void find_errors() {
    std::map<std::string, std::pair<const FlightError*, std::vector<int>>> said;
    for (const FlightDump& dump : folder_.dumps) {
      if (dump.errors.empty()) continue;
      auto& entry = said[dump.errors.front().sentence];
      if (entry.first == nullptr || dump.errors.front().time < entry.first->time) entry.first = &dump.errors.front();
      entry.second.push_back(dump.rank);
    }
    std::vector<std::pair<const FlightError*, std::vector<int>>> ordered;
    for (auto& [sentence, entry] : said) ordered.push_back(std::move(entry));
    std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.first->time < b.first->time; });
    for (const auto& [error, ranks] : ordered) {
      findings_.push_back({Severity::kError, error->sentence, "The error (" + error->kind + ") of " + ranks_text(ranks) + ".", error->remedy});
    }
  }

  /// Ranks without a record.
  void find_silent() {
    const int world = folder_.dumps.front().world_size;
    std::vector<int> silent;
    auto dump = folder_.dumps.begin();
    std::size_t count = 0;
    for (int r = 0; r < world; ++r) {
      if (dump != folder_.dumps.end() && dump->rank == r) {
        ++dump;
      } else if (++count <= kMostNamedRanks + 1) {
        silent.push_back(r);
      }
    }
    if (count == 0) return;
    std::string names = ranks_text(silent);
    if (count > kMostNamedRanks) {
      silent.resize(kMostNamedRanks);
      names = ranks_text(silent) + " and " + std::to_string(count - kMostNamedRanks) + " more";
    }
    std::string evidence = std::to_string(folder_.dumps.size()) + " of " + std::to_string(world) + " ranks left one.";
    for (const FlightView& view : views_) {
      for (std::size_t r = 0; r < view.size(); ++r) {
        if (view.dumps[r] != nullptr || !view.known[r] || !std::binary_search(silent.begin(), silent.end(), view.job_rank[r])) continue;
        evidence += " Peers saw " + view.who(r) + " enter " + std::to_string(view.entered[r]) + " collectives of " + view.party->name + ".";
        if (evidence.size() > 4000) break;
      }
    }
    const bool failed = std::any_of(folder_.dumps.begin(), folder_.dumps.end(), [](const FlightDump& one) { return !one.errors.empty(); });
    findings_.push_back({failed ? Severity::kError : Severity::kWarning, names + " left no flight record.", evidence,
                         "Look at their own output and the kernel log: they were killed (for memory, perhaps) or stopped, or wrote to another host's disk; "
                         "gather the records of all hosts."});
  }

  /// Who comes last to calls that all ranks entered, and how late.
  void find_slowest(const FlightView& view) {
    if (view.size() < 2) return;
    std::vector<std::vector<std::int64_t>> late(view.size());
    std::vector<std::pair<std::int64_t, std::uint64_t>> worst(view.size());
    std::size_t calls = 0;
    if (std::any_of(view.dumps.begin(), view.dumps.end(), [](const FlightDump* dump) { return dump == nullptr; })) return;
    for (const auto& [sequence, call] : view.calls.front()) {
      std::vector<std::pair<std::int64_t, std::size_t>> times;
      for (std::size_t r = 0; r < view.size(); ++r) {
        const FlightCall* const one = view.call_at(r, sequence);
        if (one != nullptr && one->issued) times.emplace_back(*one->issued, r);
      }
      if (times.size() < view.size()) continue;
      ++calls;
      std::sort(times.begin(), times.end());
      // Against the middle of the others.
      const std::int64_t lateness = times.back().first - times[(times.size() - 1) / 2].first;
      const std::size_t last = times.back().second;
      late[last].push_back(lateness);
      worst[last] = std::max(worst[last], {lateness, sequence});
    }
    if (calls == 0) return;
    std::size_t slowest = 0;
    std::int64_t most = -1;
    for (std::size_t r = 0; r < view.size(); ++r) {
      std::int64_t sum = 0;
      for (const std::int64_t one : late[r]) sum += one;
      if (sum > most) {
        most = sum;
        slowest = r;
      }
    }
    std::vector<std::int64_t>& times = late[slowest];
    std::sort(times.begin(), times.end());
    const FlightCall& call = *view.call_at(slowest, worst[slowest].second);
    findings_.push_back({Severity::kInfo,
                         view.short_name(slowest) + " is the slowest to enter: last in " + std::to_string(times.size()) + " of " + std::to_string(calls) + " calls of " +
                             view.party->name + ", at most " + seconds_text(worst[slowest].first) + " late.",
                         view.who(slowest) + " came " + seconds_text(times[times.size() / 2]) + " after the median rank in half of these calls; the latest was call " +
                             std::to_string(worst[slowest].second) + ", " + called(call) + ". Between hosts, clocks may differ.",
                         "The others wait for it: compare its load, its input pipeline and its device with theirs."});
  }

  const FlightFolder& folder_;
  std::vector<FlightView> views_;
  std::vector<Finding> findings_;
};

struct Arguments {
  std::string folder;
  bool json = false;
};

}  // namespace

std::vector<Finding> diagnose_flight(const FlightFolder& folder) { return Diagnosis(folder).run(); }

void register_doctor_flight(CLI::App& doctor, int& exit) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = doctor.add_subcommand("flight", "Which rank diverged, from the flight records of a run");
  command->add_option("folder", arguments->folder, "Folder of the records: WIREWISE_FLIGHT_DIR, or OUT/flight of train")->required();
  command->add_flag("--json", arguments->json, "One line of JSON");
  command->callback([arguments, &exit] {
    const FlightFolder folder = read_flight_folder(arguments->folder);
    print_findings(diagnose_flight(folder), arguments->json, std::to_string(folder.dumps.size()) + " records read; the ranks agree.");
    exit = 0;
  });
}

}  // namespace wirewise
