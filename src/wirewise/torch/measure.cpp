#include "wirewise/torch/measure.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "wirewise/torch/dtype_torch.h"
#include "wirewise/torch/kernels.h"
#include "wirewise/torch/memory.h"

namespace wirewise {
namespace {

constexpr int kRepeats = 3;
// Elements of the larger of two sizes that collectives and the optimizer are measured at: as many as the model has, within these bounds, so that
// what a real step finds in cache or not is found so here.
constexpr std::uint64_t kLeast = 1 << 20;
constexpr std::uint64_t kMost = 32 << 20;
constexpr Seconds kPatience = 0.5;  // for one run of a collective: a slow network shows its rate at a smaller size, too

Seconds now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Median seconds of `body` after one warm-up; ranks start each run together. The slowest rank's on all.
template <typename F>
Seconds timed(const Lanes& lanes, F&& body) {
  std::vector<Seconds> seconds;
  for (int i = 0; i <= kRepeats; ++i) {
    lanes.control->barrier().wait();
    const Seconds start = now();
    body();
    lanes.synchronize();
    if (i > 0) seconds.push_back(now() - start);
  }
  std::sort(seconds.begin(), seconds.end());
  double slowest = 0;
  lanes.control->all_reduce({&seconds[kRepeats / 2], DType::kFloat64}, {&slowest, DType::kFloat64}, 1, Reduction::kMax).wait();
  return slowest;
}

/// The line through two measured points; never falling.
MeasuredCosts::Line line_through(Bytes small, Seconds small_seconds, Bytes large, Seconds large_seconds) {
  MeasuredCosts::Line line;
  line.per_byte = std::max(0.0, (large_seconds - small_seconds) / static_cast<double>(large - small));
  line.alpha = std::max(0.0, small_seconds - line.per_byte * static_cast<double>(small));
  return line;
}

at::TensorOptions options_of(const Lanes& lanes, DType dtype) { return at::TensorOptions().dtype(to_scalar_type(dtype)).device(lanes.device); }

at::Tensor filled(const std::vector<std::int64_t>& shape, DType dtype, const Lanes& lanes) { return at::full(shape, 0.01, options_of(lanes, dtype)); }

/// Forward and backward of one segment on scratch weights and activations.
void measure_segment(MeasuredCosts& costs, const Model& model, const SegmentTable& segments, int unit, int segment, const Lanes& lanes) {
  const UnitShape& shape = model.units[static_cast<std::size_t>(unit)];
  Segment& run = *segments[static_cast<std::size_t>(unit)][static_cast<std::size_t>(segment)];
  const DType dtype = model.batch.param_dtype;
  std::vector<Weight> weights;
  for (const std::string& name : run.weight_names()) {
    for (const int group : shape.segments[static_cast<std::size_t>(segment)].groups) {
      for (const TensorShape& tensor : model.groups[static_cast<std::size_t>(group)].tensors) {
        if (tensor.name != name) continue;
        const DType gradient = model.batch.separate_gradient ? DType::kFloat32 : dtype;
        weights.push_back({filled(tensor.shape, dtype, lanes), at::zeros(tensor.shape, options_of(lanes, gradient)), model.batch.separate_gradient});
      }
    }
  }
  StepContext step;
  const std::int64_t samples = model.batch.micro_batch;
  const std::int64_t sequence = model.batch.sequence;
  at::Tensor tokens = at::empty({samples, sequence}, at::TensorOptions().dtype(c10::kLong));
  for (std::int64_t i = 0; i < tokens.numel(); ++i) tokens.mutable_data_ptr<std::int64_t>()[i] = (i * 7919) % std::max<std::int64_t>(1, model.config.vocab);
  tokens = tokens.to(lanes.device);
  step.targets = tokens;
  const bool first = unit == 0 && segment == 0;
  const bool last = unit + 1 == static_cast<int>(model.units.size()) && segment + 1 == static_cast<int>(shape.segments.size());
  const Boundary in = {first ? tokens : filled({samples, sequence, model.config.width}, dtype, lanes)};
  const Boundary grad_out = last ? Boundary{} : Boundary{filled({samples, sequence, model.config.width}, dtype, lanes)};
  Saved saved;
  costs.compute[{OpKind::kForward, shape.kind, segment}] = timed(lanes, [&] { (void)run.forward(in, weights, &saved, step); });
  const Seconds both = timed(lanes, [&] {
    (void)run.forward(in, weights, &saved, step);
    (void)run.backward(in, grad_out, weights, saved, step);
  });
  costs.compute[{OpKind::kBackward, shape.kind, segment}] = std::max(0.0, both - costs.compute[{OpKind::kForward, shape.kind, segment}]);
}

/// Costs of operations by their bytes: each is run at two sizes, and a line drawn through them. All ranks call the same functions in one order.
class CostsByBytes {
 public:
  CostsByBytes(MeasuredCosts& costs, const Model& model, const Strategy& strategy, const Lanes& lanes)
      : costs_(costs), model_(model), strategy_(strategy), lanes_(lanes), ranks_(static_cast<std::uint64_t>(lanes.size())),
        param_(strategy.param_dtype), gradient_(model.batch.separate_gradient ? DType::kFloat32 : param_) {
    on_wait_.progress = CallOptions::Progress::kOnWait;
  }

  void gather() {
    at_two_sizes(OpKind::kGather, size_of(param_), [&](std::uint64_t elements) {
      at::Tensor shard = empty_shared(lanes_.gather, elements / ranks_, param_, Category::kTemporaries, lanes_.device);
      at::Tensor full = at::empty({static_cast<std::int64_t>(elements)}, shard.options());
      return timed(lanes_, [&] { lanes_.gather->all_gather({shard.data_ptr(), param_}, {full.data_ptr(), param_}, elements / ranks_, on_wait_).wait(); });
    });
  }

  /// Of the two reductions only the strategy's own is needed.
  void reduction() {
    // What goes over the wire: the gradient as it is where the collective can widen it, else a copy in the reduce dtype.
    const bool widens = strategy_.reduce_dtype == DType::kFloat32 && size_of(gradient_) == 2;
    const DType wire = widens ? gradient_ : strategy_.reduce_dtype;
    const bool whole = strategy_.zero == 0 || ranks_ == 1;
    at_two_sizes(whole ? OpKind::kAllReduce : OpKind::kReduceScatter, size_of(gradient_), [&](std::uint64_t elements) {
      at::Tensor in = empty_shared(lanes_.reduce, elements, wire, Category::kTemporaries, lanes_.device);
      at::Tensor out = empty_shared(lanes_.reduce, whole ? elements : elements / ranks_, strategy_.reduce_dtype, Category::kTemporaries, lanes_.device);
      in.zero_();
      return timed(lanes_, [&] {
        const ReducePart part{{in.data_ptr(), wire}, {out.data_ptr(), strategy_.reduce_dtype}, whole ? elements : elements / ranks_};
        (whole ? lanes_.reduce->all_reduce(std::span(&part, 1), Reduction::kSum, on_wait_)
               : lanes_.reduce->reduce_scatter(std::span(&part, 1), Reduction::kSum, on_wait_))
            .wait();
      });
    });
  }

  void step(const OptimizerOptions& optimizer) {
    at_two_sizes(OpKind::kStep, sizeof(float), [&](std::uint64_t elements) {
      ParamGroup group;
      group.tensors.push_back({"scratch", {static_cast<std::int64_t>(elements)}, {}, true, 0});
      group.padded = elements;
      GroupState state;
      state.master = filled({static_cast<std::int64_t>(elements)}, DType::kFloat32, lanes_);
      state.param = param_ == DType::kFloat32 ? state.master : filled({static_cast<std::int64_t>(elements)}, param_, lanes_);
      state.exp_avg = filled({static_cast<std::int64_t>(elements)}, DType::kFloat32, lanes_);
      state.exp_avg_sq = filled({static_cast<std::int64_t>(elements)}, DType::kFloat32, lanes_);
      at::Tensor gradient = filled({static_cast<std::int64_t>(elements)}, strategy_.reduce_dtype, lanes_);
      return timed(lanes_, [&] { optimizer_step(state, group, gradient, 0.5, 1e-4, 1, optimizer); });
    });
  }

  void clip() {
    const bool slices = strategy_.zero == 0;
    at_two_sizes(OpKind::kClip, size_of(strategy_.reduce_dtype), [&](std::uint64_t elements) {
      at::Tensor gradient = filled({static_cast<std::int64_t>(slices ? elements / ranks_ : elements)}, strategy_.reduce_dtype, lanes_);
      return timed(lanes_, [&] {
        double mine = kernels::sum_of_squares(gradient);
        double total = 0;
        lanes_.control->all_reduce({&mine, DType::kFloat64}, {&total, DType::kFloat64}, 1).wait();
      });
    });
  }

  /// One number over all ranks, and a barrier where ranks share weights.
  void scalars() {
    const Seconds scalar = timed(lanes_, [&] {
      double mine = 0;
      double total = 0;
      lanes_.control->all_reduce({&mine, DType::kFloat64}, {&total, DType::kFloat64}, 1).wait();
    });
    costs_.by_bytes[OpKind::kTokenCount] = {scalar, 0};
    costs_.by_bytes[OpKind::kReport] = {scalar, 0};
    if (is_aliased(strategy_)) {
      costs_.by_bytes[OpKind::kBarrier] = {timed(lanes_, [&] { lanes_.control->barrier(on_wait_).wait(); }), 0};
    }
  }

 private:
  template <typename Run>
  void at_two_sizes(OpKind kind, std::uint64_t bytes_an_element, Run&& run) {
    const std::uint64_t largest = std::clamp(model_.parameters(), kLeast, kMost) / (ranks_ * kAlignElements) * ranks_ * kAlignElements;
    const std::uint64_t smallest = ranks_ * kAlignElements * 32;
    const Seconds small = run(smallest);
    std::uint64_t elements = std::min(largest, kLeast / (ranks_ * kAlignElements) * ranks_ * kAlignElements);
    Seconds large = run(elements);
    // The figures are the same on all ranks, and so is the choice.
    if (elements < largest && large * static_cast<double>(largest) / static_cast<double>(elements) < kPatience) {
      elements = largest;
      large = run(elements);
    }
    costs_.by_bytes[kind] = line_through(smallest * bytes_an_element, small, elements * bytes_an_element, large);
  }

  MeasuredCosts& costs_;
  const Model& model_;
  const Strategy& strategy_;
  const Lanes& lanes_;
  std::uint64_t ranks_;
  DType param_;
  DType gradient_;
  CallOptions on_wait_;
};

}  // namespace

MeasuredCosts measure_costs(const Model& model, const Strategy& strategy, const SegmentTable& segments, const Lanes& lanes,
                            const OptimizerOptions& optimizer) {
  const at::NoGradGuard no_grad;
  MeasuredCosts costs;
  for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
    for (std::size_t segment = 0; segment < segments[unit].size(); ++segment) {
      if (costs.compute.count({OpKind::kForward, model.units[unit].kind, static_cast<int>(segment)}) > 0) continue;
      measure_segment(costs, model, segments, static_cast<int>(unit), static_cast<int>(segment), lanes);
    }
  }
  CostsByBytes by_bytes(costs, model, strategy, lanes);
  if (lanes.size() > 1 && !is_aliased(strategy)) by_bytes.gather();
  by_bytes.reduction();
  by_bytes.step(optimizer);
  by_bytes.clip();
  by_bytes.scalars();
  memory::release_cached();
  return costs;
}

Link measure_network(const Lanes& lanes, const std::vector<int>& host_of) {
  const at::NoGradGuard no_grad;
  constexpr std::uint64_t kSmall = 64, kFirst = 4 << 20, kLargest = 64 << 20;  // bytes: of a shard; of all
  constexpr Seconds kEnough = 0.1;
  const auto ranks = static_cast<std::uint64_t>(lanes.size());
  std::map<int, int> members;
  for (const int host : host_of) ++members[host];
  int fewest = lanes.size();
  for (const auto& [host, count] : members) fewest = std::min(fewest, count);
  CallOptions on_wait;
  on_wait.progress = CallOptions::Progress::kOnWait;
  const auto run = [&](std::uint64_t bytes) {
    at::Tensor shard = empty_shared(lanes.gather, bytes / size_of(DType::kFloat32), DType::kFloat32, Category::kTemporaries, lanes.device);
    at::Tensor full = at::empty({static_cast<std::int64_t>(ranks * bytes / size_of(DType::kFloat32))}, shard.options());
    shard.zero_();
    return timed(lanes, [&] {
      lanes.gather->all_gather({shard.data_ptr(), DType::kFloat32}, {full.data_ptr(), DType::kFloat32}, bytes / size_of(DType::kFloat32), on_wait).wait();
    });
  };
  Link link = assumed_network();
  link.alpha = run(kSmall);
  std::uint64_t bytes = std::max<std::uint64_t>(kFirst / ranks, kSmall) / kSmall * kSmall;
  Seconds seconds = run(bytes);
  while (seconds < kEnough && 4 * bytes * ranks <= kLargest) seconds = run(bytes *= 4);
  // The smallest host receives most: the shards of all ranks elsewhere.
  const double received = static_cast<double>(bytes) * static_cast<double>(lanes.size() - fewest);
  link.beta = received / std::max(seconds - link.alpha, 1e-9);
  link.provenance = Provenance::kMeasured;
  link.source = "measured: an all-gather of the ranks' " + format_bytes(bytes) + " each";
  return link;
}

double measure_flops(DType dtype, const Lanes& lanes) {
  const at::NoGradGuard no_grad;
  const std::int64_t largest_side = lanes.device.is_cpu() ? 1024 : 8192;
  constexpr Seconds kEnough = 0.02;  // a CPU without float16 products takes ten seconds for the largest
  for (std::int64_t side = 128;; side *= 2) {
    const at::Tensor a = filled({side, side}, dtype, lanes);
    const at::Tensor b = filled({side, side}, dtype, lanes);
    at::Tensor c = at::empty_like(a);
    const Seconds seconds = timed(lanes, [&] { at::mm_out(c, a, b); });  // the same on all ranks, and so is the choice to stop
    const double n = static_cast<double>(side);
    if (side == largest_side || seconds >= kEnough) return 2.0 * n * n * n / seconds;
  }
}

}  // namespace wirewise
