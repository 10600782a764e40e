// The log: what a person who looks into a run wants to read, on standard error. WIREWISE_DEBUG sets the level (trace, debug,
// info, warn, error, off; default warn). Results and errors that end a command are not log lines.
#pragma once

#include <cstdint>
#include <string>

namespace wirewise {

enum class LogLevel : std::uint8_t { kTrace, kDebug, kInfo, kWarn, kError, kOff };

/// Names the rank that later lines carry: "[12:00:01.234 rank 3] debug: …". Negative: none. Lines before the first call carry
/// none.
void set_log_rank(int rank);

/// True when a line of this level would be written: guards costly messages.
[[nodiscard]] bool log_enabled(LogLevel level);

/// Writes one line; safe from any thread. Control characters in the message are escaped.
void log(LogLevel level, const std::string& message);

inline void log_debug(const std::string& message) { log(LogLevel::kDebug, message); }
inline void log_info(const std::string& message) { log(LogLevel::kInfo, message); }
inline void log_warn(const std::string& message) { log(LogLevel::kWarn, message); }

}  // namespace wirewise
