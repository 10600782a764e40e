#include "wirewise/torch/custom_model.h"

#include <algorithm>
#include <map>
#include <set>

#include "wirewise/base/error.h"

namespace wirewise {
namespace {

void check_units(const std::vector<Unit>& units) {
  if (units.empty()) throw bad_input("the model has no units.", "Pass at least one wirewise::unit(name, module).");
  std::set<std::string> names;
  for (const Unit& unit : units) {
    if (unit.name.empty()) throw bad_input("a unit has no name.", "Name each unit: its parameters are named after it.");
    if (!unit.forward) throw bad_input("unit " + unit.name + " has no forward function.", "Make it with wirewise::unit(name, module).");
    if (!names.insert(unit.name).second) throw bad_input("two units are called " + unit.name + ".", "Give each unit a name of its own.");
  }
}

void check_parameter(const std::string& name, const at::Tensor& variable) {
  if (!variable.defined()) throw bad_input("parameter " + name + " is undefined.", "Give it a value before the trainer is made.");
  if (!variable.device().is_cpu()) {
    throw bad_input("parameter " + name + " is on " + variable.device().str() + ".", "Construct the modules on the CPU: this build trains there.");
  }
  const c10::ScalarType type = variable.scalar_type();
  if (type != c10::kFloat && type != c10::kBFloat16 && type != c10::kHalf) {
    throw bad_input("parameter " + name + " is of type " + c10::toString(type) + ".",
                    "Construct it in float32: the master weights are float32, and strategy.param_dtype sets what forward and backward see.");
  }
  if (!variable.requires_grad()) {
    throw bad_input("parameter " + name + " is frozen (requires_grad is false), which isn't supported yet.",
                    "Let it require a gradient, or keep the constant as a plain tensor member.");
  }
  if (variable.layout() != c10::kStrided) throw bad_input("parameter " + name + " is sparse.", "Use a dense tensor.");
  if (variable.numel() == 0) throw bad_input("parameter " + name + " has no elements.", "Remove it.");
}

void check_buffers(const Unit& unit) {
  for (const auto& item : unit.module->named_buffers()) {
    // A buffer is part of what a module learns when its forward changes it, as batch normalisation does; ranks would drift apart.
    const std::string& key = item.key();
    for (const char* changing : {"running_mean", "running_var", "num_batches_tracked"}) {
      const std::string suffix = changing;
      if (key.size() < suffix.size() || key.compare(key.size() - suffix.size(), suffix.size(), suffix) != 0) continue;
      throw bad_input("buffer " + unit.name + "." + key + " changes in training, and ranks don't exchange buffers yet.",
                      "Use LayerNorm or GroupNorm, or BatchNorm with track_running_stats(false).");
    }
  }
}

}  // namespace

std::int64_t counted_targets(const at::Tensor& targets) {
  if (!targets.defined()) return 0;
  if (targets.is_floating_point()) return targets.numel();
  return targets.ge(0).sum().item<std::int64_t>();
}

std::vector<CustomParameter> parameters_of(const std::vector<Unit>& units) {
  check_units(units);
  std::vector<CustomParameter> parameters;
  std::map<const c10::TensorImpl*, std::size_t> seen;
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (!units[u].module) continue;
    check_buffers(units[u]);
    for (const auto& item : units[u].module->named_parameters()) {
      const std::string name = units[u].name + "." + item.key();
      check_parameter(name, item.value());
      const auto [place, fresh] = seen.emplace(item.value().unsafeGetTensorImpl(), parameters.size());
      if (fresh) parameters.push_back({name, item.value(), {}});
      std::vector<int>& users = parameters[place->second].users;
      if (users.empty() || users.back() != static_cast<int>(u)) users.push_back(static_cast<int>(u));
    }
  }
  if (parameters.empty()) throw bad_input("no unit has a parameter.", "Register parameters or submodules in the units' modules.");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!parameters[i].variable.is_alias_of(parameters[j].variable)) continue;
      throw bad_input("parameters " + parameters[j].name + " and " + parameters[i].name + " are views of one memory.",
                      "Share a parameter by registering the same tensor or submodule in both places.");
    }
  }
  return parameters;
}

Model build_custom_model(const std::vector<Unit>& units, const std::vector<CustomParameter>& parameters, const std::vector<SegmentCost>& costs,
                         const BatchShape& batch, int shards) {
  Model model;
  model.config.family = Family::kCustom;
  model.batch = batch;
  std::map<std::vector<int>, std::size_t> group_of;
  for (const CustomParameter& parameter : parameters) {
    const auto [place, fresh] = group_of.emplace(parameter.users, model.groups.size());
    if (fresh) {
      const bool shared = parameter.users.size() > 1;
      const std::string& unit = units[static_cast<std::size_t>(parameter.users.front())].name;
      model.groups.push_back({shared ? parameter.name : unit, {}, 0, parameter.users});
    }
    TensorShape shape;
    shape.name = parameter.name;
    shape.shape = parameter.variable.sizes().vec();
    shape.decay = parameter.variable.dim() >= 2;
    model.groups[place->second].tensors.push_back(std::move(shape));
  }
  for (ParamGroup& group : model.groups) lay_out(group, shards);
  for (std::size_t u = 0; u < units.size(); ++u) {
    UnitShape unit;
    unit.name = units[u].name;
    unit.kind = UnitKind::kCustom;
    for (std::size_t g = 0; g < model.groups.size(); ++g) {
      const std::vector<int>& users = model.groups[g].users;
      if (std::find(users.begin(), users.end(), static_cast<int>(u)) != users.end()) unit.groups.push_back(static_cast<int>(g));
    }
    SegmentShape segment;
    segment.name = "module";
    segment.groups = unit.groups;
    segment.cost = costs.at(u);
    unit.segments.push_back(std::move(segment));
    model.units.push_back(std::move(unit));
  }
  return model;
}

}  // namespace wirewise
