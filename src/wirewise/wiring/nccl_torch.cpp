// What PyTorch says of NCCL: collectives that its watchdog gave up, and errors that it passed on.
#include <algorithm>
#include <string_view>
#include <utility>

#include "wirewise/base/text.h"
#include "wirewise/wiring/nccl_setup.h"

namespace wirewise {
namespace {

constexpr std::size_t kMost = 4096;  // of ranks' messages

/// The digits behind the last `name` of a text, -1 where there are none.
long long number_after(std::string_view text, std::string_view name) {
  const std::size_t at = text.rfind(name);
  if (at == std::string_view::npos) return -1;
  const std::size_t start = at + name.size();
  std::size_t end = start;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  return parse_integer(text.substr(start, end - start)).value_or(-1);
}

/// "[Rank 3]", "[PG ID 1 PG GUID 1 Rank 3]", or else the "[rank3]:" that torchrun puts before a line.
int rank_in(std::string_view text) {
  long long rank = number_after(text, "Rank ");
  if (rank < 0) rank = number_after(text, "[rank");
  return rank >= 0 && rank < 1 << 20 ? static_cast<int>(rank) : -1;
}

/// "default_pg" of "[PG 0 (default_pg) Rank 3]" and "[PG ID 0 PG GUID 0(default_pg) Rank 3]"; "1" of "[PG ID 1 PG GUID 1 Rank 3]".
std::string group_in(std::string_view text) {
  const std::size_t rank = text.rfind(" Rank ");
  const std::size_t group = rank == std::string_view::npos ? rank : text.substr(0, rank).rfind("[PG ");
  if (group == std::string_view::npos) return {};
  const std::string_view name = text.substr(group + 4, rank - group - 4);
  const std::size_t open = name.find('(');
  if (open != std::string_view::npos) return std::string(name.substr(open + 1, name.find(')', open) - open - 1));
  const std::size_t last = name.rfind(' ');
  return std::string(last == std::string_view::npos ? name : name.substr(last + 1));
}

/// "ALLREDUCE" of "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, …".
std::string value_of(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return {};
  const std::size_t start = at + key.size();
  return std::string(text.substr(start, text.find_first_of(",) ", start) - start));
}

/// "[rank0]: Call to …" without what torchrun puts before it.
std::string_view without_rank(std::string_view text) {
  const std::size_t rank = text.find("[rank"), end = text.find("]:", rank == std::string_view::npos ? 0 : rank);
  return rank == std::string_view::npos || end == std::string_view::npos ? text : trimmed(text.substr(end + 2));
}

}  // namespace

bool TorchLines::read(std::string_view text, int number, NcclLog& log) {
  if (std::exchange(last_error_, false) && !log.errors.empty() && log.errors.back().last.empty()) {
    log.errors.back().last = std::string(without_rank(text));
    return true;
  }
  const std::size_t watchdog = text.find("Watchdog caught collective operation timeout");
  if (watchdog != std::string_view::npos) {
    const std::string_view before = text.substr(0, watchdog), work = text.substr(watchdog);
    NcclTimeout timeout;
    timeout.line = number;
    timeout.rank = rank_in(before);
    timeout.group = group_in(before);
    timeout.work = number_after(work, "SeqNum=");
    timeout.operation = value_of(work, "OpType=");
    timeout.elements = number_after(work, "NumelIn=");
    timeout.milliseconds = number_after(work, "ran for ");
    const auto same = [&](const NcclTimeout& known) { return known.rank == timeout.rank && known.group == timeout.group && known.work == timeout.work; };
    if (log.timeouts.size() < kMost && std::none_of(log.timeouts.begin(), log.timeouts.end(), same)) log.timeouts.push_back(std::move(timeout));
    return true;
  }
  const std::size_t enqueued = text.find("last enqueued ");
  if (enqueued != std::string_view::npos && text.find("last completed ") != std::string_view::npos) {
    const std::string_view before = text.substr(0, enqueued), work = text.substr(enqueued);
    const int rank = rank_in(before);
    const long long done = number_after(work, work.find("last completed NCCL work") != std::string_view::npos ? "last completed NCCL work: " : "last completed work: ");
    if (rank >= 0 && done >= -1 && log.completed.size() < kMost) log.completed[{group_in(before), rank}] = done;
    return true;
  }
  for (const std::string_view what : {"unhandled system error", "unhandled cuda error", "internal error", "invalid usage", "remote process exited or there was a network error"}) {
    const std::size_t nccl = text.find("NCCL");
    if (nccl == std::string_view::npos || text.find(what) == std::string_view::npos || text.find("rror") == std::string_view::npos) continue;
    const auto known = std::find_if(log.errors.begin(), log.errors.end(), [&](const NcclError& error) { return error.what == what; });
    if (known != log.errors.end()) ++known->count;
    else log.errors.push_back({number, std::string(what), {}, 1});
    return true;
  }
  // The next line of PyTorch's report, or all that is left of it.
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"ncclSystemError:", "unhandled system error"}, {"ncclUnhandledCudaError:", "unhandled cuda error"}, {"ncclInternalError:", "internal error"},
                                                                      {"ncclInvalidUsage:", "invalid usage"},         {"ncclInvalidArgument:", "invalid argument"},         {"ncclRemoteError:", "remote process exited or there was a network error"}};
  for (const auto& [name, meaning] : kNames) {
    if (text.find(name) == std::string_view::npos) continue;
    const std::string_view what = meaning;
    if (std::none_of(log.errors.begin(), log.errors.end(), [&](const NcclError& error) { return error.what == what; })) log.errors.push_back({number, std::string(what), {}, 1});
    return true;
  }
  if (const std::size_t last = text.find("Last error:"); last != std::string_view::npos && !log.errors.empty()) {
    const std::string_view rest = trimmed(text.substr(last + 11));
    if (rest.empty()) last_error_ = true;
    else if (log.errors.back().last.empty()) log.errors.back().last = std::string(rest);
    return true;
  }
  return false;
}

}  // namespace wirewise
