#include "wirewise/torch/trainer_batch.h"

#include <ATen/core/grad_mode.h>

#include <string>

#include "wirewise/base/error.h"
#include "wirewise/torch/custom_model.h"
#include "wirewise/torch/dtype_torch.h"
#include "wirewise/torch/memory.h"

namespace wirewise {
namespace {

std::string shape_text(const at::Tensor& tensor) {
  std::string text = "[";
  for (std::int64_t i = 0; i < tensor.dim(); ++i) text += (i > 0 ? ", " : "") + std::to_string(tensor.size(i));
  return text + "]";
}

}  // namespace

void require_inputs(const at::Tensor& inputs) {
  if (!inputs.defined()) throw bad_input("the batch's inputs are undefined.", "Pass a tensor whose first dimension is the sample.");
  if (inputs.dim() == 0 || inputs.size(0) == 0) {
    throw bad_input("the batch has no samples: its inputs have the shape " + shape_text(inputs) + ".", "Pass at least one sample on every rank.");
  }
}

void require_samples(const at::Tensor& inputs, const at::Tensor& targets, std::int64_t least) {
  require_inputs(inputs);
  if (!targets.defined()) throw bad_input("the batch's targets are undefined.", "Pass a tensor whose first dimension is the sample.");
  if (targets.dim() == 0 || targets.size(0) != inputs.size(0)) {
    throw bad_input("inputs have the shape " + shape_text(inputs) + ", but targets " + shape_text(targets) + ".",
                    "The first dimension of both is the sample.");
  }
  if (inputs.size(0) < least) {
    throw bad_input("a batch of " + std::to_string(inputs.size(0)) + " samples can't be split into " + std::to_string(least) + " micro-batches.",
                    "Pass at least one sample for each, or lower strategy.accumulation.");
  }
}

MicroBatch make_micro_batch(const at::Tensor& inputs, const at::Tensor& targets, DType dtype) {
  MicroBatch batch;
  const at::NoGradGuard no_grad;
  const memory::Scope scope(Category::kBuffers);
  batch.inputs = {inputs.is_floating_point() ? inputs.detach().to(to_scalar_type(dtype)) : inputs};
  if (targets.defined()) batch.targets = targets.detach();
  batch.counted = counted_targets(batch.targets);
  return batch;
}

}  // namespace wirewise
