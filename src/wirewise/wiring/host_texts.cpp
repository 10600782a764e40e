#include "wirewise/wiring/host_texts.h"

#include <algorithm>
#include <map>
#include <optional>

#include "wirewise/base/node_list.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/pasted.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostHosts = 4096;
constexpr std::size_t kSample = 200;  // lines after which a text without labels is given up

/// The next line from `at` on, which goes on behind it.
std::string_view next_line(std::string_view text, std::size_t& at) {
  const std::size_t end = std::min(text.find('\n', at), text.size());
  const std::string_view line = text.substr(at, end - at);
  at = end + 1;
  return line;
}

bool blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

bool numeric(std::string_view name) { return !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos; }

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= 200 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_' || c == '@' || c == '/';
  });
}

void append(HostText& host, std::string_view line, int number) {
  host.text.append(line).append("\n");
  host.lines.push_back(number);
}

/// "node1: …" before nearly all lines.
std::vector<HostText> by_label(std::string_view text) {
  std::vector<HostText> hosts;
  std::map<std::string, std::size_t, std::less<>> index;
  std::size_t filled = 0, labelled = 0;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view line = next_line(text, at);
    ++number;
    if (blank(line) || is_fence(line)) continue;
    const auto label = line_label(line);
    ++filled;
    if (label && is_name(label->name)) {
      ++labelled;
      auto found = index.find(label->name);
      if (found == index.end()) {
        if (hosts.size() == kMostHosts) return {};
        found = index.emplace(label->name, hosts.size()).first;
        HostText host;
        host.hosts.push_back(label->name);
        host.task = numeric(label->name);
        host.line = number;
        hosts.push_back(std::move(host));
      }
      std::string_view rest = line.substr(label->end);
      if (rest.starts_with(' ')) rest.remove_prefix(1);
      append(hosts[found->second], rest, number);
    } else if (is_command(line)) {
      --filled;
    }
    if (filled > kSample && labelled * 2 < filled) return {};
  }
  if (hosts.empty() || labelled * 20 < filled * 19 || (hosts.size() == 1 && hosts.front().task)) return {};
  hosts.front().alone = hosts.size() == 1;
  return hosts;
}

bool is_rule(std::string_view line) {
  line = trimmed(line.substr(0, std::min(line.find_last_not_of('\r') + 1, line.size())));
  return line.size() >= 4 && line.find_first_not_of('-') == std::string_view::npos;
}

/// "gpu[01-04]" or "gpu[01-04] (4)" between two rules: the hosts whose output follows.
std::vector<std::string> between_rules(std::string_view line) {
  line = trimmed(line.substr(0, line.find('\r')));
  if (const std::size_t count = line.find(" ("); count != std::string_view::npos && line.ends_with(')') && numeric(line.substr(count + 2, line.size() - count - 3))) line = line.substr(0, count);
  std::vector<std::string> names;
  if (line.empty() || line.find_first_of(" \t") != std::string_view::npos || expand_node_list(line, names, kMostHosts) || !std::all_of(names.begin(), names.end(), is_name)) return {};
  return names;
}

/// "node1 | CHANGED | rc=0 >>" of ansible.
std::optional<std::string> ansible_head(std::string_view line) {
  const std::size_t bar = line.find(" | ");
  if (bar == std::string_view::npos || !is_name(line.substr(0, bar))) return std::nullopt;
  const std::string_view state = line.substr(bar + 3);
  for (const std::string_view known : {"CHANGED", "SUCCESS", "FAILED", "UNREACHABLE!"}) {
    if (!state.starts_with(known)) continue;
    const std::string_view rest = state.substr(known.size());
    if (rest.starts_with(" | rc=") || rest.starts_with(" => {") || rest.starts_with("! => {")) return std::string(line.substr(0, bar));
  }
  return std::nullopt;
}

/// Heads of hosts, each before its output.
std::vector<HostText> by_head(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t at = 0; at < text.size();) lines.push_back(next_line(text, at));
  std::vector<HostText> hosts;
  std::size_t count = 0;
  const auto begin = [&](std::vector<std::string> names, std::size_t at) {
    count += names.size();
    HostText host;
    host.task = std::all_of(names.begin(), names.end(), numeric);
    host.hosts = std::move(names);
    host.line = static_cast<int>(at) + 1;
    hosts.push_back(std::move(host));
  };
  for (std::size_t i = 0; i < lines.size() && count <= kMostHosts; ++i) {
    if (is_rule(lines[i]) && i + 2 < lines.size() && is_rule(lines[i + 2])) {
      if (auto names = between_rules(lines[i + 1]); !names.empty()) {
        begin(std::move(names), i + 1);
        i += 2;
        continue;
      }
    }
    if (auto name = ansible_head(lines[i])) {
      begin({*name}, i);
    } else if (!hosts.empty() && !is_fence(lines[i]) && !is_command(lines[i])) {
      append(hosts.back(), lines[i], static_cast<int>(i) + 1);
    }
  }
  return count <= kMostHosts ? hosts : std::vector<HostText>{};
}

}  // namespace

std::vector<HostText> host_texts(std::string_view text) {
  if (std::vector<HostText> hosts = by_label(text); !hosts.empty()) return hosts;
  if (text.find(" | ") == std::string_view::npos && text.find("----\n") == std::string_view::npos && text.find("----\r") == std::string_view::npos) return {};
  return by_head(text);
}

}  // namespace wirewise
