#include "wirewise/cli/bench_sizes.h"

#include <string>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"

namespace wirewise::bench {
namespace {

constexpr const char* kForms = "Write sizes such as 8,64K,1M, a range by factors such as 8:256M:x4, or by steps such as 8:64:+8.";

Error refuse(const std::string& option, const std::string& item, const std::string& why) {
  return bad_input(option + ": \"" + printable(item) + "\" is no size or range: " + why + ".", kForms);
}

Bytes size_of_part(const std::string& option, const std::string& item, std::string_view part) {
  try {
    return parse_size(part);
  } catch (const Error&) {
    throw refuse(option, item, "\"" + printable(part) + "\" is not a whole number of bytes, with or without K, M, G or T");
  }
}

void push(const std::string& option, std::vector<Bytes>& sizes, Bytes size) {
  if (sizes.size() == kMostSizes) {
    throw bad_input(option + " asks for more than " + std::to_string(kMostSizes) + " sizes.", "Take larger steps.");
  }
  sizes.push_back(size);
}

void push_range(const std::string& option, std::vector<Bytes>& sizes, const std::string& item, const std::vector<std::string>& parts) {
  const Bytes first = size_of_part(option, item, parts[0]);
  const Bytes last = size_of_part(option, item, parts[1]);
  if (last < first) throw refuse(option, item, "it ends before it begins");
  const std::string step = parts.size() == 3 ? parts[2] : "x2";
  if (step.size() < 2 || (step[0] != 'x' && step[0] != '+')) throw refuse(option, item, "a step is xFACTOR or +BYTES");
  const Bytes amount = size_of_part(option, item, std::string_view(step).substr(1));
  const bool by_factor = step[0] == 'x';
  if (by_factor && amount < 2) throw refuse(option, item, "a factor is 2 or more");
  if (by_factor && first == 0) throw refuse(option, item, "0 times a factor stays 0");
  if (!by_factor && amount == 0) throw refuse(option, item, "a step is 1 or more");
  for (Bytes size = first;;) {
    push(option, sizes, size);
    if (by_factor ? size > last / amount : last - size < amount) return;
    size = by_factor ? size * amount : size + amount;
  }
}

}  // namespace

std::vector<Bytes> parse_sizes(std::string_view text, const std::string& option) {
  std::vector<Bytes> sizes;
  for (const std::string& item : split(text, ',')) {
    const std::vector<std::string> parts = split(item, ':');
    if (parts.empty()) throw refuse(option, item, "it is empty");
    if (parts.size() > 3) throw refuse(option, item, "a range has a first size, a last size and a step");
    if (parts.size() == 1) {
      push(option, sizes, size_of_part(option, item, parts[0]));
    } else {
      push_range(option, sizes, item, parts);
    }
  }
  if (sizes.empty()) throw bad_input(option + " is empty.", kForms);
  return sizes;
}

}  // namespace wirewise::bench
