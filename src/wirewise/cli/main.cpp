// wirewise: the command line. Each subcommand stands in its own file; here are only the table of them and how errors leave.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/base/nearest.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/commands.h"
#include "wirewise/cli/report.h"

namespace wirewise {
namespace {

/// The subcommand that the arguments reached, or the whole.
const CLI::App& innermost(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? "wirewise" : full_name(*app.get_parent()) + " " + app.get_name();
}

/// What CLI11 found wrong, as our own error: with the option or subcommand that was probably meant.
Error parse_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = innermost(app);
  std::string help = "See " + full_name(command) + " --help.";
  const auto extras = app.remaining(true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !extras.empty()) {
    const std::string& word = extras.front();
    std::vector<std::string> known;
    if (word.rfind('-', 0) == 0) {
      for (const CLI::Option* option : command.get_options()) {
        for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
      }
      if (const auto guess = nearest(word.substr(0, word.find('=')), known)) help = "Did you mean " + *guess + "? " + help;
      return bad_input(full_name(command) + " has no option " + printable(word) + ".", help);
    }
    for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) known.push_back(sub->get_name());
    if (const auto guess = nearest(word, known)) help = "Did you mean " + *guess + "? " + help;
    return bad_input(full_name(command) + " does not know what to do with " + printable(word) + ".", help);
  }
  std::string sentence = printable(error.what());
  if (!sentence.empty() && sentence.back() != '.') sentence += '.';
  return bad_input(sentence, help);
}

/// An empty value is most often a shell's variable that isn't set, and would be taken for an option that isn't given. Hosts to leave out may be
/// none, and words of programs to be launched are not ours.
void refuse_empty(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front() == "launch") return;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const bool assigned = word.starts_with("--") && word.find('=') == word.size() - 1;
    if (!word.empty() && !assigned) continue;
    const std::string option = assigned ? word.substr(0, word.size() - 1) : i > 0 ? arguments[i - 1] : "";
    if (option == "--exclude") continue;
    throw bad_input((option.starts_with("--") ? printable(option) + " is given, but" : "an argument is given, but") + " empty.",
                    "Say what it is, or leave it out: a variable of the shell may not be set.");
  }
}

int run(std::vector<std::string> arguments) {
  int exit = 0;
  // What follows "--" is a program of its own, with options of its own: the parser must not see it.
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  const std::vector<std::string> program(dashes == arguments.end() ? dashes : dashes + 1, arguments.end());
  arguments.erase(dashes, arguments.end());
  CLI::App app("Distributed training that knows its wiring.", "wirewise");
  app.set_version_flag("--version", std::string("wirewise ") + WIREWISE_VERSION);
  register_train(app, exit);
  register_launch(app, exit, program);
  register_bench(app, exit);
  register_ckpt(app, exit);
  register_topo(app, exit);
  register_place(app, exit);
  register_doctor(app, exit);
  register_env(app, exit);
  try {
    if (!program.empty() && (arguments.empty() || arguments.front() != "launch")) {
      throw bad_input("only wirewise launch takes a program after --.", "See wirewise --help.");
    }
    refuse_empty(arguments);
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(std::move(arguments));
  } catch (const CLI::Success& help) {  // --help, --version
    const int code = app.exit(help);
    flush_output();
    return code;
  } catch (const CLI::ParseError& error) {
    throw parse_error(app, error);
  }
  if (app.get_subcommands().empty()) {
    std::cerr << app.help();
    return exit_code(ErrorKind::kBadInput);
  }
  // What a training run leaves is its checkpoints, and what a launched program prints is its own.
  if (exit == 0 && !app.got_subcommand("train") && !app.got_subcommand("launch")) flush_output();
  return exit;
}

}  // namespace
}  // namespace wirewise

int main(int argc, char** argv) {
  try {
    wirewise::occupy_standard_streams();
    return wirewise::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    return wirewise::report(error);
  }
}
