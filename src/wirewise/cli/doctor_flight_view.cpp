#include "wirewise/cli/doctor_flight_view.h"

#include <algorithm>

#include "wirewise/base/text.h"

namespace wirewise {
namespace {

void enter(FlightView& view, std::size_t rank, std::uint64_t entered) {
  view.entered[rank] = std::max(view.entered[rank], entered);
  view.known[rank] = true;
}

/// What one rank's record says of a communicator, which the record knows as `id`.
void add(FlightView& view, const FlightDump& dump, std::uint32_t id, const FlightParty& party) {
  const std::size_t size = party.members.size();
  if (view.party == nullptr) {
    view.party = &party;
    view.dumps.resize(size);
    view.calls.resize(size);
    view.entered.resize(size);
    view.known.resize(size);
  }
  const auto rank = static_cast<std::size_t>(party.rank);
  view.dumps[rank] = &dump;
  for (const FlightCall& call : dump.calls) {
    if (call.communicator != id || call.message) continue;
    view.calls[rank].emplace(call.sequence, &call);
    enter(view, rank, call.sequence + 1);
  }
  if (dump.whole) view.known[rank] = true;
  for (const FlightError& error : dump.errors) {
    if (error.communicator != id) continue;
    view.errors.emplace_back(&dump, &error);
    for (std::size_t r = 0; r < std::min(size, error.entered.size()); ++r) enter(view, r, error.entered[r]);
  }
}

}  // namespace

std::vector<FlightView> flight_views(const FlightFolder& folder) {
  std::map<std::pair<std::string, long long>, std::vector<int>> by_process;  // host and pid: ranks in the job
  std::map<std::string, FlightView> by_members;
  for (const FlightDump& dump : folder.dumps) {
    by_process[{dump.host, dump.pid}].push_back(dump.rank);
    for (const auto& [id, party] : dump.parties) {
      std::string key = party.name + "\n" + std::to_string(party.instance);
      for (const auto& member : party.members) key += "\n" + std::to_string(member.rank) + " " + member.host + " " + std::to_string(member.pid);
      add(by_members[key], dump, id, party);
    }
  }
  std::vector<FlightView> views;
  for (auto& [key, view] : by_members) {
    for (std::size_t r = 0; r < view.size(); ++r) {
      const auto& member = view.party->members[r];
      const auto process = by_process.find({member.host, member.pid});
      const int of_process = process != by_process.end() && process->second.size() == 1 ? process->second.front() : -1;
      view.job_rank.push_back(view.dumps[r] != nullptr ? view.dumps[r]->rank : member.rank >= 0 ? member.rank : of_process);
    }
    views.push_back(std::move(view));
  }
  return views;
}

const FlightCall* FlightView::call_at(std::size_t rank, std::uint64_t sequence) const {
  const auto found = calls[rank].find(sequence);
  return found == calls[rank].end() ? nullptr : found->second;
}

std::string FlightView::short_name(std::size_t rank) const {
  return job_rank[rank] >= 0 ? "rank " + std::to_string(job_rank[rank]) : "rank " + std::to_string(rank) + " of " + party->name;
}

std::string FlightView::who(std::size_t rank) const {
  const auto& member = party->members[rank];
  return short_name(rank) + " (" + member.host + ", pid " + std::to_string(member.pid) + ")";
}

std::string FlightView::names(const std::vector<std::size_t>& ranks) const {
  std::vector<int> numbers;
  std::vector<std::string> texts;
  for (const std::size_t r : ranks) {
    numbers.push_back(job_rank[r]);
    texts.push_back(short_name(r));
  }
  const bool all_known = std::none_of(numbers.begin(), numbers.end(), [](int number) { return number < 0; });
  return all_known ? ranks_text(numbers) : join(texts, ", ");
}

std::string FlightView::place(std::uint64_t sequence) const {
  return "call " + std::to_string(sequence) + " of " + party->name + " (" + std::to_string(size()) + " ranks)";
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostNamedRanks); ++i) names.push_back(std::to_string(ranks[i]));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(names, ", ") +
         (ranks.size() > kMostNamedRanks ? " and " + std::to_string(ranks.size() - kMostNamedRanks) + " more" : "");
}

std::string called(const FlightCall& call) { return call.text + (call.label.empty() ? "" : " '" + call.label + "'"); }

}  // namespace wirewise
