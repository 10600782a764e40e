// `wirewise ckpt`: looks into checkpoints.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/commands.h"
#include "wirewise/train/checkpoint.h"

namespace wirewise {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct InfoArguments {
  std::string folder;
  bool json = false;
};

/// The checkpoint that a person means: the folder itself, or the newest complete one in it.
fs::path find_checkpoint(const std::string& folder) {
  std::error_code error;  // a name that is too long is no folder either
  if (!fs::is_directory(folder, error))
    throw bad_input("there is no folder " + printable(folder) + ".", "Name a checkpoint or the folder that train wrote to.");
  for (const fs::path& parent : {fs::path(folder), fs::path(folder) / "checkpoints"}) {
    if (const auto newest = newest_checkpoint(parent)) return *newest;
  }
  return folder;
}

Json info_of(const fs::path& path, const CheckpointReader& reader) {
  Json tensors = Json::array();
  std::uint64_t elements = 0;
  Bytes bytes = 0;
  for (const auto& [name, tensor] : reader.tensors()) {
    elements += tensor.numel;
    bytes += tensor.numel * size_of(tensor.dtype);
    tensors.push_back({{"name", name}, {"shape", tensor.shape}, {"dtype", name_of(tensor.dtype)}});
  }
  Json state = Json::object();
  for (const auto& [key, value] : reader.state()) state[key] = value;
  return {{"checkpoint", path.string()}, {"step", reader.step()}, {"ranks", reader.ranks()},
          {"elements", elements},        {"bytes", bytes},        {"state", state},
          {"tensors", tensors}};
}

void print_text(const Json& info) {
  std::cout << "checkpoint  " << printable(info["checkpoint"].get<std::string>()) << "\n"
            << "step        " << info["step"] << "\n"
            << "written by  " << info["ranks"] << (info["ranks"] == 1 ? " rank\n" : " ranks\n") << "tensors     "
            << info["tensors"].size() << ", " << info["elements"] << " elements, " << format_bytes(info["bytes"].get<Bytes>())
            << "\n";
  for (const auto& [key, value] : info["state"].items())
    std::cout << "  " << printable(key) << " = " << printable(value.get<std::string>()) << "\n";
  for (const Json& tensor : info["tensors"]) {
    std::cout << "  " << printable(tensor["name"].get<std::string>()) << " " << tensor["shape"].dump() << " "
              << tensor["dtype"].get<std::string>() << "\n";
  }
}

}  // namespace

void register_ckpt(CLI::App& app, int& exit) {
  CLI::App* ckpt = app.add_subcommand("ckpt", "Look into checkpoints");
  ckpt->require_subcommand(1);
  auto arguments = std::make_shared<InfoArguments>();
  CLI::App* info = ckpt->add_subcommand("info", "What a checkpoint holds");
  info->add_option("folder", arguments->folder, "A checkpoint, or the folder that train wrote to")->required();
  info->add_flag("--json", arguments->json, "One line of JSON");
  info->callback([arguments, &exit] {
    const fs::path path = find_checkpoint(arguments->folder);
    const CheckpointReader reader(path);
    const Json result = info_of(path, reader);
    if (arguments->json) {
      std::cout << result.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
    } else {
      print_text(result);
    }
    exit = 0;
  });
}

}  // namespace wirewise
