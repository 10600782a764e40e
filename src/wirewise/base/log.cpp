#include "wirewise/base/log.h"

#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>
#include <strings.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "wirewise/base/terminal.h"
#include "wirewise/base/text.h"

namespace wirewise {
namespace {

constexpr std::array<std::pair<std::string_view, spdlog::level::level_enum>, 6> kLevels{{
    {"trace", spdlog::level::trace},
    {"debug", spdlog::level::debug},
    {"info", spdlog::level::info},
    {"warn", spdlog::level::warn},
    {"error", spdlog::level::err},
    {"off", spdlog::level::off},
}};

spdlog::level::level_enum level_of(LogLevel level) { return kLevels[static_cast<std::size_t>(level)].second; }

std::string pattern_for(int rank) {
  return rank < 0 ? "[%H:%M:%S.%e] %^%l%$: %v" : "[%H:%M:%S.%e rank " + std::to_string(rank) + "] %^%l%$: %v";
}

std::shared_ptr<spdlog::logger> make_logger() {
  // The colour decision is ours (NO_COLOR, terminal), so the sink gets no say in it.
  const bool colour = inspect_terminal(2).colour;
  auto sink =
      std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>(colour ? spdlog::color_mode::always : spdlog::color_mode::never);
  auto logger = std::make_shared<spdlog::logger>("wirewise", std::move(sink));
  logger->set_pattern(pattern_for(-1));
  logger->flush_on(spdlog::level::trace);
  logger->set_level(spdlog::level::warn);
  if (const char* wanted = std::getenv("WIREWISE_DEBUG"); wanted != nullptr && *wanted != '\0') {
    bool known = false;
    for (const auto& [name, level] : kLevels) {
      if (::strcasecmp(wanted, name.data()) != 0) continue;
      logger->set_level(level);
      known = true;
    }
    if (!known) logger->warn("WIREWISE_DEBUG={} is no level. Use trace, debug, info, warn, error or off.", printable(wanted));
  }
  return logger;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = make_logger();
  return *instance;
}

}  // namespace

void set_log_rank(int rank) { logger().set_pattern(pattern_for(rank)); }

bool log_enabled(LogLevel level) { return level != LogLevel::kOff && logger().should_log(level_of(level)); }

void log(LogLevel level, const std::string& message) {
  if (log_enabled(level)) logger().log(level_of(level), "{}", printable(message));
}

}  // namespace wirewise
