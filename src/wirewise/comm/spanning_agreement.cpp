// How the ranks of a communicator across hosts come to choose alike: what each has measured goes to all, all compute one table from it, and
// the tables' hashes are compared before the first call. And what a person reads about it with WIREWISE_DEBUG=info.
#include <bit>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "wirewise/base/cgroup.h"
#include "wirewise/base/error.h"
#include "wirewise/base/log.h"
#include "wirewise/base/text.h"
#include "wirewise/comm/calls.h"
#include "wirewise/comm/names.h"
#include "wirewise/comm/spanning_communicator.h"
#include "wirewise/comm/spanning_probe.h"
#include "wirewise/comm/ucx_network.h"

namespace wirewise::comm {
namespace {

static_assert(std::is_trivially_copyable_v<NetworkTimes>);

std::string quoted(const std::string& wishes) { return wishes.empty() ? "no WIREWISE_ALGO" : "WIREWISE_ALGO=" + printable(wishes); }

Error disagreement(const std::string& first, const std::string& has, const std::string& second, const std::string& other,
                   const std::string& remedy) {
  return Error(ErrorKind::kMismatch, "ranks disagree on algorithms: " + first + " has " + has + ", " + second + " has " + other + ".", remedy);
}

/// "0-3, 8".
std::string ranges(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    parts.push_back(std::to_string(ranks[i]) + (j > i ? "-" + std::to_string(ranks[j]) : ""));
    i = j + 1;
  }
  return join(parts, ", ");
}

}  // namespace

void SpanningCommunicator::agree(std::optional<ChoiceBasis> parent) {
  const auto identity = [this](std::size_t r) { return group_->name_of_rank(static_cast<int>(r)); };
  const HostLayout layout = HostLayout::of(group_->hosts());
  CallOptions call;
  call.label = "choosing algorithms";
  call.progress = CallOptions::Progress::kOnWait;
  CostModel model;
  std::vector<AlgorithmWish> wishes;
  if (!parent) {
    const auto measured = std::make_shared<NetworkTimes>();
    group_->issue(std::make_shared<SpanningProbe>(group_, check_barrier(call), call, measured)).wait();
    std::string own(reinterpret_cast<const char*>(measured.get()), sizeof(NetworkTimes));
    if (const char* const wanted = std::getenv("WIREWISE_ALGO")) own += wanted;
    const std::vector<std::string> all = gather_texts(own);
    const std::string wanted = all[0].substr(sizeof(NetworkTimes));
    NetworkTimes slowest;
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (const std::string theirs = all[r].substr(sizeof(NetworkTimes)); theirs != wanted) {
        throw disagreement(identity(0), quoted(wanted), identity(r), quoted(theirs), "Set WIREWISE_ALGO alike for all ranks, or for none.");
      }
      NetworkTimes theirs;
      std::memcpy(&theirs, all[r].data(), sizeof theirs);
      if (r == 0) slowest = theirs;
      slowest.take_worse(theirs);
    }
    model = slowest.model();
    wishes = parse_algorithms(wanted);
  } else {
    // A part of the ranks may be laid out otherwise: wishes that can't be there are left to the table.
    model = parent->model;
    for (const AlgorithmWish& wish : parent->wishes) {
      const std::string why = why_unfit(wish.algorithm, layout);
      if (why.empty()) {
        wishes.push_back(wish);
      } else if (rank() == 0) {
        log_info(group_->options().name + ": " + std::string(name_of(wish.operation)) + "=" + std::string(name_of(wish.algorithm)) +
                 " is left out here: it needs " + why + ".");
      }
    }
  }
  auto table = std::make_shared<AlgorithmTable>(model, layout, std::move(wishes));
  const std::string own = table->hash();
  std::string hashes(own.size() * static_cast<std::size_t>(size()), '\0');
  all_gather(ConstBuffer{own.data(), DType::kUInt8}, Buffer{hashes.data(), DType::kUInt8}, own.size(), call).wait();
  for (std::size_t r = 1; r < static_cast<std::size_t>(size()); ++r) {
    const std::string first = hashes.substr(0, own.size());
    const std::string theirs = hashes.substr(r * own.size(), own.size());
    if (theirs != first) {
      throw disagreement(identity(0), "table " + first.substr(0, 12), identity(r), "table " + theirs.substr(0, 12),
                         "Start all ranks from one build of wirewise.");
    }
  }
  table_ = std::move(table);
  if (log_enabled(LogLevel::kInfo)) report(parent.has_value());
}

void SpanningCommunicator::report(bool inherited) const {
  const HostMap& hosts = group_->hosts();
  const std::string name = group_->options().name + ": ";
  const int here = hosts.members_count(group_->host());
  const std::string cores = std::to_string(usable_cores()) + " cores for " + std::to_string(here) + (here == 1 ? " rank" : " ranks");
  const std::string path = here == 1 ? "alone on its host" : "shared memory (memfd) within the host";
  if (rank() != 0) {
    return log_info(name + group_->name_of_rank(rank()) + ", " + path + ", " + cores + ", between hosts " + group_->network().describe() +
                    "; table " + table_->hash().substr(0, 12) + ".");
  }
  std::vector<std::string> members;
  for (int h = 0; h < hosts.count(); ++h) {
    const int first = hosts.members(h).front();
    members.push_back(printable(group_->identities()[static_cast<std::size_t>(first)].host) + " (" + ranges(hosts.members(h)) + ")");
  }
  log_info(name + std::to_string(size()) + " ranks on " + std::to_string(hosts.count()) + " hosts: " + join(members, ", ") + ".");
  const std::string version = ucx_version();
  log_info(name + "between hosts " + group_->network().describe() + (version.empty() ? "" : ", UCX " + version) + "; " + path + ", " + cores +
           "; GPUDirect isn't used.");
  log_info(name + "model " + (inherited ? "as of the communicator this one was split from" : "measured just now, the worst of all ranks") + ": " +
           table_->model().describe() + ".");
  for (const std::string& line : table_->describe()) log_info(name + line + ".");
}

Algorithm SpanningCommunicator::choose(const CollectiveShape& shape) {
  if (table_ == nullptr) return Algorithm::kDirect;  // the calls by which ranks agree
  const Algorithm chosen = table_->choose(shape.operation, shape.bytes);
  if (rank() != 0 || !log_enabled(LogLevel::kInfo)) return chosen;
  const int size_class = std::bit_width(shape.bytes);
  {
    const std::lock_guard lock(told_mutex_);
    if (!told_.emplace(shape.operation, size_class).second) return chosen;
  }
  log_info(group_->options().name + ": " + name_of(shape.operation) + " of " + format_bytes(shape.bytes) + " goes by " +
           std::string(name_of(chosen)) + ", predicted " + format_seconds(table_->predicted(shape)) + ".");
  return chosen;
}

}  // namespace wirewise::comm
