// One schedule: a training step (or a forward pass) as a list of ops over named buffers, one program per role. The runtime executes it
// on tensors, the simulator prices it, the memory walk adds it up, the checker proves it. Nothing that a step does lives outside it.
//
// Execution rule: a program's order is a valid order on one core. An op starts when the op before it in its lane and all ops in `after`
// are done. A collective is *issued* at its place and *done* when an op that follows it starts; buffers that it reads belong to it until
// an op that frees or writes them starts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/base/dtype.h"
#include "wirewise/base/units.h"
#include "wirewise/model/model.h"
#include "wirewise/strategy/strategy.h"

namespace wirewise {

using BufferId = std::int32_t;
using OpId = std::int32_t;

enum class Category : std::uint8_t { kParams, kGrads, kOptimizer, kGathered, kActivations, kTemporaries, kBuffers };
inline constexpr int kCategories = 7;
[[nodiscard]] std::string_view name_of(Category category) noexcept;

/// What a buffer is to the executor.
enum class BufferRole : std::uint8_t {
  kParam,         // weights in the compute dtype: the whole group (zero 0-2) or this rank's shard (zero 3)
  kFullParam,     // ZeRO-3: the gathered group, from gather to free; aliased: the group itself, once on the host
  kMaster,        // float32 master weights; absent where param_dtype is float32 (then kParam, or the rank's slice of it, is the master)
  kExpAvg,        // AdamW first moment
  kExpAvgSq,      // AdamW second moment
  kGrad,          // this rank's own gradient of the whole group, before reduction
  kReducedGrad,   // the sum over ranks: the whole group (zero 0) or this rank's shard (zero 1-3), in the reduce dtype
  kInput,         // token ids and targets of a micro-batch
  kBoundary,      // a segment's output, the next one's input
  kBoundaryGrad,  // gradient of a boundary
  kSaved,         // what a segment keeps for backward
  kLoss,          // the summed loss of a micro-batch
};
[[nodiscard]] std::string_view name_of(BufferRole role) noexcept;

struct BufferInfo {
  std::string name;             // "grad transformer.h.3"
  BufferRole role = BufferRole::kBoundary;
  Category category = Category::kBuffers;
  DType dtype = DType::kFloat32;
  Bytes bytes = 0;
  bool persistent = false;      // lives across steps; otherwise some op allocates and some op frees it
  bool shared = false;          // peers read it: allocate it where they can map it
  bool aliased = false;         // one buffer for all ranks of the group, made of their shards: each rank writes its own and reads all
  int param_group = -1;
  int unit = -1, segment = -1;  // of boundaries and saved: the segment that writes them
  int micro_batch = -1;
};

enum class OpKind : std::uint8_t {
  kTokenCount,    // all-reduce of the step's target tokens, before the first backward: losses and gradients are divided by it
  kGather, kForward, kBackward, kRecompute, kReduceScatter, kAllReduce, kFree,
  kClip,          // global gradient norm: float64 partials over the finest slices, all-reduced
  kStep,
  kReport,        // all-reduce of the step's loss
  kBarrier,
};
[[nodiscard]] std::string_view name_of(OpKind kind) noexcept;
/// Ops that all ranks of their group enter together.
[[nodiscard]] bool is_collective(OpKind kind) noexcept;

enum class Lane : std::uint8_t { kCompute, kGather, kReduce, kP2p, kCopy };
[[nodiscard]] std::string_view name_of(Lane lane) noexcept;

struct Op {
  OpKind kind = OpKind::kBarrier;
  Lane lane = Lane::kCompute;
  int unit = -1, segment = -1, micro_batch = -1;
  std::vector<int> param_groups;      // of gather, reductions, free, step; several after bucketing (one coalesced call)
  Mesh::Dim group = Mesh::Dim::kDpShard;  // ranks that take part in a collective
  std::vector<BufferId> reads;
  std::vector<BufferId> writes;           // backward: overwrites the ranges of its own tensors in a gradient buffer
  std::vector<BufferId> adds;             // gradient buffers that it adds to instead (later micro-batches, second user of a tied group)
  std::vector<BufferId> allocates, frees; // allocates happen before the op, frees after it
  std::vector<OpId> after;            // ops outside its lane that must be done first
  Bytes bytes = 0;                    // collectives: bytes of the whole buffer (size * shard); else bytes of memory traffic, if known
  Flops flops = 0;
  Bytes temporary = 0;                // peak bytes that live only inside the op
  bool save = true;                   // forward: keep what backward needs (false under full recompute and in forward-only schedules)
};

/// The ranks that behave alike run one program.
struct Program {
  std::string role;                   // "data-parallel"
  std::vector<int> ranks;
  std::vector<BufferInfo> buffers;
  std::vector<Op> ops;
};

struct Schedule {
  std::vector<Program> programs;
  Strategy strategy;                  // resolved
  int ranks = 1;
  int micro_batches = 1;
};

struct TrainOptions {
  bool clip = true;                   // a global-norm op between the last reduction and the steps
  bool adam_moments = true;           // AdamW: two moments; SGD without momentum: none
};

/// The training step of `model` under a resolved strategy on `ranks` ranks: builder, then the passes that the strategy asks for
/// (prefetch, bucketing, overlap), then the checker. The model must be built for strategy.dp_shard shards and the strategy's dtypes.
[[nodiscard]] Schedule build_train_schedule(const Model& model, const Strategy& strategy, int ranks, const TrainOptions& options);

/// One forward pass without gradients (validation, sampling): gathers where parameters are sharded, saves nothing.
[[nodiscard]] Schedule build_forward_schedule(const Model& model, const Strategy& strategy, int ranks);

/// Proves a schedule: collectives entered in one order with equal sizes by all their group, no cycle, nothing used before it is gathered or
/// after it is freed, nothing leaked, nothing written while a pending collective or a peer may read it. Throws kFailed naming the op.
void check(const Schedule& schedule);

/// What a rank is charged for a live buffer: nothing for an aliased one, as the ranks' shards, which are charged, are all of it.
[[nodiscard]] inline Bytes own_bytes(const BufferInfo& buffer) { return buffer.aliased ? 0 : buffer.bytes; }

/// Bytes by category at their peaks, and the peak of their sum with the op where it stands.
struct MemoryReport {
  Bytes category_peak[kCategories] = {};   // each category's own peak
  Bytes peak = 0;                          // largest sum over categories, temporaries of the op included
  Bytes at_peak[kCategories] = {};         // the split at that point
  OpId peak_op = -1;
  std::vector<Bytes> live_after;           // sum after each op
};
[[nodiscard]] MemoryReport memory_walk(const Program& program);

/// "backward transformer.h.3 attention, micro-batch 0": for reports and errors.
[[nodiscard]] std::string describe(const Op& op, const Model& model);

}  // namespace wirewise
