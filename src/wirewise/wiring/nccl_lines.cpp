#include "wirewise/wiring/nccl_lines.h"

#include <algorithm>
#include <string_view>

#include "wirewise/base/text.h"

namespace wirewise {
namespace {

struct Mark {
  std::size_t at = std::string::npos;  // of "NCCL"
  std::size_t end = 0;                 // behind the level
  std::string level;
};

/// The next " NCCL INFO " and the like from `from` on.
Mark mark_of(std::string_view text, std::size_t from) {
  for (std::size_t at = text.find("NCCL ", from); at != std::string_view::npos; at = text.find("NCCL ", at + 1)) {
    if (at > 0 && text[at - 1] != ' ' && text[at - 1] != '\t') continue;
    for (const char* level : {"INFO", "WARN", "TRACE", "CALL", "ABORT", "VERSION"}) {
      const std::string_view name = level;
      if (text.substr(at + 5, name.size()) == name) return {at, at + 5 + name.size(), level};
    }
  }
  return {};
}

/// A word without the time that a log collector glued to its front: "2026-01-31T12:00:00.123-07:00node1:7:7".
std::string_view without_time(std::string_view word) {
  static constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:dd";
  if (word.size() <= kForm.size()) return word;
  const auto digit = [&](std::size_t at) { return at < word.size() && word[at] >= '0' && word[at] <= '9'; };
  for (std::size_t i = 0; i < kForm.size(); ++i) {
    if (kForm[i] == 'd' ? !digit(i) : word[i] != kForm[i]) return word;
  }
  std::size_t at = kForm.size();
  if (at < word.size() && (word[at] == '.' || word[at] == ',')) ++at;
  while (digit(at)) ++at;
  if (at < word.size() && word[at] == 'Z') return word.substr(at + 1);
  if (at + 6 <= word.size() && (word[at] == '+' || word[at] == '-') && digit(at + 1) && digit(at + 2) && word[at + 3] == ':' && digit(at + 4) && digit(at + 5)) return word.substr(at + 6);
  return word.substr(at);
}

/// "host:pid:tid", perhaps with what a launcher put before it.
bool read_prefix(const std::string& whole, NcclLine& line) {
  const std::string word(without_time(whole));
  const std::size_t second = word.rfind(':');
  const std::size_t first = second == std::string::npos || second == 0 ? std::string::npos : word.rfind(':', second - 1);
  if (first == std::string::npos) return false;
  const auto pid = parse_integer(std::string_view(word).substr(first + 1, second - first - 1));
  const auto tid = parse_integer(std::string_view(word).substr(second + 1));
  const std::size_t start = word.find_last_of(":>]", first - (first > 0 ? 1 : 0));
  const std::size_t host_at = first > 0 && start != std::string::npos && start < first ? start + 1 : 0;
  if (!pid || !tid || *pid < 0 || *tid < 0 || host_at >= first) return false;
  line.host = word.substr(host_at, first - host_at);
  line.pid = *pid;
  line.tid = *tid;
  return true;
}

NcclLine parse(std::string_view text, const Mark& mark, std::size_t end, int number) {
  NcclLine line;
  line.number = number;
  line.level = mark.level;
  line.text = std::string(trimmed(text.substr(mark.end, end - mark.end)));
  TextLine head;
  head.text = std::string(text.substr(0, mark.at));
  head.column.assign(head.text.size(), 0);
  for (const Word& word : words_of(head)) {
    const std::string& one = word.text;
    const bool bracketed = one.size() > 2 && one.front() == '[' && one.back() == ']';
    if (line.host.empty() && read_prefix(one, line)) continue;
    if (const auto device = bracketed ? parse_integer(std::string_view(one).substr(1, one.size() - 2)) : std::nullopt; device && *device >= 0 && *device < 4096) {
      line.device = static_cast<int>(*device);
    } else if (!line.host.empty() && !bracketed && one.find(':') != std::string::npos) {
      line.place = one;
    }
  }
  return line;
}

}  // namespace

std::vector<NcclLine> nccl_lines(const TextLine& line, const std::set<std::string>& hosts) {
  std::vector<NcclLine> found;
  const std::string_view text = line.text;
  std::size_t from = 0;
  Mark mark = mark_of(text, 0);
  if (mark.at == std::string::npos) {
    NcclLine plain;
    plain.number = line.number;
    plain.text = line.text;
    return {plain};
  }
  while (mark.at != std::string::npos) {
    const Mark next = mark_of(text, mark.end);
    std::size_t end = text.size();
    if (next.at != std::string::npos) {  // the last host name before it begins the next message
      end = next.at;
      std::size_t best = 0;
      for (const std::string& host : hosts) {
        const std::size_t at = text.substr(0, next.at).rfind(host + ":");
        if (at != std::string_view::npos && at >= mark.end) best = std::max(best, at);
      }
      if (best > 0) end = best;
    }
    Mark local = mark;
    local.at -= from;
    local.end -= from;
    found.push_back(parse(text.substr(from, end - from), local, end - from, line.number));
    if (next.at == std::string::npos) break;
    from = end;
    mark = next;
    if (found.size() > 64) break;
  }
  return found;
}

}  // namespace wirewise
