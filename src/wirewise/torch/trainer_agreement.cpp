#include "wirewise/torch/trainer_agreement.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/torch/dtype_torch.h"

namespace wirewise {
namespace {

/// What ranks must agree on, a line each.
std::vector<std::string> describe_for_peers(const Model& model, const TrainerOptions& options) {
  std::vector<std::string> lines;
  for (const UnitShape& unit : model.units) lines.push_back("unit " + unit.name);
  for (const ParamGroup& group : model.groups) {
    for (const TensorShape& tensor : group.tensors) {
      std::string line = "parameter " + tensor.name + " [";
      for (std::size_t i = 0; i < tensor.shape.size(); ++i) line += (i > 0 ? ", " : "") + std::to_string(tensor.shape[i]);
      lines.push_back(line + "]");
    }
  }
  const Strategy& s = options.strategy;
  const OptimizerOptions& o = options.optimizer;
  lines.push_back("strategy " + name_of(s) + ", " + std::string(name_of(s.param_dtype)) + " reduced in " + std::string(name_of(s.reduce_dtype)) +
                  ", accumulation " + std::to_string(s.accumulation) + (s.accumulation_policy == AccumulationPolicy::kLocalSum ? "" : " reducing each") +
                  ", prefetch " + std::to_string(s.prefetch) + ", bucket " + std::to_string(s.bucket) + (s.recompute == Recompute::kFull ? ", recompute" : "") +
                  (s.keep_after_forward ? ", keep after forward" : "") + (is_aliased(s) ? ", aliased" : ""));
  lines.push_back((o.adamw ? "AdamW " : "SGD ") + std::to_string(o.beta1) + " " + std::to_string(o.beta2) + " " + std::to_string(o.epsilon) + " " +
                  std::to_string(o.weight_decay) + ", lr " + std::to_string(options.lr) + ", clip " + std::to_string(options.clip));
  return lines;
}

/// Where `lines` part from rank 0's text.
std::string first_difference(const std::vector<std::string>& lines, std::string first) {
  std::size_t at = 0;
  while (at < lines.size() && first.compare(0, lines[at].size() + 1, lines[at] + "\n") == 0) first.erase(0, lines[at++].size() + 1);
  return "it has \"" + (at < lines.size() ? lines[at] : "nothing more") + "\", rank 0 has \"" +
         (first.empty() ? "nothing more" : first.substr(0, first.find('\n'))) + "\"";
}

}  // namespace

void require_agreement(const Lanes& lanes, const Model& model, const TrainerOptions& options) {
  const std::vector<std::string> lines = describe_for_peers(model, options);
  const std::string text = join(lines, "\n") + "\n";
  std::uint64_t length = text.size();
  lanes.control->broadcast({&length, DType::kInt64}, 1, 0).wait();
  std::string first = text;
  first.resize(length);
  lanes.control->broadcast({first.data(), DType::kUInt8}, length, 0).wait();
  const std::int64_t differs = first != text ? 1 : 0;
  std::vector<std::int64_t> all(static_cast<std::size_t>(lanes.size()));
  lanes.control->all_gather({&differs, DType::kInt64}, {all.data(), DType::kInt64}, 1).wait();
  const auto odd = std::find(all.begin(), all.end(), 1);
  if (odd == all.end()) return;
  std::string sentence = "rank " + std::to_string(differs != 0 ? lanes.rank() : static_cast<int>(odd - all.begin())) +
                         " was given another model or other options than rank 0";
  if (differs != 0) sentence += ": " + first_difference(lines, std::move(first));
  throw Error(ErrorKind::kMismatch, sentence + ".", "Construct the same units and options on every rank.");
}

void broadcast_values(const Lanes& lanes, std::vector<CustomParameter>& parameters) {
  const at::NoGradGuard no_grad;
  for (CustomParameter& parameter : parameters) {
    if (!parameter.variable.is_contiguous()) parameter.variable.set_data(parameter.variable.contiguous());
    if (lanes.size() == 1) continue;
    const DType dtype = to_dtype(parameter.variable.scalar_type());
    lanes.control->broadcast({parameter.variable.data_ptr(), dtype}, static_cast<std::size_t>(parameter.variable.numel()), 0).wait();
  }
}

}  // namespace wirewise
