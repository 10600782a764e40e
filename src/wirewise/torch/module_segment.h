// A user's module as a segment. Its parameters have no memory of their own: they point at the gathered weights while forward or backward
// runs, and at nothing otherwise, so a rank holds no more of the model than its strategy says. The autograd graph of the module is kept from
// forward to backward; its edges to the parameters stay valid because each parameter keeps one storage for life, whose memory comes and goes.
#pragma once

#include <c10/core/Storage.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wirewise/torch/custom_model.h"
#include "wirewise/torch/segment.h"

namespace wirewise {

/// A parameter of a user's module whose memory is lent to it.
class ModuleParameter {
 public:
  explicit ModuleParameter(CustomParameter parameter);
  ~ModuleParameter();
  ModuleParameter(const ModuleParameter&) = delete;
  ModuleParameter& operator=(const ModuleParameter&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const at::Tensor& variable() const noexcept { return variable_; }

  /// Frees the parameter's own memory for good and gives it the compute dtype.
  void release(c10::ScalarType type);
  /// Lends it a weight's memory until detach. The memory must outlive that.
  void attach(const at::Tensor& value);
  void detach() noexcept;

  /// Backward puts the parameter's gradient here, once. Null: nowhere.
  void expect_gradient(Weight* weight) noexcept;
  /// True when a backward since expect_gradient reached the parameter.
  [[nodiscard]] bool reached() const noexcept;

 private:
  class GradientHook;
  std::string name_;
  at::Tensor variable_;
  c10::Storage storage_;           // for life: autograd's saved views of the parameter refer to it
  c10::Storage nothing_;           // what the parameter itself refers to meanwhile: reading it throws
  GradientHook* hook_ = nullptr;   // owned by the variable's autograd metadata
};

/// What a segment needs to know of its place in the chain.
struct ModulePlace {
  int unit = 0;
  int rank = 0;
  bool first = false;              // its input needs no gradient
  bool last = false;               // its output goes to the loss
  LossFunction loss;               // of the last
  LossReduction reduction = LossReduction::kMean;
  std::uint64_t seed = 0;          // of dropout and whatever else draws from libtorch's generator
};

class ModuleSegment final : public Segment {
 public:
  ModuleSegment(Unit unit, std::vector<std::shared_ptr<ModuleParameter>> parameters, ModulePlace place);

  [[nodiscard]] const std::vector<std::string>& weight_names() const override { return names_; }
  Boundary forward(const Boundary& in, std::vector<Weight>& weights, Saved* saved, StepContext& step) override;
  Boundary backward(const Boundary& in, const Boundary& grad_out, std::vector<Weight>& weights, Saved& saved, StepContext& step) override;

  /// Measures bytes in the passes that follow; needs the counting allocator, and no other thread that allocates tensors meanwhile.
  void measure(bool on) noexcept { measuring_ = on; }
  /// What was measured: bytes to the byte; FLOPs estimated as two for each parameter and row of the input, and twice that backward.
  [[nodiscard]] const SegmentCost& cost() const noexcept { return cost_; }

 private:
  [[nodiscard]] at::Tensor call(const at::Tensor& input) const;
  [[nodiscard]] at::Tensor loss_of(const at::Tensor& output, const at::Tensor& targets) const;
  void warn_of_unused();

  Unit unit_;
  std::vector<std::shared_ptr<ModuleParameter>> parameters_;
  std::vector<std::string> names_;
  ModulePlace place_;
  bool measuring_ = false;
  bool warned_ = false;
  SegmentCost cost_;
};

}  // namespace wirewise
