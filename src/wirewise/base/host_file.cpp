#include "wirewise/base/host_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "wirewise/base/text.h"

namespace wirewise {
namespace {

constexpr long long kMostSlots = 1 << 20;
constexpr std::string_view kBlanks = " \t\r\v\f";

std::optional<int> slots_of(std::string_view text) {
  const auto number = parse_integer(text);
  if (!number || *number < 1 || *number > kMostSlots) return std::nullopt;
  return static_cast<int>(*number);
}

class Line {
 public:
  Line(std::string_view text, int number) : text_(text.substr(0, text.find('#'))), number_(number) {}

  std::optional<HostFileFault> parse(std::vector<HostLine>& hosts) {
    std::string_view word = next();
    if (word.empty()) return std::nullopt;
    HostLine host;
    host.line = number_;
    host.column = column_;
    if (word.front() == '-' || word.find('=') != std::string_view::npos) {  // ssh would read an option
      return fault(fmt::format("{} is no host's name.", printable(word.substr(0, 80))), "Write a line a host: node1 slots=2.");
    }
    if (word.find(',') != std::string_view::npos && word.find(':') != std::string_view::npos && word.find('[') == std::string_view::npos) return parse_list(word, hosts);
    const std::size_t colon = word.find(':');
    if (colon != std::string_view::npos && word.find(':', colon + 1) == std::string_view::npos) {  // two make an address of IPv6
      const auto slots = slots_of(word.substr(colon + 1));
      if (!slots || colon == 0) return fault(fmt::format("{} is no host with a number of ranks.", printable(word.substr(0, 80))), "Write node1:2.");
      host.slots = *slots;
      host.slots_given = true;
      word = word.substr(0, colon);
    }
    host.name = word;
    int words = 0;
    while (!(word = next()).empty()) {
      const std::size_t equals = word.find('=');
      const std::string_view key = word.substr(0, equals);
      if ((key == "ifhn" || key == "binding") && equals != std::string_view::npos && equals + 1 < word.size()) {
        host.others += (host.others.empty() ? "" : " ") + std::string(word);
        continue;
      }
      const bool plain = words++ == 0 && slots_of(word) && !parse_integer(host.name);  // "node1 8"; two numbers are a table of something
      const bool most = key == "max_slots" || key == "max-slots";
      const bool again = most ? host.most_slots > 0 : host.slots_given;
      if (plain && !host.slots_given) {
        host.slots = *slots_of(word);
        host.slots_given = true;
        continue;
      }
      if ((key != "slots" && key != "np" && !most) || equals == std::string_view::npos || again) {
        return fault(fmt::format("{}{} after the host's name.", key == "slots" && again ? "a second " : "", printable(word.substr(0, 80))),
                     "Only slots=N, the host's number of ranks, may stand there.");
      }
      const auto slots = slots_of(word.substr(equals + 1));
      if (!slots) return fault(fmt::format("{} is no number of ranks.", printable(word.substr(0, 80))), "Write slots=2.");
      (most ? host.most_slots : host.slots) = *slots;
      host.slots_given = host.slots_given || !most;
    }
    hosts.push_back(std::move(host));
    return std::nullopt;
  }

 private:
  /// "node1:8,node2:8".
  std::optional<HostFileFault> parse_list(std::string_view list, std::vector<HostLine>& hosts) {
    const int column = column_;
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      const std::string_view one = list.substr(begin, end - begin);
      const std::size_t colon = one.find(':');
      const auto slots = colon == std::string_view::npos ? std::nullopt : slots_of(one.substr(colon + 1));
      column_ = column + static_cast<int>(begin);
      if (!slots || colon == 0) return fault(fmt::format("{} is no host with a number of ranks.", printable(one.substr(0, 80))), "Write node1:2,node2:2.");
      HostLine host;
      host.name = one.substr(0, colon);
      host.slots = *slots;
      host.slots_given = true;
      host.line = number_;
      host.column = column_;
      hosts.push_back(std::move(host));
      begin = end + 1;
    }
    const std::string_view rest = next();
    if (!rest.empty()) return fault(fmt::format("{} after a list of hosts.", printable(rest.substr(0, 80))), "Write the list alone on its line.");
    return std::nullopt;
  }

  std::string_view next() {
    const std::size_t begin = std::min(text_.find_first_not_of(kBlanks, at_), text_.size());
    at_ = std::min(text_.find_first_of(kBlanks, begin), text_.size());
    column_ = static_cast<int>(begin) + 1;
    return text_.substr(begin, at_ - begin);
  }

  [[nodiscard]] HostFileFault fault(std::string what, std::string remedy) const { return {number_, column_, std::move(what), std::move(remedy)}; }

  std::string_view text_;
  int number_, column_ = 0;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<HostFileFault> parse_host_lines(std::string_view text, std::vector<HostLine>& hosts) {
  int number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (auto fault = Line(text.substr(begin, end - begin), ++number).parse(hosts)) return fault;
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace wirewise
