// The flight recorder's files. docs/failures.md describes the format.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "wirewise/comm/flight_recorder.h"
#include "wirewise/comm/names.h"
#include "wirewise/comm/unique_fd.h"

namespace wirewise::comm {
namespace {

using Json = nlohmann::ordered_json;

/// All that is told of the environment. Nothing that opens a door belongs here.
constexpr const char* kVariables[] = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_JOB_NODELIST", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "WIREWISE_NET", "WIREWISE_HOST_ID",
    "WIREWISE_DEBUG", "WIREWISE_FLIGHT_DIR", "WIREWISE_FLIGHT_ENTRIES", "WIREWISE_RESTART",
};

const char* word_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::kBadInput: return "bad_input";
    case ErrorKind::kFailed: return "failed";
    case ErrorKind::kMismatch: return "mismatch";
    case ErrorKind::kPeerLost: return "peer_lost";
    case ErrorKind::kTimeout: return "timeout";
    case ErrorKind::kStore: return "store";
    case ErrorKind::kAborted: return "aborted";
  }
  return "unknown";
}

/// The clock's ticks as nanoseconds since 1970, on the line through the recorder's start and now.
class Times {
 public:
  Times(std::uint64_t start_ticks, std::int64_t start, std::uint64_t end_ticks)
      : end_ticks_(end_ticks) {
    const auto steady = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
    wall_ = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    if (end_ticks > start_ticks) rate_ = static_cast<double>(steady - start) / static_cast<double>(end_ticks - start_ticks);
  }
  [[nodiscard]] std::int64_t now() const noexcept { return wall_; }
  [[nodiscard]] Json operator()(std::uint64_t ticks) const {
    if (ticks == 0) return nullptr;
    return wall_ - static_cast<std::int64_t>(static_cast<double>(static_cast<std::int64_t>(end_ticks_ - ticks)) * rate_);
  }

 private:
  std::uint64_t end_ticks_;
  std::int64_t wall_ = 0;
  double rate_ = 1;
};

std::string host_name() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

Json to_json(const Fingerprint& call) {
  Json json;
  if (is_message(call.operation)) {
    json["operation"] = name_of(call.operation);
    json["peer"] = call.root;
    json["tag"] = static_cast<std::int64_t>(call.hash);
  } else {
    json["sequence"] = call.sequence;
    json["operation"] = name_of(call.operation);
    if (call.root >= 0) json["root"] = call.root;
  }
  json["in"] = wirewise::name_of(call.in);
  json["out"] = wirewise::name_of(call.out);
  json["count"] = call.count;
  if (call.parts > 1) json["parts"] = call.parts;
  if (reduces(call.operation)) json["reduction"] = name_of(call.reduction);
  if (call.accumulate) json["accumulate"] = true;
  if (!is_message(call.operation)) json["signature"] = call.hash;
  if (call.label[0] != 0) json["label"] = std::string(call.label);
  return json;
}

void write_all(int file, std::string_view text, const std::filesystem::path& path) {
  while (!text.empty()) {
    const ssize_t put = ::write(file, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw Error(ErrorKind::kFailed, "can't write " + path.string() + ": " + std::strerror(errno) + ".");
    text.remove_prefix(static_cast<std::size_t>(put));
  }
}

}  // namespace

struct FlightRecorder::Entry {
  Fingerprint call;
  std::uint64_t issued = 0;
  std::uint64_t driven = 0;
  std::uint64_t output = 0;
  std::uint64_t ended = 0;
  std::uint32_t communicator = 0;
  bool failed = false;
  const char* how = nullptr;

  [[nodiscard]] const char* state() const noexcept {
    if (failed) return "failed";
    if (ended != 0) return "completed";
    if (output != 0) return "output";
    return driven != 0 ? "driven" : "issued";
  }
};

bool FlightRecorder::read(std::uint64_t call, Entry& entry) const {
  const Slot& slot = slots_[call & mask_];
  constexpr auto kOrder = std::memory_order_acquire;
  if (slot.claim.load(kOrder) != call + 1) return false;
  entry.call.sequence = slot.sequence.load(kOrder);
  entry.call.count = slot.count.load(kOrder);
  entry.call.parts = slot.parts.load(kOrder);
  entry.call.hash = slot.hash.load(kOrder);
  entry.call.root = slot.root.load(kOrder);
  const std::uint64_t kinds = slot.kinds.load(kOrder);
  entry.call.operation = static_cast<Operation>(kinds & 0xff);
  entry.call.in = static_cast<DType>(kinds >> 8 & 0xff);
  entry.call.out = static_cast<DType>(kinds >> 16 & 0xff);
  entry.call.reduction = static_cast<Reduction>(kinds >> 24 & 0xff);
  entry.call.accumulate = (kinds >> 32 & 0xff) != 0;
  entry.issued = slot.issued.load(kOrder);
  entry.driven = slot.driven.load(kOrder);
  entry.output = slot.output.load(kOrder);
  entry.ended = slot.ended.load(kOrder);
  entry.communicator = slot.communicator.load(kOrder);
  entry.failed = slot.failed.load(kOrder);
  entry.how = slot.how.load(kOrder);
  for (std::size_t i = 0; i < std::size(slot.label); ++i) {
    const std::uint64_t word = slot.label[i].load(kOrder);
    std::memcpy(entry.call.label + 8 * i, &word, sizeof word);
    if (std::memchr(entry.call.label + 8 * i, 0, 8) != nullptr) break;
  }
  entry.call.label[sizeof entry.call.label - 1] = 0;
  return slot.claim.load(std::memory_order_relaxed) == call + 1;
}

std::string FlightRecorder::text() const {
  const Times time(started_ticks_, started_, now());
  Json json{{"format", "wirewise-flight"}, {"version", 1}, {"host", host_name()}, {"pid", ::getpid()}};
  Json entries = Json::array();
  const std::uint64_t end = next_.load(std::memory_order_acquire);
  const std::uint64_t begin = end > capacity_ ? end - capacity_ : 0;
  for (std::uint64_t call = begin; call < end; ++call) {
    Entry entry;
    if (!read(call, entry)) continue;
    Json one{{"call", call}, {"communicator", entry.communicator}};
    one.update(to_json(entry.call));
    one["state"] = entry.state();
    if (entry.how != nullptr) one["how"] = entry.how;
    one["issued_ns"] = time(entry.issued);
    one["driven_ns"] = time(entry.driven);
    // What ends at once has its output with its end.
    one["output_ns"] = time(entry.output == 0 && !entry.failed ? entry.ended : entry.output);
    one[entry.failed ? "failed_ns" : "completed_ns"] = time(entry.ended);
    entries.push_back(std::move(one));
  }

  const std::lock_guard lock(mutex_);
  json["rank"] = rank_;
  json["world_size"] = world_size_;
  json["time_ns"] = time.now();
  Json failures = Json::array();
  for (const Failure& failure : failures_) {
    Json one{{"communicator", failure.what.communicator}, {"kind", word_of(failure.kind)}, {"sentence", failure.sentence},
             {"remedy", failure.remedy}, {"time_ns", failure.time}};
    one["call"] = failure.what.call ? to_json(*failure.what.call) : Json(nullptr);
    one["missing"] = Json::array();
    for (const auto& absent : failure.what.missing) one["missing"].push_back({{"rank", absent.rank}, {"arrived", absent.arrived}});
    if (!failure.what.entered.empty()) one["entered"] = failure.what.entered;
    failures.push_back(std::move(one));
  }
  json["error"] = failures.empty() ? Json(nullptr) : failures.front();
  if (!failures.empty()) failures.erase(0);
  json["later_errors"] = std::move(failures);
  Json variables = Json::object();
  for (const char* const name : kVariables) {
    if (const char* const value = std::getenv(name)) variables[name] = value;
  }
  json["environment"] = std::move(variables);
  Json parties = Json::array();
  for (const auto& [id, party] : parties_) {
    Json members = Json::array();
    for (const FlightMember& member : party.members) {
      members.push_back({{"rank", member.rank >= 0 ? Json(member.rank) : Json(nullptr)}, {"host", member.host}, {"pid", member.pid}});
    }
    parties.push_back({{"id", id}, {"name", party.name}, {"instance", party.instance}, {"rank", party.rank}, {"size", party.members.size()},
                       {"closed", party.closed_at != kNoCall}, {"members", std::move(members)}});
  }
  json["communicators"] = std::move(parties);
  json["capacity"] = capacity_;
  json["calls"] = end;
  json["entries"] = std::move(entries);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::filesystem::path FlightRecorder::dump(const std::filesystem::path& folder) {
  static std::atomic<unsigned> counter{0};
  const std::lock_guard lock(dumping_);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(ErrorKind::kFailed, "can't make the folder " + folder.string() + ": " + error.message() + ".");
  const std::string content = text();
  const std::filesystem::path target = folder / ("rank-" + std::to_string(std::max(rank(), 0)) + ".json");
  const std::filesystem::path aside = folder / (".flight-" + std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1)));
  try {
    {
      const UniqueFd file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
      if (!file.valid()) throw Error(ErrorKind::kFailed, "can't write " + aside.string() + ": " + std::strerror(errno) + ".");
      write_all(file.get(), content, aside);
    }
    if (::rename(aside.c_str(), target.c_str()) != 0) {
      throw Error(ErrorKind::kFailed, "can't write " + target.string() + ": " + std::strerror(errno) + ".");
    }
  } catch (...) {
    ::unlink(aside.c_str());
    throw;
  }
  return target;
}

}  // namespace wirewise::comm
