// The buffers of a data-parallel rank: which exist under each ZeRO stage, their sizes and dtypes. Builders take ids from here.
#pragma once

#include <vector>

#include "wirewise/schedule/schedule.h"

namespace wirewise {

/// A segment in its place in the model's chain.
struct ChainLink {
  int unit = 0, segment = 0;
  const SegmentShape* shape = nullptr;
};

[[nodiscard]] std::vector<ChainLink> chain_of(const Model& model);

/// Throws bad input with the remedy unless `strategy` is plain data parallelism over `ranks` that the builders know, and `model`
/// fits it (padding divides into shards, dtypes agree, every group has a user).
void require_buildable(const Model& model, const Strategy& strategy, int ranks);

/// What of a step a schedule holds buffers for.
enum class Scope : std::uint8_t { kForwardOnly, kTrain };

/// Buffer ids by what they are. Ids of buffers that don't exist under the strategy are -1. Transient buffers are listed once and
/// may live several times: a gathered group once for each use, a gradient once for each reduction.
class Layout {
 public:
  Layout(const Model& model, const Strategy& strategy, const TrainOptions& options, Scope scope);

  /// The ZeRO stage in effect: one rank has nothing to shard, so every stage is 0 there.
  int stage = 0;
  int shards = 1;
  int micro_batches = 1;
  DType grad_dtype = DType::kFloat32;

  // By parameter group.
  std::vector<BufferId> param, full, master, exp_avg, exp_avg_sq, grad, reduced;
  // By micro-batch.
  std::vector<BufferId> input;
  // By micro-batch, then segment of the chain.
  std::vector<std::vector<BufferId>> boundary, boundary_grad, saved;
  BufferId loss = -1;

  std::vector<BufferInfo> buffers;

  /// What compute reads: the gathered group under ZeRO-3, else the parameters themselves.
  [[nodiscard]] BufferId weights(int group) const { return stage == 3 ? full[at(group)] : param[at(group)]; }
  /// Elements of a group that this rank steps.
  [[nodiscard]] std::uint64_t stepped(const ParamGroup& group) const {
    return stage == 0 ? group.padded : group.padded / static_cast<std::uint64_t>(shards);
  }
  [[nodiscard]] static std::size_t at(int index) { return static_cast<std::size_t>(index); }

 private:
  BufferId add(BufferInfo info);
  void add_group_buffers(const Model& model, const Strategy& strategy, const TrainOptions& options, Scope scope);
  void add_micro_batch_buffers(const Model& model, const std::vector<ChainLink>& chain, int micro_batch, Scope scope);
};

/// Whether gradients need a buffer wider than the compute dtype: several micro-batches summed on the rank in 16 bit would lose
/// bits.
[[nodiscard]] bool wide_gradients(const Strategy& strategy);

}  // namespace wirewise
