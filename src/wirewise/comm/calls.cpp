#include "wirewise/comm/calls.h"

#include <functional>
#include <numeric>
#include <string>

#include "wirewise/base/error.h"

namespace wirewise::comm {
namespace {

CallNumbers move_print(Operation operation, DType dtype, std::uint64_t count, int root) {
  CallNumbers print;
  print.operation = operation;
  print.in = print.out = dtype;
  print.count = count;
  print.root = root;
  print.parts = 1;
  return print;
}

}  // namespace

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) noexcept {
  // splitmix64's finaliser over a running sum.
  hash += value + 0x9e3779b97f4a7c15u;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  return hash ^ (hash >> 31);
}

void check_rank(int r, int size, const char* what, const char* operation) {
  if (r >= 0 && r < size) return;
  throw bad_input(std::string(operation) + ": " + what + " " + std::to_string(r) + " is none of the " + std::to_string(size) + " ranks.",
                  "Ranks count from 0.");
}

void check_pointer(const void* data, std::size_t count, const char* what, const char* operation) {
  if (data != nullptr || count == 0) return;
  throw bad_input(std::string(operation) + ": " + what + " is null, but " + std::to_string(count) + " elements are asked for.",
                  "Pass a buffer.");
}

void check_same(DType a, DType b, const char* operation) {
  if (a == b) return;
  throw bad_input(std::string(operation) + ": the input is " + std::string(wirewise::name_of(a)) + ", the output " +
                      std::string(wirewise::name_of(b)) + ".",
                  "Use one type for both.");
}

void check_overlap(const std::byte* in, std::size_t in_bytes, const std::byte* out, std::size_t out_bytes, bool allowed,
                   const char* operation) {
  if (in_bytes == 0 || out_bytes == 0 || allowed) return;
  const std::less<> before;
  if (!before(out, in + in_bytes) || !before(in, out + out_bytes)) return;
  throw bad_input(std::string(operation) + ": input and output overlap.", "Use the in-place form of the operation, or buffers that are apart.");
}

void refuse_accumulate(const CallOptions& options, const char* operation) {
  if (options.accumulate) throw bad_input(std::string(operation) + ": accumulate is for reductions.", "Leave it out.");
}

CallNumbers reduction_numbers(Operation operation, std::size_t parts, int root, Reduction op, const CallOptions& options) noexcept {
  CallNumbers print;
  print.operation = operation;
  print.reduction = op;
  print.accumulate = options.accumulate;
  print.root = root;
  print.parts = static_cast<std::uint32_t>(parts);
  return print;
}

ReducePlanPart check_reduce_part(Caller caller, CallNumbers& print, const ReducePart& part) {
  const char* const name =
      print.operation == Operation::kAllReduce ? "all_reduce" : print.operation == Operation::kReduce ? "reduce" : "reduce_scatter";
  const bool scatters = print.operation == Operation::kReduceScatter;
  const bool has_output = print.root < 0 || print.root == caller.rank;
  // The others hear the output's type from the root.
  const DType elsewhere = print.accumulate ? DType::kFloat32 : part.in.dtype;
  const ReduceKind kind{part.in.dtype, has_output ? part.out.dtype : elsewhere, print.reduction, print.accumulate};
  check_reduce_kind(kind, name);
  check_pointer(part.in.data, part.count, "the input", name);
  if (has_output) {
    check_pointer(part.out.data, part.count, "the output", name);
    const std::size_t slice = part.count * size_of(kind.in);
    const std::byte* const slot = bytes_of(part.in) + (scatters ? static_cast<std::size_t>(caller.rank) * slice : 0);
    check_overlap(bytes_of(part.in), (scatters ? static_cast<std::size_t>(caller.size) : 1) * slice, bytes_of(part.out),
                  part.count * size_of(kind.out), slot == bytes_of(part.out) && kind.in == kind.out, name);
  }
  if (print.count == 0 && print.hash == 0) {
    print.in = kind.in;
    print.out = kind.out;
  }
  print.count += part.count;
  if (print.parts > 1) {
    print.hash = mixed(mixed(print.hash, part.count), static_cast<std::uint64_t>(kind.in));
    if (print.operation != Operation::kReduce) print.hash = mixed(print.hash, static_cast<std::uint64_t>(kind.out));
  }
  return {bytes_of(part.in), bytes_of(part.out), part.count, kind, {}};
}

ReductionCall check_reduction(Caller caller, Operation operation, std::span<const ReducePart> parts, int root, Reduction op,
                              const CallOptions& options) {
  if (operation == Operation::kReduce) check_rank(root, caller.size, "root", "reduce");
  ReductionCall call{reduction_numbers(operation, parts.size(), root, op, options), {}};
  for (const ReducePart& part : parts) call.parts.push_back(check_reduce_part(caller, call.print, part));
  return call;
}

CallNumbers check_all_gather(Caller caller, std::span<const AllGatherPart> parts, const CallOptions& options) {
  refuse_accumulate(options, "all_gather");
  const auto ranks = static_cast<std::size_t>(caller.size);
  CallNumbers print = move_print(Operation::kAllGather, parts.empty() ? DType::kUInt8 : parts.front().shard.dtype, 0, -1);
  print.parts = static_cast<std::uint32_t>(parts.size());
  for (const AllGatherPart& part : parts) {
    check_same(part.shard.dtype, part.full.dtype, "all_gather");
    check_pointer(part.shard.data, part.count, "the shard", "all_gather");
    check_pointer(part.full.data, part.count, "the output", "all_gather");
    const std::size_t bytes = part.count * size_of(part.shard.dtype);
    const std::byte* const own = bytes_of(part.full) + static_cast<std::size_t>(caller.rank) * bytes;
    check_overlap(bytes_of(part.shard), bytes, bytes_of(part.full), ranks * bytes, own == bytes_of(part.shard), "all_gather");
    print.count += part.count;
    if (parts.size() > 1) print.hash = mixed(mixed(print.hash, part.count), static_cast<std::uint64_t>(part.shard.dtype));
  }
  return print;
}

CallNumbers check_broadcast(Caller caller, Buffer buffer, std::size_t count, int root, const CallOptions& options) {
  refuse_accumulate(options, "broadcast");
  check_rank(root, caller.size, "root", "broadcast");
  check_pointer(buffer.data, count, "the buffer", "broadcast");
  return move_print(Operation::kBroadcast, buffer.dtype, count, root);
}

CallNumbers check_gather(Caller caller, ConstBuffer in, Buffer out, std::size_t count, int root, const CallOptions& options) {
  refuse_accumulate(options, "gather");
  check_rank(root, caller.size, "root", "gather");
  check_pointer(in.data, count, "the input", "gather");
  if (root == caller.rank) {
    const std::size_t bytes = count * size_of(in.dtype);
    check_same(in.dtype, out.dtype, "gather");
    check_pointer(out.data, count, "the output", "gather");
    const std::byte* const own = bytes_of(out) + static_cast<std::size_t>(caller.rank) * bytes;
    check_overlap(bytes_of(in), bytes, bytes_of(out), static_cast<std::size_t>(caller.size) * bytes, own == bytes_of(in), "gather");
  }
  return move_print(Operation::kGather, in.dtype, count, root);
}

CallNumbers check_scatter(Caller caller, ConstBuffer in, Buffer out, std::size_t count, int root, const CallOptions& options) {
  refuse_accumulate(options, "scatter");
  check_rank(root, caller.size, "root", "scatter");
  check_pointer(out.data, count, "the output", "scatter");
  if (root == caller.rank) {
    const std::size_t bytes = count * size_of(out.dtype);
    check_same(in.dtype, out.dtype, "scatter");
    check_pointer(in.data, count, "the input", "scatter");
    const std::byte* const own = bytes_of(in) + static_cast<std::size_t>(caller.rank) * bytes;
    check_overlap(bytes_of(in), static_cast<std::size_t>(caller.size) * bytes, bytes_of(out), bytes, own == bytes_of(out), "scatter");
  }
  return move_print(Operation::kScatter, out.dtype, count, root);
}

CallNumbers check_all_to_all(Caller caller, ConstBuffer in, std::span<const std::size_t> send_counts, Buffer out,
                             std::span<const std::size_t> recv_counts, const CallOptions& options) {
  refuse_accumulate(options, "all_to_all");
  check_same(in.dtype, out.dtype, "all_to_all");
  const auto ranks = static_cast<std::size_t>(caller.size);
  if (send_counts.size() != ranks || recv_counts.size() != ranks) {
    throw bad_input("all_to_all: " + std::to_string(send_counts.size()) + " counts to send and " + std::to_string(recv_counts.size()) +
                        " to receive for " + std::to_string(ranks) + " ranks.",
                    "Give one count for each rank.");
  }
  const std::size_t element = size_of(in.dtype);
  const std::size_t sent = std::accumulate(send_counts.begin(), send_counts.end(), std::size_t{0});
  const std::size_t received = std::accumulate(recv_counts.begin(), recv_counts.end(), std::size_t{0});
  check_pointer(in.data, sent, "the input", "all_to_all");
  check_pointer(out.data, received, "the output", "all_to_all");
  check_overlap(bytes_of(in), sent * element, bytes_of(out), received * element, false, "all_to_all");
  const auto me = static_cast<std::size_t>(caller.rank);
  if (send_counts[me] != recv_counts[me]) {
    throw bad_input("all_to_all: this rank sends itself " + std::to_string(send_counts[me]) + " elements and expects " +
                        std::to_string(recv_counts[me]) + ".",
                    "Make both counts equal.");
  }
  // Counts differ from rank to rank by nature: they are compared pair by pair.
  return move_print(Operation::kAllToAll, in.dtype, 0, -1);
}

CallNumbers check_message(Caller caller, Operation operation, ConstBuffer buffer, std::size_t count, int peer, int tag,
                          const CallOptions& options) {
  const char* const name = operation == Operation::kSend ? "send" : "recv";
  refuse_accumulate(options, name);
  if (operation != Operation::kRecv || peer != kAnySource) check_rank(peer, caller.size, "peer", name);
  check_pointer(buffer.data, count, "the buffer", name);
  CallNumbers print = move_print(operation, buffer.dtype, count, peer);
  print.hash = static_cast<std::uint64_t>(static_cast<std::int64_t>(tag));
  return print;
}

CallNumbers check_barrier(const CallOptions& options) {
  refuse_accumulate(options, "barrier");
  return move_print(Operation::kBarrier, DType::kUInt8, 0, -1);
}

}  // namespace wirewise::comm
