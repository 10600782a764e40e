// The subcommands: each file adds its own to the command line and leaves the exit code of what it ran in `exit`.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace wirewise {

void register_env(CLI::App& app, int& exit);
/// `command` is what stands after "--" on the command line.
void register_launch(CLI::App& app, int& exit, const std::vector<std::string>& command);
void register_bench(CLI::App& app, int& exit);
void register_ckpt(CLI::App& app, int& exit);
void register_doctor(CLI::App& app, int& exit);
void register_place(CLI::App& app, int& exit);
void register_topo(CLI::App& app, int& exit);
/// In torch_train.cpp with libtorch, in train.cpp without.
void register_train(CLI::App& app, int& exit);

}  // namespace wirewise
