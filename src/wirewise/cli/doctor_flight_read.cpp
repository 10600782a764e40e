// Reads flight records. They may be torn, of another run, or anything at all: whatever is wrong with a file is a finding.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/doctor_flight.h"

namespace wirewise {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kMostFiles = 65536;
constexpr std::uintmax_t kMostBytes = std::uintmax_t{64} << 20;
constexpr int kMostDepth = 8;
constexpr int kMostRanks = 1 << 24;
constexpr std::size_t kMostText = 4096;

/// The text of a plain file. Throws std::runtime_error that says why there is none.
std::string read_file(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) throw std::runtime_error(errno == ELOOP ? "it is a symbolic link" : std::strerror(errno));
  std::string text;
  std::string problem;
  struct stat info {};
  if (::fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    problem = "it is no plain file";
  } else if (static_cast<std::uintmax_t>(info.st_size) > kMostBytes) {
    problem = "it is larger than 64 MiB";
  } else {
    text.resize(static_cast<std::size_t>(info.st_size));
    std::size_t at = 0;
    while (at < text.size()) {
      const ssize_t got = ::read(file, text.data() + at, text.size() - at);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) problem = std::strerror(errno);
      if (got <= 0) break;
      at += static_cast<std::size_t>(got);
    }
    text.resize(at);
  }
  ::close(file);
  if (!problem.empty()) throw std::runtime_error(problem);
  return text;
}

std::string short_text(const Json& json) {
  auto text = json.get<std::string>();
  if (text.size() > kMostText) text.resize(kMostText);
  return text;
}

int rank_in(const Json& json, int size, const char* what) {
  const auto rank = json.get<std::int64_t>();
  if (rank < 0 || rank >= size) throw std::runtime_error(std::string(what) + " " + std::to_string(rank) + " is none of " + std::to_string(size));
  return static_cast<int>(rank);
}

std::optional<std::int64_t> time_of(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || found->is_null()) return std::nullopt;
  return found->get<std::int64_t>();
}

FlightCall read_call(const Json& json) {
  FlightCall call;
  const std::string operation = short_text(json.at("operation"));
  call.message = json.contains("peer");
  call.text = operation;
  const std::string in = short_text(json.at("in"));
  const std::string out = short_text(json.at("out"));
  const auto count = json.at("count").get<std::uint64_t>();
  if (operation != "barrier") call.text += " of " + std::to_string(count) + " " + in;
  if (out != in) call.text += " to " + out;
  if (const auto parts = json.find("parts"); parts != json.end()) call.text += " in " + std::to_string(parts->get<std::uint64_t>()) + " parts";
  const auto reduction = json.find("reduction");
  if (reduction != json.end() && *reduction != "sum") call.text += ", " + short_text(*reduction);
  if (json.value("accumulate", false)) call.text += ", accumulated";
  if (call.message) {
    call.send = operation == "send";
    call.peer = json.at("peer").get<int>();
    call.tag = json.at("tag").get<std::int64_t>();
    call.text += (call.send ? " to rank " : " from rank ") + std::to_string(call.peer) + " with tag " + std::to_string(call.tag);
  } else {
    call.sequence = json.at("sequence").get<std::uint64_t>();
    if (const auto root = json.find("root"); root != json.end()) call.text += ", root " + std::to_string(root->get<std::int64_t>());
    // Of a reduce only the root knows the output's type.
    call.key = operation == "reduce" ? operation + " " + in + " " + std::to_string(count) + json.value("root", Json()).dump() : call.text;
    call.key += " " + json.value("signature", Json()).dump();
  }
  if (const auto label = json.find("label"); label != json.end()) call.label = short_text(*label);
  return call;
}

FlightError read_error(const Json& json) {
  FlightError error;
  error.communicator = json.at("communicator").get<std::uint32_t>();
  error.kind = short_text(json.at("kind"));
  error.sentence = short_text(json.at("sentence"));
  error.remedy = short_text(json.at("remedy"));
  error.time = json.at("time_ns").get<std::int64_t>();
  if (!json.at("call").is_null()) error.call = read_call(json.at("call"));
  for (const Json& missing : json.at("missing")) error.missing.emplace_back(missing.at("rank").get<int>(), missing.at("arrived").get<bool>());
  if (json.contains("entered")) error.entered = json.at("entered").get<std::vector<std::uint64_t>>();
  return error;
}

FlightDump read_dump(const std::string& text) {
  const Json json = Json::parse(text, [](int depth, Json::parse_event_t, Json&) {
    if (depth > kMostDepth) throw std::runtime_error("it is nested too deeply");
    return true;
  });
  if (!json.is_object() || json.value("format", Json()) != "wirewise-flight") throw std::runtime_error("it is no flight record");
  if (json.at("version") != 1) throw std::runtime_error("it is of version " + json.at("version").dump() + ", this reads version 1");
  FlightDump dump;
  dump.host = short_text(json.at("host"));
  dump.pid = json.at("pid").get<long long>();
  dump.world_size = rank_in(json.at("world_size"), kMostRanks, "the number of ranks");
  dump.rank = rank_in(json.at("rank"), dump.world_size, "rank");
  dump.time = json.at("time_ns").get<std::int64_t>();
  for (const Json& one : json.at("communicators")) {
    FlightParty party;
    party.name = short_text(one.at("name"));
    party.instance = one.at("instance").get<std::uint64_t>();
    for (const Json& member : one.at("members")) {
      party.members.push_back({member.at("rank").is_null() ? -1 : rank_in(member.at("rank"), kMostRanks, "rank"), short_text(member.at("host")),
                               member.at("pid").get<long long>()});
    }
    party.rank = rank_in(one.at("rank"), static_cast<int>(party.members.size()), "rank");
    dump.parties.emplace(one.at("id").get<std::uint32_t>(), std::move(party));
  }
  if (!json.at("error").is_null()) dump.errors.push_back(read_error(json.at("error")));
  for (const Json& error : json.at("later_errors")) dump.errors.push_back(read_error(error));
  for (const Json& entry : json.at("entries")) {
    FlightCall call = read_call(entry);
    call.communicator = entry.at("communicator").get<std::uint32_t>();
    call.state = short_text(entry.at("state"));
    call.issued = time_of(entry, "issued_ns");
    call.ended = time_of(entry, call.state == "failed" ? "failed_ns" : "completed_ns");
    dump.calls.push_back(std::move(call));
  }
  dump.whole = json.at("calls").get<std::uint64_t>() <= json.at("capacity").get<std::uint64_t>();
  return dump;
}

/// The process that `dump` knows as rank `rank` of the job, if it does.
std::map<int, const FlightParty::Member*> known_ranks(const FlightDump& dump) {
  std::map<int, const FlightParty::Member*> known;
  for (const auto& [id, party] : dump.parties) {
    for (const auto& member : party.members) {
      if (member.rank >= 0) known.emplace(member.rank, &member);
    }
  }
  return known;
}

bool belongs(const FlightDump& dump, int world_size, const std::map<int, const FlightParty::Member*>& known) {
  if (dump.world_size != world_size) return false;
  const auto found = known.find(dump.rank);
  return found == known.end() || (found->second->host == dump.host && found->second->pid == dump.pid);
}

/// Keeps the records of one run: that of which there are most, the newest among equals.
void keep_one_run(FlightFolder& folder) {
  std::vector<FlightDump>& dumps = folder.dumps;
  std::stable_sort(dumps.begin(), dumps.end(), [](const FlightDump& a, const FlightDump& b) { return a.time > b.time; });
  const FlightDump* best = nullptr;
  std::ptrdiff_t most = 0;
  for (const FlightDump& candidate : dumps) {
    const auto known = known_ranks(candidate);
    const auto agreeing = std::count_if(dumps.begin(), dumps.end(), [&](const FlightDump& dump) { return belongs(dump, candidate.world_size, known); });
    if (best == nullptr || agreeing > most) {
      most = agreeing;
      best = &candidate;
    }
    if (2 * static_cast<std::size_t>(most) > dumps.size()) break;
  }
  if (best == nullptr) return;
  const FlightDump reference = *best;
  const auto known = known_ranks(reference);
  std::map<int, FlightDump> kept;
  for (FlightDump& dump : dumps) {
    // A record that does not fit its own list is kept where it is all there is.
    const bool ours = belongs(dump, reference.world_size, known) || (dump.rank == reference.rank && dump.file == reference.file);
    if (ours && !kept.contains(dump.rank)) {
      kept.emplace(dump.rank, std::move(dump));
      continue;
    }
    const std::string said = "It is of rank " + std::to_string(dump.rank) + " of " + std::to_string(dump.world_size) + " (" + dump.host + ", pid " +
                             std::to_string(dump.pid) + "); the others are of a run of " + std::to_string(reference.world_size) + " ranks";
    const auto found = known.find(dump.rank);
    folder.findings.push_back({Severity::kWarning, dump.file + " is of another run and was left out.",
                               said + (found == known.end() ? "." : ", in which rank " + std::to_string(dump.rank) + " was " + found->second->host + ", pid " +
                                                                       std::to_string(found->second->pid) + "."),
                               "Give each run a folder of its own."});
  }
  dumps.clear();
  for (auto& [rank, dump] : kept) dumps.push_back(std::move(dump));
}

}  // namespace

FlightFolder read_flight_folder(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw bad_input("there is no folder " + printable(folder.string()) + ".", "Name the folder of the flight records: WIREWISE_FLIGHT_DIR, or OUT/flight of train.");
  }
  std::vector<fs::path> files;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.size() > 10 && name.starts_with("rank-") && name.ends_with(".json")) files.push_back(entry->path());
  }
  if (error) throw bad_input("the folder " + printable(folder.string()) + " can't be read: " + error.message() + ".");
  if (files.empty()) {
    throw bad_input("the folder " + printable(folder.string()) + " holds no flight record.",
                    "Records are files rank-N.json, written when a communicator fails and WIREWISE_FLIGHT_DIR or train's --out is set.");
  }
  std::sort(files.begin(), files.end());
  FlightFolder result;
  if (files.size() > kMostFiles) {
    result.findings.push_back({Severity::kWarning, "only " + std::to_string(kMostFiles) + " of " + std::to_string(files.size()) + " records were read.", "", ""});
    files.resize(kMostFiles);
  }
  for (const fs::path& path : files) {
    const std::string name = path.filename().string();
    try {
      FlightDump dump = read_dump(read_file(path));
      dump.file = name;
      result.dumps.push_back(std::move(dump));
    } catch (const std::exception& cause) {
      result.findings.push_back({Severity::kWarning, name + " can't be read as a flight record.", std::string(cause.what()) + ".",
                                 "It may be torn by a full disk, or of another program; the other records are used."});
    }
  }
  keep_one_run(result);
  return result;
}

}  // namespace wirewise
