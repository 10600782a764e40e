// `wirewise train` in a build without libtorch: there only to say how to get one with it.
#ifndef WIREWISE_WITH_TORCH

#include <CLI/CLI.hpp>

#include "wirewise/base/error.h"
#include "wirewise/cli/commands.h"

namespace wirewise {

void register_train(CLI::App& app, int&) {
  CLI::App* command = app.add_subcommand("train", "Train a model (this build has no libtorch)");
  command->allow_extras();
  command->callback([] {
    throw bad_input("this wirewise was built without libtorch, so it can't train.",
                    "Run ./run build, or configure with -DWIREWISE_TORCH=ON -DWIREWISE_PYTHON=PYTHON, a Python that has torch.");
  });
}

}  // namespace wirewise

#endif
