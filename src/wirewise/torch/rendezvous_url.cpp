// Reads URLs and rank variables into a Meeting: text only, so that every refusal can be tested without a network.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/torch/rendezvous.h"

namespace wirewise {
namespace {

constexpr int kLargestPort = 65535;

std::string quoted(std::string_view text) { return "'" + printable(text) + "'"; }

long number_in(std::string_view text, const std::string& setting, long smallest, long largest, const std::string& meaning) {
  const auto value = parse_integer(text);
  if (!value || *value < smallest || *value > largest) {
    throw bad_input(setting + " is " + quoted(text) + ", but " + meaning + " is a whole number from " + std::to_string(smallest) +
                    " to " + std::to_string(largest) + ".");
  }
  return static_cast<long>(*value);
}

std::string percent_decoded(std::string_view text, std::string_view url) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text[i];
      continue;
    }
    int value = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2) {
      throw bad_input("The URL " + quoted(url) + " has a '%' that two hexadecimal digits don't follow.",
                      "Write %25 for a percent sign.");
    }
    result += static_cast<char>(value);
    i += 2;
  }
  return result;
}

using Query = std::map<std::string, std::string, std::less<>>;

Query parse_query(std::string_view text, std::string_view url) {
  static constexpr std::string_view kKnown[] = {"rank", "world_size", "local_rank", "local_world_size"};
  Query query;
  while (!text.empty()) {
    const auto end = std::min(text.find('&'), text.size());
    const std::string_view item = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    if (std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown)) {
      throw bad_input("The URL " + quoted(url) + " has the unknown key " + quoted(key) + ".",
                      "The keys are rank, world_size, local_rank and local_world_size.");
    }
    const std::string value(equals == std::string_view::npos ? std::string_view() : item.substr(equals + 1));
    if (!query.emplace(key, value).second) throw bad_input("The URL " + quoted(url) + " has " + quoted(key) + " twice.");
  }
  return query;
}

// A setting that the URL or a variable gives.
struct Setting {
  std::string name;
  std::string text;
};

class Settings {
 public:
  Settings(Query query, const Environment& environment) : query_(std::move(query)), environment_(environment) {}

  // The URL's key, else the variable. Empty when neither is set.
  [[nodiscard]] std::optional<Setting> find(const std::string& key, const std::string& variable) const {
    if (const auto found = query_.find(key); found != query_.end()) return Setting{key + " of the URL", found->second};
    return find_variable(variable);
  }
  [[nodiscard]] std::optional<Setting> find_variable(const std::string& variable) const {
    auto value = environment_(variable);
    if (!value || value->empty()) return std::nullopt;
    return Setting{variable, *std::move(value)};
  }

 private:
  Query query_;
  const Environment& environment_;
};

Setting require(const std::optional<Setting>& setting, const std::string& name, std::vector<std::string>& missing) {
  if (setting) return *setting;
  missing.push_back(name);
  return {};
}

void refuse_missing(const std::vector<std::string>& missing, std::string_view url, const std::string& remedy) {
  if (missing.empty()) return;
  throw bad_input("The rendezvous " + quoted(url) + " needs " + join(missing, ", ") +
                      (missing.size() == 1 ? ", which is not set." : ", which are not set."),
                  remedy);
}

void read_ranks(const Settings& settings, std::string_view url, std::vector<std::string> missing, Meeting& meeting) {
  constexpr long kMostRanks = 1 << 20;
  const bool from_environment = url.starts_with("env:");
  const Setting size =
      require(settings.find("world_size", "WORLD_SIZE"), from_environment ? "WORLD_SIZE" : "world_size", missing);
  const Setting rank = require(settings.find("rank", "RANK"), from_environment ? "RANK" : "rank", missing);
  refuse_missing(missing, url,
                 from_environment
                     ? "Start the ranks with `wirewise launch` or torchrun, which set these variables, or set them yourself."
                     : "Add ?rank=R&world_size=N to the URL, or set RANK and WORLD_SIZE.");
  meeting.size = static_cast<int>(number_in(size.text, size.name, 1, kMostRanks, "the number of ranks"));
  meeting.rank =
      static_cast<int>(number_in(rank.text, rank.name, 0, meeting.size - 1, "a rank of " + std::to_string(meeting.size)));
  const auto local_size = settings.find("local_world_size", "LOCAL_WORLD_SIZE");
  if (local_size) {
    meeting.local_size =
        static_cast<int>(number_in(local_size->text, local_size->name, 1, meeting.size, "the number of ranks on one host"));
  }
  if (const auto local_rank = settings.find("local_rank", "LOCAL_RANK")) {
    const long largest = (meeting.local_size ? *meeting.local_size : meeting.size) - 1L;
    meeting.local_rank = static_cast<int>(number_in(local_rank->text, local_rank->name, 0, largest, "a rank on one host"));
  }
}

std::uint16_t parse_port(const std::string& text, const std::string& setting, int size) {
  const auto port = static_cast<std::uint16_t>(number_in(text, setting, 0, kLargestPort, "a port"));
  if (port == 0 && size > 1) {
    throw bad_input(setting + " is 0, which takes any free port, but the other " + std::to_string(size - 1) +
                        " ranks can't know which one rank 0 got.",
                    "Give a port, or start the ranks with a launcher, which chooses one for all.");
  }
  return port;
}

// An IPv6 literal may stand in brackets, as in a URL.
std::string without_brackets(const std::string& host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']' ? host.substr(1, host.size() - 2) : host;
}

void read_environment(const Settings& settings, std::string_view url, Meeting& meeting) {
  const auto folder = settings.find_variable("WIREWISE_STORE");
  std::vector<std::string> missing;
  if (folder) {
    read_ranks(settings, url, {}, meeting);
    if (!meeting.local_size || *meeting.local_size == meeting.size) {
      meeting.place = Meeting::Place::kFolder;
      meeting.path = folder->text;
      return;
    }
  }
  const Setting address = require(settings.find_variable("MASTER_ADDR"), "MASTER_ADDR", missing);
  const Setting port = require(settings.find_variable("MASTER_PORT"), "MASTER_PORT", missing);
  read_ranks(settings, url, missing, meeting);
  meeting.place = Meeting::Place::kTcp;
  meeting.endpoint = {without_brackets(address.text), parse_port(port.text, "MASTER_PORT", meeting.size)};
  meeting.address_setting = "MASTER_ADDR";
  meeting.port_setting = "MASTER_PORT";
  const auto agent = settings.find_variable("TORCHELASTIC_USE_AGENT_STORE");
  meeting.agent_store = agent && (agent->text == "True" || agent->text == "1");
}

void read_tcp(const Settings& settings, std::string_view authority, std::string_view url, Meeting& meeting) {
  if (const auto slash = authority.find('/'); slash != std::string_view::npos && slash + 1 != authority.size()) {
    throw bad_input("The URL " + quoted(url) + " has a path after its port.", "Write tcp://host:port?rank=R&world_size=N.");
  }
  authority = authority.substr(0, authority.find('/'));
  const auto bracket = authority.rfind(']');
  const auto colon = authority.rfind(':');
  const bool has_port = colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  const std::string_view host = authority.substr(0, has_port ? colon : authority.size());
  const bool bare_ipv6 = !host.starts_with('[') && host.find(':') != std::string_view::npos;
  if (!has_port || host.empty() || bare_ipv6) {
    throw bad_input("The URL " + quoted(url) + " does not give host and port.",
                    "Write tcp://host:port?rank=R&world_size=N, an IPv6 address in brackets: tcp://[::1]:29500.");
  }
  read_ranks(settings, url, {}, meeting);
  meeting.place = Meeting::Place::kTcp;
  meeting.endpoint = {without_brackets(std::string(host)),
                      parse_port(std::string(authority.substr(colon + 1)), "The port of the URL", meeting.size)};
  meeting.address_setting = "The URL";
  meeting.port_setting = "the URL's port";
}

void read_file(const Settings& settings, std::string_view path, std::string_view url, Meeting& meeting) {
  if (!path.starts_with('/') || path.size() == 1) {
    throw bad_input("The URL " + quoted(url) + " does not give an absolute path.", "Write three slashes: file:///folder/file.");
  }
  read_ranks(settings, url, {}, meeting);
  meeting.place = Meeting::Place::kFile;
  meeting.path = percent_decoded(path, url);
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

Meeting parse_meeting(std::string_view url, const Environment& environment) {
  const auto question = std::min(url.find('?'), url.size());
  const std::string_view body = url.substr(0, question);
  const Settings settings(parse_query(url.substr(std::min(question + 1, url.size())), url), environment);
  Meeting meeting;
  if (body == "env://") {
    read_environment(settings, url, meeting);
  } else if (body.starts_with("tcp://")) {
    read_tcp(settings, body.substr(6), url, meeting);
  } else if (body.starts_with("file://")) {
    read_file(settings, body.substr(7), url, meeting);
  } else {
    throw bad_input("The rendezvous " + quoted(url) + " is of no known kind.", "Use env://, tcp://host:port or file:///path.");
  }
  if (const auto attempt = settings.find_variable("TORCHELASTIC_RESTART_COUNT")) {
    meeting.attempt = static_cast<int>(number_in(attempt->text, attempt->name, 0, 1 << 30, "a restart count"));
  }
  return meeting;
}

}  // namespace wirewise
