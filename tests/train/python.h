// Runs the Python of the project's environment, for tests that hold our files against other readers.
#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace wirewise::testing {

/// The interpreter that can import `module`: WIREWISE_PYTHON of the environment or the build, or the source tree's .venv. Empty: none can.
inline std::optional<std::string> python_with(const std::string& module) {
  std::vector<std::string> candidates;
  if (const char* chosen = std::getenv("WIREWISE_PYTHON")) candidates.emplace_back(chosen);
  candidates.emplace_back(WIREWISE_PYTHON);
  candidates.emplace_back(std::string(WIREWISE_SOURCE_DIR) + "/.venv/bin/python");
  for (const auto& python : candidates) {
    if (python.empty() || !std::filesystem::exists(python)) continue;
    if (std::system((python + " -c 'import " + module + "' 2>/dev/null").c_str()) == 0) return python;
  }
  return std::nullopt;
}

/// What `script` prints when run with `argument`; the test fails through the returned text when it exits with an error.
inline std::string run_python(const std::string& python, const std::filesystem::path& script, const std::string& argument) {
  std::string out;
  std::FILE* pipe = ::popen((python + " '" + script.string() + "' '" + argument + "' 2>&1").c_str(), "r");
  if (pipe == nullptr) return "popen failed";
  std::array<char, 4096> buffer{};
  for (std::size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) out.append(buffer.data(), got);
  const int status = ::pclose(pipe);
  return status == 0 ? out : "python failed: " + out;
}

}  // namespace wirewise::testing
