#include "wirewise/torch/optimizer.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>

#include <algorithm>

#include "wirewise/torch/kernels_aten.h"

namespace wirewise {
namespace {

/// Elements handled at once: gradient, master, both moments and the 16-bit copy of a piece stay in the second-level cache, so that writing the
/// compute-dtype weights reads no memory.
constexpr std::uint64_t kPiece = 1 << 16;

struct Piece {
  std::uint64_t begin = 0;  // within the master's range
  std::uint64_t length = 0;
  bool decay = false;
};

/// A device has no such cache, and its kernels cost a launch each: pieces are as long as they come.
constexpr std::uint64_t kWholePiece = ~std::uint64_t{0};

/// Splits the master's range where weight decay changes and at `most` elements. Alignment gaps (zero, with zero gradient) go with the tensor before.
std::vector<Piece> pieces(const ParamGroup& group, std::uint64_t begin, std::uint64_t end, std::uint64_t most) {
  std::vector<Piece> result;
  for (std::size_t i = 0; i < group.tensors.size(); ++i) {
    const std::uint64_t from = std::max(begin, i == 0 ? 0 : group.tensors[i].offset);
    const std::uint64_t to = std::min(end, i + 1 < group.tensors.size() ? group.tensors[i + 1].offset : group.padded);
    for (std::uint64_t at = from; at < to;) {
      const std::uint64_t length = std::min(most, to - at);
      if (most == kWholePiece && !result.empty() && result.back().decay == group.tensors[i].decay) {
        result.back().length += length;
        at += length;
        continue;
      }
      result.push_back({at - begin, length, group.tensors[i].decay});
      at += length;
    }
  }
  return result;
}

at::Tensor part(const at::Tensor& flat, std::uint64_t begin, std::uint64_t length) {
  return flat.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(length));
}

}  // namespace

void optimizer_step(GroupState& state, const ParamGroup& group, const at::Tensor& gradient, double factor, double lr, std::int64_t step,
                    const OptimizerOptions& options) {
  const auto count = static_cast<std::uint64_t>(state.master.numel());
  const at::Tensor step_tensor = at::full({}, static_cast<double>(step), state.master.options());
  std::optional<at::Tensor> scale;  // the fused kernels divide by it
  if (factor != 1.0) scale = at::full({}, 1.0 / factor, state.master.options());
  const bool separate_param = state.param.scalar_type() != state.master.scalar_type();
  const std::uint64_t most = kernels::on_aten(state.master) ? kWholePiece : kPiece;
  for (const Piece& piece : pieces(group, state.master_begin, state.master_begin + count, most)) {
    at::Tensor master = part(state.master, piece.begin, piece.length);
    at::Tensor grad = part(gradient, piece.begin, piece.length).to(c10::kFloat);
    const double decay = piece.decay ? options.weight_decay : 0.0;
    if (options.adamw) {
      at::_fused_adamw_({master}, {grad}, {part(state.exp_avg, piece.begin, piece.length)}, {part(state.exp_avg_sq, piece.begin, piece.length)}, {},
                        {step_tensor}, lr, options.beta1, options.beta2, decay, options.epsilon, /*amsgrad=*/false, /*maximize=*/false, scale);
    } else {
      at::_fused_sgd_({master}, {grad}, {}, decay, /*momentum=*/0.0, lr, /*dampening=*/0.0, /*nesterov=*/false, /*maximize=*/false,
                      /*is_first_step=*/true, scale);
    }
    if (separate_param) part(state.param, state.master_begin - state.param_begin + piece.begin, piece.length).copy_(master);
  }
}

}  // namespace wirewise
