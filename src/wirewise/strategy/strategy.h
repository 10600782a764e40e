// A strategy: the degrees and options by which ranks share a training step. A plain struct with the field's names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wirewise/base/dtype.h"
#include "wirewise/base/units.h"

namespace wirewise {

enum class Recompute : std::uint8_t { kNone, kSelective, kFull };
enum class Pipeline : std::uint8_t { kGpipe, k1F1B, kInterleaved, kZbH1 };
/// How gradients of several micro-batches meet: summed on the rank and reduced once, or reduced for each micro-batch.
enum class AccumulationPolicy : std::uint8_t { kLocalSum, kReduceEach };
/// Whether the ranks of one host use one buffer of whole parameters under ZeRO-3, so that nothing is gathered.
enum class Alias : std::uint8_t { kAuto, kOn, kOff };

struct Strategy {
  int pp = 1;
  int dp_replicate = 1;
  int dp_shard = -1;             // -1: all ranks that the other degrees leave
  int cp = 1;
  int tp = 1;
  int ep = 1;
  int zero = 3;                  // 0 DDP, 1 optimizer, 2 and gradients, 3 and parameters sharded over dp_shard
  Pipeline pipeline = Pipeline::k1F1B;
  int virtual_stages = 1;
  Recompute recompute = Recompute::kNone;
  DType param_dtype = DType::kBFloat16;
  DType reduce_dtype = DType::kFloat32;
  DType buffer_dtype = DType::kFloat32;
  int prefetch = 1;              // units whose parameters are gathered ahead of use
  Bytes bucket = 0;              // smallest reduction in bytes: units join one call until it is reached; 0: a call a unit
  bool keep_after_forward = false;  // ZeRO-3: gathered parameters stay until backward
  Alias alias = Alias::kAuto;       // kAuto until resolve_alias() has decided; schedules are aliased where it is kOn
  bool offload = false;
  int accumulation = 1;
  AccumulationPolicy accumulation_policy = AccumulationPolicy::kLocalSum;
  bool operator==(const Strategy&) const = default;
};

/// Applies a strategy's name to degrees and stage: ddp, no_shard (zero 0); zero1; zero2, shard_grad_op; zero3, fsdp, full_shard.
/// hsdp and hybrid_shard, and anything unknown, are refused with the remedy.
void apply_name(Strategy& strategy, const std::string& name);
/// The canonical name: ddp, zero1, zero2, zero3.
[[nodiscard]] std::string name_of(const Strategy& strategy);

/// Fills dp_shard -1, then checks degrees against `ranks` and refuses, each with its remedy, whatever this build can't run
/// (tp, pp, cp, ep, offload, selective recompute, replicated sharding …).
void resolve(Strategy& strategy, int ranks);

/// Decides `alias` of a resolved strategy whose ranks are on `hosts` hosts: kAuto becomes kOn for ZeRO-3 over several ranks of one host, else
/// kOff. kOn is refused, with the reason, where it can't be.
void resolve_alias(Strategy& strategy, int hosts);
/// Whether schedules of this strategy share parameters: on one rank there is nobody to share with.
[[nodiscard]] inline bool is_aliased(const Strategy& strategy) { return strategy.alias == Alias::kOn && strategy.zero == 3 && strategy.dp_shard > 1; }

/// Where ranks sit: outermost first pp, dp_replicate, dp_shard, cp, tp.
class Mesh {
 public:
  Mesh(const Strategy& resolved, int ranks);
  enum class Dim : std::uint8_t { kPp, kDpReplicate, kDpShard, kCp, kTp };
  struct Coordinate { int pp = 0, dp_replicate = 0, dp_shard = 0, cp = 0, tp = 0; };
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  [[nodiscard]] int degree(Dim dim) const noexcept;
  [[nodiscard]] Coordinate coordinate(int rank) const;
  [[nodiscard]] int rank_of(const Coordinate& coordinate) const;
  /// The ranks that differ from `rank` in `dim` only, ascending along it.
  [[nodiscard]] std::vector<int> group_of(int rank, Dim dim) const;
  /// Ranks that read different data: pp, cp and tp coordinates aside. Index and count.
  [[nodiscard]] int data_rank(int rank) const;
  [[nodiscard]] int data_ranks() const noexcept;

 private:
  int ranks_;
  int degrees_[5];
};

/// ZeRO's model-state formula (arXiv:1910.02054): bytes a rank holds for `parameters` parameters.
struct ModelStateBytes { double parameters = 0, gradients = 0, optimizer = 0; [[nodiscard]] double total() const { return parameters + gradients + optimizer; } };
/// zero: 0-3; shards: degree of sharding; bytes a parameter of weights, gradients and optimizer states (2, 2, 12 in the paper).
[[nodiscard]] ModelStateBytes zero_model_states(int zero, double parameters, int shards, double weight_bytes = 2,
                                                double gradient_bytes = 2, double optimizer_bytes = 12);

}  // namespace wirewise
