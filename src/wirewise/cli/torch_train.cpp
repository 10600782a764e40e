// `wirewise train`: trains a model from a configuration.
#include <CLI/CLI.hpp>

#include "wirewise/base/error.h"
#include "wirewise/cli/commands.h"

namespace wirewise {

void register_train(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("train", "Train a model");
  command->allow_extras();
  command->callback([] { throw Error(ErrorKind::kFailed, "training is not part of this build."); });
}

}  // namespace wirewise
