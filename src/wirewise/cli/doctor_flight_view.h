// The flight records of a run, by communicator: what each of its ranks called, as far as their own records and their peers' tell.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "wirewise/cli/doctor_flight.h"

namespace wirewise {

constexpr std::size_t kMostNamedRanks = 16;  // in one list

/// One communicator; ranks are its own. It points into the folder's records.
struct FlightView {
  const FlightParty* party = nullptr;
  std::vector<const FlightDump*> dumps;                           // by rank; null: no record
  std::vector<std::map<std::uint64_t, const FlightCall*>> calls;  // by rank, by sequence
  std::vector<std::uint64_t> entered;                             // by rank: collectives it is known to have called
  std::vector<bool> known;                                        // whether that is known at all
  std::vector<int> job_rank;                                      // by rank: its number in the job; -1 where nothing tells
  std::vector<std::pair<const FlightDump*, const FlightError*>> errors;

  [[nodiscard]] std::size_t size() const { return party->members.size(); }
  /// Null where its record doesn't hold it.
  [[nodiscard]] const FlightCall* call_at(std::size_t rank, std::uint64_t sequence) const;
  /// "rank 3", or "rank 1 of tp" where its number in the job is unknown.
  [[nodiscard]] std::string short_name(std::size_t rank) const;
  /// The same with its host and process.
  [[nodiscard]] std::string who(std::size_t rank) const;
  /// "ranks 0, 2, 3": the first kMostNamedRanks, and how many more; all by short_name() where a number is unknown.
  [[nodiscard]] std::string names(const std::vector<std::size_t>& ranks) const;
  /// "call 17 of world (4 ranks)".
  [[nodiscard]] std::string place(std::uint64_t sequence) const;
};

[[nodiscard]] std::vector<FlightView> flight_views(const FlightFolder& folder);

/// "ranks 0, 2, 3" of numbers in the job.
[[nodiscard]] std::string ranks_text(const std::vector<int>& ranks);
/// "all_reduce of 1024 float32 'gradients'".
[[nodiscard]] std::string called(const FlightCall& call);

}  // namespace wirewise
