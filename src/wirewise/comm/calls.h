// What callers pass to a communicator, checked, and the fingerprint that ranks compare.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "wirewise/comm/control.h"
#include "wirewise/comm/reduce_operation.h"

namespace wirewise::comm {

struct Caller {
  int rank = 0;
  int size = 1;
};

[[nodiscard]] inline const std::byte* bytes_of(ConstBuffer buffer) noexcept { return static_cast<const std::byte*>(buffer.data); }
[[nodiscard]] inline std::byte* bytes_of(Buffer buffer) noexcept { return static_cast<std::byte*>(buffer.data); }

[[nodiscard]] std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) noexcept;

void check_rank(int r, int size, const char* what, const char* operation);
void check_pointer(const void* data, std::size_t count, const char* what, const char* operation);
void check_same(DType a, DType b, const char* operation);
/// Buffers are the same, or apart: `allowed` says that their overlap is the operation's in-place form.
void check_overlap(const std::byte* in, std::size_t in_bytes, const std::byte* out, std::size_t out_bytes, bool allowed,
                   const char* operation);
void refuse_accumulate(const CallOptions& options, const char* operation);

/// The numbers of a reduction before its parts are counted in, and one part checked and counted in. Throws BadInput naming what can't be.
[[nodiscard]] CallNumbers reduction_numbers(Operation operation, std::size_t parts, int root, Reduction op, const CallOptions& options) noexcept;
[[nodiscard]] ReducePlanPart check_reduce_part(Caller caller, CallNumbers& print, const ReducePart& part);

struct ReductionCall {
  CallNumbers print;
  std::vector<ReducePlanPart> parts;
};
/// Of all_reduce, reduce and reduce_scatter. Throws BadInput naming what can't be.
[[nodiscard]] ReductionCall check_reduction(Caller caller, Operation operation, std::span<const ReducePart> parts, int root, Reduction op,
                                            const CallOptions& options);
[[nodiscard]] CallNumbers check_all_gather(Caller caller, std::span<const AllGatherPart> parts, const CallOptions& options);
[[nodiscard]] CallNumbers check_broadcast(Caller caller, Buffer buffer, std::size_t count, int root, const CallOptions& options);
[[nodiscard]] CallNumbers check_gather(Caller caller, ConstBuffer in, Buffer out, std::size_t count, int root, const CallOptions& options);
[[nodiscard]] CallNumbers check_scatter(Caller caller, ConstBuffer in, Buffer out, std::size_t count, int root, const CallOptions& options);
[[nodiscard]] CallNumbers check_all_to_all(Caller caller, ConstBuffer in, std::span<const std::size_t> send_counts, Buffer out,
                                           std::span<const std::size_t> recv_counts, const CallOptions& options);
[[nodiscard]] CallNumbers check_message(Caller caller, Operation operation, ConstBuffer buffer, std::size_t count, int peer, int tag,
                                        const CallOptions& options);
[[nodiscard]] CallNumbers check_barrier(const CallOptions& options);

}  // namespace wirewise::comm
