// What lives across steps on one rank: weights, float32 masters and optimizer moments of each parameter group, whole or sharded as the
// schedule's persistent buffers say.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

#include "wirewise/model/model.h"
#include "wirewise/schedule/schedule.h"
#include "wirewise/torch/lanes.h"

namespace wirewise {

struct GroupState {
  at::Tensor param;         // compute dtype: the whole group (zero 0-2) or this rank's shard (zero 3)
  at::Tensor full;          // aliased: the whole group, of which param is this rank's part; else undefined
  at::Tensor master;        // float32: elements [master_begin, master_begin + master.numel()) of the group; may share param's storage
  at::Tensor exp_avg;       // as master; undefined without moments
  at::Tensor exp_avg_sq;
  std::uint64_t param_begin = 0;
  std::uint64_t master_begin = 0;
};

/// A tensor's elements that this rank holds in its master range.
struct OwnedRange {
  int group = -1;
  const TensorShape* tensor = nullptr;
  std::uint64_t begin = 0;     // element within the tensor
  std::uint64_t length = 0;
  std::uint64_t local = 0;     // element within the rank's master
};

class ModelState {
 public:
  /// Allocates the persistent buffers of `program` for this rank; contents are undefined until initialize or load. Collective where buffers
  /// are aliased.
  ModelState(const Model& model, const Strategy& strategy, const Program& program, const Lanes& lanes);

  /// Draws initial weights by (seed, tensor name, element) and zeroes the moments. Each rank draws only what it holds. Not while a peer may run
  /// a program: it may share this rank's weights.
  void initialize(std::uint64_t seed);

  /// Fills elements [begin, begin + length) of a float32 tensor.
  using Source = std::function<void(const TensorShape& tensor, std::uint64_t begin, std::uint64_t length, float* out)>;
  /// Fills weights from `weights` and, where given, moments from `exp_avg` and `exp_avg_sq`; absent moments become zero.
  void load(const Source& weights, const Source& exp_avg, const Source& exp_avg_sq);

  /// All that this rank's masters hold.
  [[nodiscard]] std::vector<OwnedRange> owned() const { return ranges(false); }
  /// Over all ranks each element once: this rank's slice where every rank holds the whole.
  [[nodiscard]] std::vector<OwnedRange> owned_once() const { return ranges(true); }

  /// A tensor of the model and its group's index.
  struct Named {
    std::size_t group = 0;
    const TensorShape* tensor = nullptr;
  };
  /// All tensors, by name.
  [[nodiscard]] std::vector<Named> in_name_order() const;
  /// Float32 weights [begin, begin + length) of a tensor on every rank, from whoever holds them. Collective.
  void collect(const Lanes& lanes, const Named& named, std::uint64_t begin, std::uint64_t length, float* out) const;

  /// SHA-256 of the full float32 weights in name order; the same on every rank. Collective.
  [[nodiscard]] std::string weights_sha256(const Lanes& lanes) const;

  /// True once after weights changed outside of a step where ranks share them: nobody may read them before all ranks have met.
  [[nodiscard]] bool take_unmet() noexcept { return std::exchange(unmet_, false); }

  std::vector<GroupState> groups;

 private:
  [[nodiscard]] std::vector<OwnedRange> ranges(bool once) const;
  /// Elements of a float32 tensor wherever it lies, copied to `out`.
  static void fetch(const at::Tensor& flat, std::uint64_t begin, std::uint64_t length, float* out);
  void fill(const Source& source, int group, std::uint64_t begin, at::Tensor& flat) const;
  const Model& model_;
  int rank_ = 0;
  int shards_ = 1;
  bool unmet_ = false;
};

}  // namespace wirewise
