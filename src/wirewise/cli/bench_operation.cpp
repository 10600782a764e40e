#include "wirewise/cli/bench_operation.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/base/nearest.h"
#include "wirewise/base/text.h"

namespace wirewise::bench {
namespace {

constexpr std::array<std::pair<Op, std::string_view>, 10> kOps{{
    {Op::kAllReduce, "all_reduce"},
    {Op::kAllGather, "all_gather"},
    {Op::kReduceScatter, "reduce_scatter"},
    {Op::kBroadcast, "broadcast"},
    {Op::kReduce, "reduce"},
    {Op::kGather, "gather"},
    {Op::kScatter, "scatter"},
    {Op::kAllToAll, "all_to_all"},
    {Op::kSendRecv, "send_recv"},
    {Op::kBarrier, "barrier"},
}};

constexpr std::array<std::pair<Reduction, std::string_view>, 8> kReductions{{
    {Reduction::kSum, "sum"},
    {Reduction::kAverage, "avg"},
    {Reduction::kProduct, "prod"},
    {Reduction::kMin, "min"},
    {Reduction::kMax, "max"},
    {Reduction::kBitAnd, "band"},
    {Reduction::kBitOr, "bor"},
    {Reduction::kBitXor, "bxor"},
}};

template <typename Table, typename Value>
std::string_view name_in(const Table& table, Value value) noexcept {
  for (const auto& [known, name] : table) {
    if (known == value) return name;
  }
  return "unknown";
}

template <typename Table>
auto parse_in(const Table& table, const std::string& text, const std::string& option) {
  std::vector<std::string> names;
  for (const auto& [value, name] : table) {
    if (name == text) return value;
    names.emplace_back(name);
  }
  throw bad_input(option + ": \"" + printable(text) + "\" is unknown.", suggest(text, names));
}

/// Operations whose buffer is the parts of all ranks back to back.
bool is_whole_of_parts(Op op) noexcept {
  return op == Op::kAllGather || op == Op::kReduceScatter || op == Op::kGather || op == Op::kScatter || op == Op::kAllToAll;
}

}  // namespace

std::string_view name_of(Op op) noexcept { return name_in(kOps, op); }
std::string_view name_of(Reduction redop) noexcept { return name_in(kReductions, redop); }

std::vector<Op> parse_ops(std::string_view text) {
  std::vector<Op> ops;
  for (const std::string& word : split(text, ',')) {
    if (word == "all") {
      for (const auto& [op, name] : kOps) ops.push_back(op);
    } else {
      ops.push_back(parse_in(kOps, word, "--op"));
    }
  }
  if (ops.empty()) throw bad_input("--op is empty.", "Name operations, such as all_reduce,all_gather, or all.");
  return ops;
}

Reduction parse_reduction(std::string_view text) { return parse_in(kReductions, std::string(text), "--redop"); }

bool has_form(Op op, bool in_place) noexcept {
  switch (op) {
    case Op::kBroadcast: return in_place;
    case Op::kAllToAll:
    case Op::kSendRecv:
    case Op::kBarrier: return !in_place;
    default: return true;
  }
}

Shape shape_of(Op op, DType dtype, Bytes wanted, int ranks) noexcept {
  Shape shape;
  if (op == Op::kBarrier) return shape;
  const Bytes parts = is_whole_of_parts(op) ? static_cast<Bytes>(ranks) : 1;
  const Bytes element = size_of(dtype);
  shape.count = wanted == 0 ? 0 : std::max<Bytes>(1, wanted / (parts * element));
  const Bytes part = shape.count * element;
  shape.size = parts * part;
  shape.in = op == Op::kAllGather || op == Op::kGather ? part : shape.size;
  shape.out = op == Op::kReduceScatter || op == Op::kScatter ? part : shape.size;
  return shape;
}

double bus_factor(Op op, int ranks) noexcept {
  const double n = ranks;
  switch (op) {
    case Op::kAllReduce: return 2 * (n - 1) / n;
    case Op::kAllGather:
    case Op::kReduceScatter:
    case Op::kGather:
    case Op::kScatter:
    case Op::kAllToAll: return (n - 1) / n;
    case Op::kBroadcast:
    case Op::kReduce:
    case Op::kSendRecv:
    case Op::kBarrier: return 1;
  }
  return 1;
}

Traffic least_traffic(Op op, Bytes size, int ranks, bool in_place) noexcept {
  const double s = static_cast<double>(size);
  const double n = ranks;
  const double others = s * (n - 1) / n;  // the parts of a whole that are not the rank's own
  if (ranks == 1) return in_place || op == Op::kSendRecv || op == Op::kBarrier ? Traffic{} : Traffic{s, s};
  switch (op) {
    case Op::kAllReduce: return {n * s, n * s};
    case Op::kReduceScatter:
    case Op::kReduce: return {n * s, s};
    case Op::kAllGather: return {s, in_place ? (n - 1) * s : n * s};
    case Op::kBroadcast: return {s, (n - 1) * s};
    case Op::kGather:
    case Op::kScatter: return in_place ? Traffic{others, others} : Traffic{s, s};
    case Op::kAllToAll: return {n * s, n * s};
    case Op::kSendRecv: {
      const double pairs = ranks / 2;  // NOLINT(bugprone-integer-division): an odd rank stands by
      return {pairs * s, pairs * s};
    }
    case Op::kBarrier: return {};
  }
  return {};
}

}  // namespace wirewise::bench
