#include "wirewise/train/loop_checkpoint.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "wirewise/base/error.h"

namespace wirewise {

void agree(const Lanes& lanes, const std::string& failure) {
  // Texts travel in frames of one size, so that a failed rank needs no other call than the ones that succeeded.
  constexpr std::size_t kText = 1000;
  std::array<std::uint8_t, kText> mine{};
  std::copy_n(failure.begin(), std::min(failure.size(), kText - 1), mine.begin());
  std::vector<std::uint8_t> all(kText * static_cast<std::size_t>(lanes.size()));
  lanes.control->all_gather({mine.data(), DType::kUInt8}, {all.data(), DType::kUInt8}, kText).wait();
  for (int rank = 0; rank < lanes.size(); ++rank) {
    const char* text = reinterpret_cast<const char*>(all.data()) + kText * static_cast<std::size_t>(rank);
    if (*text == '\0') continue;
    throw Error(ErrorKind::kFailed, (lanes.size() > 1 ? "rank " + std::to_string(rank) + ": " : std::string()) + text);
  }
}

std::filesystem::path save_state(const std::filesystem::path& folder, std::uint64_t step, const Prepared& prepared, const ModelState& state,
                                 const TrainState& train_state, const Lanes& lanes) {
  std::vector<Fragment> fragments;
  // What lies on a device is copied here first.
  std::vector<std::array<at::Tensor, 3>> held;
  for (const GroupState& group : state.groups) {
    const auto here = [](const at::Tensor& flat) { return flat.defined() ? flat.cpu() : flat; };
    held.push_back({here(group.master), here(group.exp_avg), here(group.exp_avg_sq)});
  }
  for (const OwnedRange& range : state.owned_once()) {
    const auto& [master, exp_avg, exp_avg_sq] = held[static_cast<std::size_t>(range.group)];
    const auto add = [&](const std::string& kind, const at::Tensor& flat) {
      if (!flat.defined()) return;
      fragments.push_back({kind + "/" + range.tensor->name, range.tensor->shape, range.begin, range.length, DType::kFloat32,
                           flat.const_data_ptr<float>() + range.local});
    };
    add("model", master);
    add("exp_avg", exp_avg);
    add("exp_avg_sq", exp_avg_sq);
  }
  return save_checkpoint(folder, step, lanes.rank(), lanes.size(), fragments, train_state, prepared.config.checkpoint_keep,
                         [&](const std::string& failure) { agree(lanes, failure); });
}

void load_state(const CheckpointReader& reader, const Prepared& prepared, ModelState& state) {
  // Too much is as wrong as too little: a checkpoint of another model may hold all of this one's tensors.
  for (const auto& [name, info] : reader.tensors()) {
    if (!name.starts_with("model/")) continue;
    const auto known = [&wanted = name](const ParamGroup& group) {
      return std::any_of(group.tensors.begin(), group.tensors.end(), [&](const TensorShape& tensor) { return "model/" + tensor.name == wanted; });
    };
    if (std::none_of(prepared.model.groups.begin(), prepared.model.groups.end(), known)) {
      throw bad_input("checkpoint " + reader.folder().string() + " holds a tensor " + name.substr(6) + " that this model does not have.",
                      "Train with the model it was written by, or into another --out.");
    }
  }
  const auto source = [&](const std::string& kind) -> ModelState::Source {
    return [&reader, kind](const TensorShape& tensor, std::uint64_t begin, std::uint64_t length, float* out) {
      reader.read(kind + "/" + tensor.name, tensor.shape, begin, length, out);
    };
  };
  if (prepared.config.optimizer == Optimizer::kAdamW) {
    state.load(source("model"), source("exp_avg"), source("exp_avg_sq"));
  } else {
    state.load(source("model"), {}, {});
  }
}

}  // namespace wirewise
