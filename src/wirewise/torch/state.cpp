#include "wirewise/torch/state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "wirewise/base/philox.h"
#include "wirewise/base/sha256.h"
#include "wirewise/torch/dtype_torch.h"
#include "wirewise/torch/memory.h"

namespace wirewise {
namespace {

constexpr std::uint64_t kChunk = 1 << 20;  // elements in flight: no rank ever holds more of a tensor than it must

void draw(std::uint64_t seed, const TensorShape& tensor, std::uint64_t begin, std::uint64_t length, float* out) {
  switch (tensor.init.kind) {
    case Init::Kind::kZeros: std::fill(out, out + length, 0.0F); break;
    case Init::Kind::kOnes: std::fill(out, out + length, 1.0F); break;
    case Init::Kind::kNormal: fill_normal(out, begin, length, seed, tensor.name, tensor.init.std); break;
  }
}

}  // namespace

ModelState::ModelState(const Model& model, const Strategy& strategy, const Program& program, const Lanes& lanes)
    : groups(model.groups.size()), model_(model), rank_(lanes.rank()), shards_(lanes.size()) {
  for (const BufferInfo& buffer : program.buffers) {
    if (!buffer.aliased) continue;
    // Owners take turns, so that each rank's memory holds its share.
    groups[static_cast<std::size_t>(buffer.param_group)].full = empty_group_shared(
        lanes.gather, buffer.bytes / size_of(buffer.dtype), buffer.dtype, Category::kParams, buffer.param_group % shards_);
  }
  for (const BufferInfo& buffer : program.buffers) {
    if (!buffer.persistent || buffer.aliased || buffer.param_group < 0) continue;
    GroupState& group = groups[static_cast<std::size_t>(buffer.param_group)];
    const std::uint64_t elements = buffer.bytes / size_of(buffer.dtype);
    const std::uint64_t padded = model.groups[static_cast<std::size_t>(buffer.param_group)].padded;
    const std::uint64_t begin = elements == padded ? 0 : elements * static_cast<std::uint64_t>(rank_);
    at::Tensor flat;
    if (buffer.role == BufferRole::kParam && group.full.defined()) {
      flat = group.full.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(elements));
    } else if (buffer.shared) {
      flat = empty_shared(lanes.gather, elements, buffer.dtype, buffer.category, lanes.device);
    } else {
      const memory::Scope scope(buffer.category);
      flat = at::empty({static_cast<std::int64_t>(elements)}, at::TensorOptions().dtype(to_scalar_type(buffer.dtype)).device(lanes.device));
    }
    switch (buffer.role) {
      case BufferRole::kParam: group.param = flat; group.param_begin = begin; break;
      case BufferRole::kMaster: group.master = flat; group.master_begin = begin; break;
      case BufferRole::kExpAvg: group.exp_avg = flat; break;
      case BufferRole::kExpAvgSq: group.exp_avg_sq = flat; break;
      default: break;
    }
  }
  const bool sharded = strategy.zero > 0 && shards_ > 1;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    GroupState& group = groups[i];
    if (group.master.defined()) continue;
    // float32 compute: the weights are the masters.
    const std::uint64_t padded = model.groups[i].padded;
    const std::uint64_t count = sharded ? padded / static_cast<std::uint64_t>(shards_) : padded;
    group.master_begin = sharded ? count * static_cast<std::uint64_t>(rank_) : 0;
    group.master = group.param.narrow(0, static_cast<std::int64_t>(group.master_begin - group.param_begin), static_cast<std::int64_t>(count));
  }
}

void ModelState::fill(const Source& source, int index, std::uint64_t begin, at::Tensor& flat) const {
  flat.zero_();  // alignment gaps stay zero for good
  const std::uint64_t end = begin + static_cast<std::uint64_t>(flat.numel());
  std::vector<float> chunk;
  for (const TensorShape& tensor : model_.groups[static_cast<std::size_t>(index)].tensors) {
    const std::uint64_t from = std::max(begin, tensor.offset);
    const std::uint64_t to = std::min(end, tensor.offset + tensor.numel());
    for (std::uint64_t at = from; at < to;) {
      const std::uint64_t length = std::min(kChunk, to - at);
      at::Tensor out = flat.narrow(0, static_cast<std::int64_t>(at - begin), static_cast<std::int64_t>(length));
      if (flat.scalar_type() == c10::kFloat && flat.device().is_cpu()) {
        source(tensor, at - tensor.offset, length, out.mutable_data_ptr<float>());
      } else {
        chunk.resize(length);
        source(tensor, at - tensor.offset, length, chunk.data());
        out.copy_(at::from_blob(chunk.data(), {static_cast<std::int64_t>(length)}, at::TensorOptions().dtype(c10::kFloat)));
      }
      at += length;
    }
  }
}

void ModelState::fetch(const at::Tensor& flat, std::uint64_t begin, std::uint64_t length, float* out) {
  if (flat.device().is_cpu()) {
    const float* data = flat.const_data_ptr<float>() + begin;
    std::copy(data, data + length, out);
    return;
  }
  at::from_blob(out, {static_cast<std::int64_t>(length)}, at::TensorOptions().dtype(c10::kFloat))
      .copy_(flat.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(length)));
}

void ModelState::initialize(std::uint64_t seed) {
  load([seed](const TensorShape& tensor, std::uint64_t begin, std::uint64_t length, float* out) { draw(seed, tensor, begin, length, out); },
       {}, {});
}

void ModelState::load(const Source& weights, const Source& exp_avg, const Source& exp_avg_sq) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    GroupState& group = groups[i];
    unmet_ = unmet_ || group.full.defined();
    const int index = static_cast<int>(i);
    const bool own_master = group.master.scalar_type() != group.param.scalar_type();
    if (own_master) {
      fill(weights, index, group.master_begin, group.master);
    }
    if (own_master && group.param.numel() == group.master.numel()) {
      group.param.copy_(group.master);
    } else {
      fill(weights, index, group.param_begin, group.param);
    }
    for (auto [moment, source] : {std::pair{&group.exp_avg, &exp_avg}, std::pair{&group.exp_avg_sq, &exp_avg_sq}}) {
      if (!moment->defined()) continue;
      if (*source) {
        fill(*source, index, group.master_begin, *moment);
      } else {
        moment->zero_();
      }
    }
  }
}

std::vector<OwnedRange> ModelState::ranges(bool once) const {
  std::vector<OwnedRange> result;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto held = static_cast<std::uint64_t>(groups[i].master.numel());
    const std::uint64_t start = groups[i].master_begin;
    const std::uint64_t slice = model_.groups[i].padded / static_cast<std::uint64_t>(shards_);
    const bool whole = held == model_.groups[i].padded && once;
    const std::uint64_t begin = whole ? slice * static_cast<std::uint64_t>(rank_) : start;
    const std::uint64_t end = whole ? begin + slice : start + held;
    for (const TensorShape& tensor : model_.groups[i].tensors) {
      const std::uint64_t from = std::max(begin, tensor.offset);
      const std::uint64_t to = std::min(end, tensor.offset + tensor.numel());
      if (from < to) result.push_back({static_cast<int>(i), &tensor, from - tensor.offset, to - from, from - start});
    }
  }
  return result;
}

std::vector<ModelState::Named> ModelState::in_name_order() const {
  std::vector<Named> all;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (const TensorShape& tensor : model_.groups[i].tensors) all.push_back({i, &tensor});
  }
  std::sort(all.begin(), all.end(), [](const Named& a, const Named& b) { return a.tensor->name < b.tensor->name; });
  return all;
}

void ModelState::collect(const Lanes& lanes, const Named& named, std::uint64_t begin, std::uint64_t length, float* out) const {
  const GroupState& group = groups[named.group];
  const auto held = static_cast<std::uint64_t>(group.master.numel());
  const std::uint64_t from = named.tensor->offset + begin;
  if (held == model_.groups[named.group].padded) return fetch(group.master, from - group.master_begin, length, out);
  for (std::uint64_t at = from; at < from + length;) {
    const std::uint64_t owner = at / held;
    const std::uint64_t piece = std::min((owner + 1) * held, from + length) - at;
    float* const target = out + (at - from);
    if (static_cast<int>(owner) == rank_) fetch(group.master, at - group.master_begin, piece, target);
    lanes.control->broadcast({target, DType::kFloat32}, piece, static_cast<int>(owner)).wait();
    at += piece;
  }
}

std::string ModelState::weights_sha256(const Lanes& lanes) const {
  Sha256 hash;
  std::vector<float> chunk;
  for (const Named& named : in_name_order()) {
    for (std::uint64_t at = 0; at < named.tensor->numel(); at += chunk.size()) {
      chunk.resize(std::min(kChunk, named.tensor->numel() - at));
      collect(lanes, named, at, chunk.size(), chunk.data());
      hash.update(chunk.data(), chunk.size() * sizeof(float));
    }
  }
  return hash.hex();
}

}  // namespace wirewise
