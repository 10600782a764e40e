#include "wirewise/base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"

namespace wirewise {
namespace {

struct Suffix {
  std::string_view text;  // lower case
  int shift;              // power of two
};

constexpr std::array<Suffix, 14> kSuffixes{{
    {"", 0},
    {"b", 0},
    {"k", 10},
    {"kb", 10},
    {"kib", 10},
    {"m", 20},
    {"mb", 20},
    {"mib", 20},
    {"g", 30},
    {"gb", 30},
    {"gib", 30},
    {"t", 40},
    {"tb", 40},
    {"tib", 40},
}};

/// Three significant digits of 0 < value < 1000, without an exponent.
std::string three_digits(double value) {
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace

Bytes parse_size(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return bad_input(fmt::format("\"{}\" is no size: {}.", text, why),
                     "Write a whole number of bytes, or one with K, M, G or T (binary), such as 64K or 2G.");
  };
  Bytes number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status == std::errc::result_out_of_range) throw refuse("it does not fit in 64 bits");
  if (status != std::errc()) throw refuse("it does not start with a whole number");
  std::string_view rest = text.substr(static_cast<std::size_t>(end - text.data()));
  if (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const std::string suffix = lower_case(rest);
  for (const auto& known : kSuffixes) {
    if (known.text != suffix) continue;
    if (number > (std::numeric_limits<Bytes>::max() >> known.shift)) throw refuse("it does not fit in 64 bits");
    return number << known.shift;
  }
  throw refuse(fmt::format("\"{}\" is no unit", rest));
}

std::string format_bytes(Bytes bytes) {
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  constexpr std::array<std::string_view, 6> kUnits{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024.0;
  std::size_t unit = 0;
  // 1023.995 and more would print as 1024.00.
  while (value >= 1023.995 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string format_seconds(Seconds seconds) {
  if (!std::isfinite(seconds)) return std::isnan(seconds) ? "nan" : seconds > 0 ? "inf" : "-inf";
  if (seconds < 0) return fmt::format("-{}", format_seconds(-seconds));
  if (seconds == 0) return "0 s";
  if (seconds < 999.5e-6) return three_digits(seconds * 1e6) + " us";
  if (seconds < 999.5e-3) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return three_digits(seconds) + " s";
  const double whole = std::round(seconds);
  if (whole < 3600) return fmt::format("{:.0f} m {:02.0f} s", std::floor(whole / 60), std::fmod(whole, 60.0));
  const double minutes = std::round(seconds / 60);
  return fmt::format("{:.0f} h {:02.0f} m", std::floor(minutes / 60), std::fmod(minutes, 60.0));
}

}  // namespace wirewise
