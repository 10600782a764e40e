// Flight records as they are read back: those of all ranks of a run. See docs/failures.md for the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "wirewise/cli/doctor.h"

namespace wirewise {

struct FlightCall {
  std::uint32_t communicator = 0;
  bool message = false;  // send or recv: has no sequence number
  bool send = false;
  std::uint64_t sequence = 0;
  int peer = -1;
  std::int64_t tag = 0;
  std::string text;   // "all_reduce of 1024 float32, max"
  std::string key;    // equal where ranks agree on the call
  std::string label;
  std::string state;  // issued, driven, output, completed, failed
  std::optional<std::int64_t> issued;  // ns since 1970
  std::optional<std::int64_t> ended;
};

struct FlightParty {
  std::string name;
  std::uint64_t instance = 0;
  int rank = 0;
  struct Member {
    int rank = -1;  // in the job; -1: unknown
    std::string host;
    long long pid = 0;
    bool operator==(const Member&) const = default;
  };
  std::vector<Member> members;
};

struct FlightError {
  std::uint32_t communicator = 0;
  std::string kind;
  std::string sentence;
  std::string remedy;
  std::int64_t time = 0;
  std::optional<FlightCall> call;
  std::vector<std::pair<int, bool>> missing;  // ranks of the communicator; true: arrived, but not done
  std::vector<std::uint64_t> entered;         // by rank
};

struct FlightDump {
  std::string file;
  std::string host;
  long long pid = 0;
  int rank = 0;
  int world_size = 0;
  std::int64_t time = 0;
  std::vector<FlightError> errors;  // the first is the cause
  std::map<std::uint32_t, FlightParty> parties;
  std::vector<FlightCall> calls;
  bool whole = false;  // nothing has fallen out of the record
};

struct FlightFolder {
  std::vector<FlightDump> dumps;   // by rank, of one run
  std::vector<Finding> findings;   // about files
};

/// Reads all records of a folder. Torn, foreign and oversized files are findings. Throws bad input where there is no folder or no record.
[[nodiscard]] FlightFolder read_flight_folder(const std::filesystem::path& folder);
/// What the records tell together, worst first.
[[nodiscard]] std::vector<Finding> diagnose_flight(const FlightFolder& folder);

}  // namespace wirewise
