// Names as each format quotes them.
#include <algorithm>
#include <cctype>

#include <nlohmann/json.hpp>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/plan/emit.h"

namespace wirewise {

std::string shell_word(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) throw bad_input("a name with a zero byte can't stand in a script.", "Rename it.");
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string json_string(std::string_view text) {
  if (!is_utf8(text)) throw bad_input("the name " + printable(text) + " is no UTF-8.", "Rename it.");
  return nlohmann::json(std::string(text)).dump(-1, ' ', true);
}

void require_plain_host(std::string_view host, std::string_view format) {
  const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_'; };
  if (!host.empty() && host.front() != '-' && std::all_of(host.begin(), host.end(), plain)) return;
  throw bad_input(std::string(format) + " can't name the host " + (host.empty() ? "without a name" : printable(host)) + ".",
                  "Host names are letters, digits, dots, dashes and underscores there.");
}

}  // namespace wirewise
