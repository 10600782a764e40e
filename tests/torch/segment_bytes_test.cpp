// The bytes that model/ predicts for each segment are those that torch/ allocates.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "wirewise/model/model.h"
#include "wirewise/torch/dtype_torch.h"
#include "wirewise/torch/memory.h"
#include "wirewise/torch/segment.h"

namespace wirewise {
namespace {

struct Case {
  const char* name;
  ModelConfig config;
  BatchShape batch;
};

std::vector<Case> cases() {
  ModelConfig gpt2{Family::kGpt2, 2, 96, 4, 4, 384, 1000, 128, false, 1e-5, 10000};
  ModelConfig llama{Family::kLlama, 2, 96, 6, 2, 256, 1000, 128, false, 1e-5, 10000};
  std::vector<Case> result;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const bool separate : {false, true}) {
      if (separate && dtype == DType::kFloat32) continue;
      result.push_back({"gpt2", gpt2, {3, 64, dtype, separate}});
      result.push_back({"llama", llama, {3, 64, dtype, separate}});
      ModelConfig multi_head = llama;
      multi_head.kv_heads = multi_head.heads;
      result.push_back({"llama multi-head", multi_head, {2, 100, dtype, separate}});
    }
  }
  return result;
}

/// Matrix units for bfloat16 want their operands packed: scratch that depends on the processor, at most this much.
constexpr Bytes kPacking = kMiB;

void expect_peak(Bytes measured, Bytes predicted, DType dtype) {
  if (dtype == DType::kBFloat16) {
    EXPECT_GE(measured, predicted);
    EXPECT_LE(measured, predicted + kPacking);
  } else {
    EXPECT_EQ(measured, predicted);
  }
}

TEST(SegmentBytes, EqualWhatTheAllocatorCounts) {
  memory::install();
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  for (const Case& c : cases()) {
    const Model model = build_model(c.config, c.batch, 1);
    const auto options = at::TensorOptions().dtype(to_scalar_type(c.batch.param_dtype));
    for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
      auto segments = make_segments(model, static_cast<int>(unit));
      for (std::size_t s = 0; s < segments.size(); ++s) {
        SCOPED_TRACE(std::string(c.name) + " " + std::string(name_of(c.batch.param_dtype)) + (c.batch.separate_gradient ? " separate" : "") + " " +
                     model.units[unit].name + " " + model.units[unit].segments[s].name);
        const SegmentCost& cost = model.units[unit].segments[s].cost;
        std::vector<Weight> weights;
        for (const auto& name : segments[s]->weight_names()) {
          for (const auto& group : model.groups) {
            for (const auto& tensor : group.tensors) {
              if (tensor.name != name) continue;
              at::Tensor value = at::randn(tensor.shape, options);
              weights.push_back({value, at::zeros(tensor.shape, c.batch.separate_gradient ? options.dtype(c10::kFloat) : options), c.batch.separate_gradient});
            }
          }
        }
        StepContext step;
        const at::Tensor tokens = at::full({c.batch.micro_batch, c.batch.sequence}, 7, at::TensorOptions().dtype(c10::kLong));
        step.targets = tokens;
        const bool first = unit == 0;
        const bool last = unit + 1 == model.units.size();
        const Boundary in = {first ? tokens : at::randn({c.batch.micro_batch, c.batch.sequence, c.config.width}, options)};
        Saved saved;
        memory::reset_peak();
        Bytes before = memory::usage().live;
        Boundary out = segments[s]->forward(in, weights, &saved, step);
        const Bytes boundary = last ? 0 : cost.out;
        EXPECT_EQ(memory::usage().live - before, cost.saved + boundary);
        expect_peak(memory::usage().peak - before, cost.saved + boundary + cost.temporary_forward, c.batch.param_dtype);
        const Boundary grad_out = last ? Boundary{} : Boundary{at::randn(out[0].sizes(), options)};
        memory::reset_peak();
        before = memory::usage().live;
        Boundary grad_in = segments[s]->backward(in, grad_out, weights, saved, step);
        const Bytes gradient = first ? 0 : cost.in;
        expect_peak(memory::usage().peak - before, gradient + cost.temporary_backward, c.batch.param_dtype);
      }
    }
  }
}

}  // namespace
}  // namespace wirewise
