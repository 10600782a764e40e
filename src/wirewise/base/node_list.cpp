#include "wirewise/base/node_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"

namespace wirewise {
namespace {

constexpr std::size_t kLongestName = 255;  // of a host, in DNS
constexpr std::size_t kMostDigits = 19;    // that always fit in 64 bits without a sign

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The value of up to kMostDigits digits; empty for anything else.
std::optional<std::uint64_t> number_of(std::string_view digits) {
  if (digits.empty() || digits.size() > kMostDigits || !std::all_of(digits.begin(), digits.end(), is_digit)) return std::nullopt;
  std::uint64_t value = 0;
  for (char digit : digits) value = value * 10 + static_cast<std::uint64_t>(digit - '0');
  return value;
}

class Expander {
 public:
  Expander(std::string_view list, std::vector<std::string>& names, std::size_t most) : list_(list), names_(names), most_(most) {}

  std::optional<NodeListFault> expand() {
    while (!fault_ && at_ < list_.size()) {
      entry();
      if (fault_ || at_ == list_.size()) break;
      if (++at_ == list_.size()) fail(at_ - 1, "nothing follows the last comma");
    }
    return fault_;
  }

 private:
  void fail(std::size_t offset, std::string what) {
    if (!fault_) fault_ = NodeListFault{offset, std::move(what)};
  }

  void too_many(std::size_t offset) { fail(offset, fmt::format("the list stands for more than {} names", most_)); }

  /// Text and brackets in turn, up to a comma outside of brackets. Each bracket multiplies the names so far.
  void entry() {
    const std::size_t start = at_;
    std::vector<std::string> found{""};
    while (at_ < list_.size() && list_[at_] != ',') {
      const std::size_t here = at_;
      if (list_[at_] == ']') return fail(at_, "there is a ] without its [");
      if (list_[at_] == '[') {
        const std::vector<std::string> numbers = bracket(found.size());
        if (fault_) return;
        std::vector<std::string> product;
        product.reserve(found.size() * numbers.size());
        for (const std::string& name : found) {
          for (const std::string& number : numbers) product.push_back(name + number);
        }
        found.swap(product);
      } else {
        at_ = std::min(list_.find_first_of(",[]", at_), list_.size());
        if (at_ - here > kLongestName) return fail(start, fmt::format("a name has more than {} bytes", kLongestName));
        for (std::string& name : found) name += list_.substr(here, at_ - here);
      }
      if (found.front().size() > kLongestName) return fail(start, fmt::format("a name has more than {} bytes", kLongestName));
    }
    if (at_ == start) return fail(at_, "a name is missing before the comma");
    if (found.size() > most_ - std::min(most_, names_.size())) return too_many(start);
    names_.insert(names_.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  }

  /// The numbers of the bracket at at_, which then stands behind it. `times`: names that each of them makes.
  std::vector<std::string> bracket(std::size_t times) {
    std::vector<std::string> numbers;
    const std::size_t open = at_;
    const std::size_t close = list_.find(']', open);
    if (close == std::string_view::npos) {
      fail(open, "the bracket is never closed");
      return numbers;
    }
    for (std::size_t from = open + 1; from <= close;) {
      const std::size_t end = std::min(list_.find(',', from), close);
      range(from, list_.substr(from, end - from), times, numbers);
      if (fault_) return numbers;
      from = end + 1;
    }
    at_ = close + 1;
    return numbers;
  }

  void range(std::size_t offset, std::string_view text, std::size_t times, std::vector<std::string>& numbers) {
    const std::size_t dash = text.find('-');
    const std::string_view first = text.substr(0, dash);
    const auto low = number_of(first);
    const auto high = dash == std::string_view::npos ? low : number_of(text.substr(dash + 1));
    if (!low || !high) return fail(offset, fmt::format("\"{}\" is neither a number nor a range of numbers", printable(text.substr(0, 40))));
    if (*high < *low) return fail(offset, fmt::format("the range {} counts down", text));
    const std::size_t room = (most_ - std::min(most_, names_.size())) / times;
    if (numbers.size() >= room || *high - *low >= room - numbers.size()) return too_many(offset);
    const std::uint64_t more = *high - *low;
    for (std::uint64_t i = 0; i <= more; ++i) numbers.push_back(fmt::format("{:0{}}", *low + i, first.size()));
  }

  std::string_view list_;
  std::vector<std::string>& names_;
  std::size_t most_, at_ = 0;
  std::optional<NodeListFault> fault_;
};

/// A name cut at its last number.
struct Parts {
  std::string_view head, digits, tail;
};

Parts parts_of(std::string_view name) {
  std::size_t end = name.size();
  while (end > 0 && !is_digit(name[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && is_digit(name[begin - 1])) --begin;
  return {name.substr(0, begin), name.substr(begin, end - begin), name.substr(end)};
}

}  // namespace

std::optional<NodeListFault> expand_node_list(std::string_view list, std::vector<std::string>& names, std::size_t most) {
  return Expander(list, names, most).expand();
}

std::vector<std::string> expand_node_list(std::string_view list) {
  std::vector<std::string> names;
  if (const auto fault = expand_node_list(list, names)) {
    throw bad_input(fmt::format("the node list {}{} can't be read: {}, at column {}.", printable(list.substr(0, 200)), list.size() > 200 ? "…" : "",
                                fault->what, fault->offset + 1),
                    "It should look like n[001-003,7],login.");
  }
  return names;
}

std::string compress_node_list(std::span<const std::string> names) {
  for (const std::string& name : names) {
    if (!name.empty() && name.find_first_of("[], \t\r\n") == std::string::npos && name.size() <= kLongestName) continue;
    throw bad_input(fmt::format("a node list can't hold the name \"{}\".", printable(name.substr(0, 300))), "Names have no blanks, commas or brackets.");
  }
  std::string list;
  for (std::size_t i = 0; i < names.size();) {
    const Parts first = parts_of(names[i]);
    std::string inside;
    std::size_t next = i;
    while (next < names.size() && number_of(first.digits)) {
      const Parts low = parts_of(names[next]);
      const auto number = number_of(low.digits);
      if (low.head != first.head || low.tail != first.tail || !number) break;
      std::uint64_t high = *number;
      std::size_t last = next;
      while (last + 1 < names.size()) {
        const Parts more = parts_of(names[last + 1]);
        if (more.head != first.head || more.tail != first.tail || more.digits != fmt::format("{:0{}}", high + 1, low.digits.size())) break;
        ++high;
        ++last;
      }
      inside += inside.empty() ? "" : ",";
      inside += low.digits;
      if (last > next) inside += "-" + std::string(parts_of(names[last]).digits);
      next = last + 1;
    }
    if (!list.empty()) list += ",";
    if (next > i + 1) {
      list += std::string(first.head) + "[" + inside + "]" + std::string(first.tail);
      i = next;
    } else {
      list += names[i++];
    }
  }
  return list;
}

}  // namespace wirewise
