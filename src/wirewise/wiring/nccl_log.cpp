// From the lines of a log to what each thread tells of itself; nccl_instances.h puts the threads together.
#include "wirewise/wiring/nccl_log.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <optional>
#include <tuple>

#include "wirewise/base/text.h"
#include "wirewise/wiring/nccl_instances.h"
#include "wirewise/wiring/nccl_lines.h"
#include "wirewise/wiring/nccl_setup.h"
#include "wirewise/wiring/pasted.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

constexpr int kMostRanks = 1 << 20;
constexpr std::size_t kPrintedRanks = 20;  // of a ring, in versions before 2.12: the rest is left out without a word
constexpr std::size_t kMostWarnings = 1000;

std::optional<int> small_number(std::string_view text, int most = kMostRanks) {
  const auto value = parse_integer(text);
  if (!value || *value < -1 || *value > most) return std::nullopt;
  return static_cast<int>(*value);
}

/// "12[1a000]" or "12".
struct End {
  int rank = -1;
  std::string bus;
};
std::optional<End> end_of(std::string_view text) {
  const std::size_t bracket = text.find('[');
  const auto rank = small_number(text.substr(0, bracket));
  if (!rank || *rank < 0) return std::nullopt;
  if (bracket == std::string_view::npos) return End{*rank, ""};
  if (text.back() != ']') return std::nullopt;
  return End{*rank, std::string(text.substr(bracket + 1, text.size() - bracket - 2))};
}

/// "1/16/-1": those that are ranks.
std::optional<std::vector<int>> children_of(const std::string& text) {
  std::vector<int> down;
  for (const std::string& part : split(text, '/')) {
    const auto rank = small_number(part);
    if (!rank) return std::nullopt;
    if (*rank >= 0) down.push_back(*rank);
  }
  return down;
}

class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file) {}

  NcclLog run(std::string_view text) {
    each_line(text, [&](const TextLine& given) {
      const TextLine& line = given.ended ? given : without_last_word(given);
      for (const NcclLine& part : nccl_lines(line, hosts_)) {
        if (part.level.empty()) plain(part.text, line.number);
        else if (part.text.empty() && part.level == "INFO") broken_off_.push_back(part);
        else message(part);
      }
      if (!line.ended && line.text.find("NCCL") != std::string::npos) note(line.number, "the file ends in the middle of this line.", true);
    });
    if (!seen_) throw unreadable(file_, 0, 0, "there is no line of NCCL in it.", "Take the log of a run with NCCL_DEBUG=INFO.");
    log_.communicators = nccl_communicators(std::move(instances_));
    return std::move(log_);
  }

 private:
  /// The file ends in a word, which may be a part of one: "commId 0x99" of "commId 0x996ee6f1".
  static TextLine without_last_word(TextLine line) {
    const std::size_t blank = line.text.find_last_of(" \t");
    if (blank == std::string::npos || line.text.find("NCCL ") == std::string::npos || line.text.ends_with("COMPLETE") || line.text.ends_with("START")) return line;
    line.text.resize(blank);
    line.column.resize(blank);
    return line;
  }

  using Key = std::tuple<std::string, long long, long long>;

  void note(int line, std::string text, bool partial = false) {
    log_.partial = log_.partial || partial;
    if (log_.notes.size() < 1000) log_.notes.push_back({line, 0, std::move(text)});
  }

  void version(const std::string& text) {
    std::size_t at = text.find("NCCL version ");
    if (at == std::string::npos && (at = text.find("RCCL version ")) == std::string::npos) return;
    log_.rccl = log_.rccl || text[at] == 'R';
    const std::string rest(trimmed(std::string_view(text).substr(text.compare(at + 13, 2, ": ") == 0 ? at + 15 : at + 13)));  // RCCL's may have a colon
    std::string number = rest.substr(0, rest.find_first_of(" \t,;"));
    while (number.ends_with('.')) number.pop_back();
    const std::size_t cuda = rest.find("compiled with CUDA ");
    if (cuda != std::string::npos) number += "+cuda" + rest.substr(cuda + 19);
    if (number.empty() || number[0] < '0' || number[0] > '9') return;
    seen_ = true;
    for (std::string& known : log_.versions) {  // "2.21.5", as PyTorch says it, and "2.21.5+cuda12.4" are one
      if (known.substr(0, known.find('+')) != number.substr(0, number.find('+'))) continue;
      if (known.size() < number.size() && number.starts_with(known + "+")) known = number;
      if (known == number || known.starts_with(number + "+")) return;
    }
    log_.versions.push_back(number);
  }

  /// What only RCCL writes: XGMI, and which communicator it is behind every connection.
  void find_rccl(const std::string& text) {
    if (log_.rccl) return;
    const std::size_t ranks = text.rfind(" nRanks ");
    const bool behind = ranks != std::string::npos && text.find(" via ") != std::string::npos && text.find(" comm 0x") < ranks;
    log_.rccl = behind || text.find("XGMI[") != std::string::npos || text.find("rccl") != std::string::npos || text.find("RCCL") != std::string::npos;
  }

  /// Lines without a prefix: versions, and the report of `ncclras`.
  void plain(const std::string& text, int line) {
    version(text);
    const std::string_view bare = trimmed(text);
    if (!bare.empty() && torch_.read(bare, line, log_)) {
      seen_ = true;
      return;
    }
    if (!broken_off_.empty() && bare.size() > 8 && (bare.starts_with("Ring ") || bare.starts_with("Channel ") || bare.starts_with("Trees "))) {
      NcclLine whole = std::move(broken_off_.front());  // its prefix was written, then another process came between
      broken_off_.pop_front();
      whole.number = line;
      whole.text = bare;
      return message(whole);
    }
    if (bare == "... (cut)" || bare.find("(cut)") != std::string_view::npos) note(line, "lines are left out here.", true);
    if (bare == "Job summary" || bare.starts_with("Communicators...")) ras_section_ = bare.substr(0, 3) == "Job" ? "job" : "communicators";
    else if (bare == "Errors" || bare == "Warnings") ras_section_ = std::string(bare);
    else if (!ras_section_.empty() && !bare.empty() && bare.find_first_not_of('=') != std::string_view::npos) ras_line(std::string(bare));
  }

  void ras_line(const std::string& text) {
    TextLine line;
    line.text = text;
    line.column.assign(text.size(), 0);
    const std::vector<Word> words = words_of(line);
    const bool numbers = parse_integer(words.front().text).has_value();
    if (ras_section_ == "job" && numbers && words.size() == 5) {
      log_.ras.emplace_back("job", words[0].text + " nodes, " + words[1].text + " processes a node, " + words[2].text + " GPUs a process, " + words[4].text + " GPUs");
    } else if (ras_section_ == "communicators" && numbers && words.size() >= 8) {
      log_.ras.emplace_back("group " + words[0].text, words[1].text + " communicators of " + words[4].text + " ranks on " + words[2].text + " nodes: " + words[words.size() - 2].text + " " +
                                                          words.back().text);
    } else if (ras_section_ == "Errors" || ras_section_ == "Warnings") {
      log_.ras.emplace_back(ras_section_, text);
    }
  }

  /// Where the prefix is cut down to the device, that tells the ranks apart.
  static Key key_of(const NcclLine& line) { return {line.host, line.pid, line.host.empty() ? line.device : line.tid}; }

  NcclInstance& instance(const NcclLine& line) { return instances_[current_.try_emplace(key_of(line), open(line)).first->second]; }
  std::size_t open(const NcclLine& line) {
    const Key key = key_of(line);
    if (const auto known = current_.find(key); known != current_.end()) return known->second;
    return fresh(line);
  }
  std::size_t fresh(const NcclLine& line) {
    NcclInstance added;
    added.host = line.host;
    added.pid = line.pid;
    added.device = line.device;
    instances_.push_back(std::move(added));
    return instances_.size() - 1;
  }
  /// The thread begins with another communicator, once its last is told to the end.
  NcclInstance& beginning(const NcclLine& line) {
    const auto known = current_.find(key_of(line));
    if (known != current_.end() && instances_[known->second].complete) known->second = fresh(line);
    return instance(line);
  }

  void message(const NcclLine& line) {
    seen_ = true;
    ras_section_.clear();
    if (!line.host.empty() && hosts_.size() < 4096) hosts_.insert(line.host);
    if (line.level == "WARN") return warn(line);
    if (line.level != "INFO" && line.level != "TRACE") return;
    version(line.text);
    find_rccl(line.text);
    TextLine rest;
    rest.text = line.text;
    rest.column.assign(line.text.size(), 0);
    std::vector<std::string> words;
    for (Word& word : words_of(rest)) words.push_back(std::move(word.text));
    if (words.empty()) return;
    const std::string& first = words.front();
    if (read_nccl_setup(line, words, log_)) return;
    if ((first == "Channel" || first == "Ring") && words.size() > 3 && words[2] == ":") {
      channel(line, words);
    } else if (first == "Trees") {
      trees(line, words);
    } else if (first == "Tree" && words.size() >= 8 && words[2] == ":" && words[4] == "->" && words[6] == "->") {
      tree(line, words);
    } else if ((line.text.find("nranks ") != std::string::npos || line.text.find("nRanks ") != std::string::npos) && line.text.find(" rank ") != std::string::npos) {
      init(line, words);
    } else if (line.text.find(" coll channels, ") != std::string::npos) {
      NcclInstance& at = instance(line);
      for (std::size_t i = 0; i + 2 < words.size(); ++i) {
        const auto count = small_number(words[i], 4096);
        if (!count || !words[i + 2].starts_with("channels")) continue;
        if (words[i + 1] == "coll") at.said.channels = *count;
        if (words[i + 1] == "nvls") at.said.nvls_channels = *count;
        if (words[i + 1] == "p2p" && at.said.p2p_channels == 0) at.said.p2p_channels = *count;
      }
    } else if (first == "NVLS" && line.text.find("multicast support") == std::string::npos && line.text.find("tuning") == std::string::npos) {  // what is possible isn't yet used
      instance(line).said.nvls = true;
    } else if (first == "Pattern") {
      const std::size_t type = line.text.find("type ");
      if (type != std::string::npos && line.text.compare(type + 5, 3, "NVL") == 0) instance(line).said.nvlink = true;
    } else if (line.text.find("NVL[") != std::string::npos || line.text.find("XGMI[") != std::string::npos) {
      instance(line).said.nvlink = true;
    } else if (first == "CollNet") {
      instance(line).said.collnet = true;
    } else if (first == "CUDA" && words.size() > 6 && line.text.find(" NIC distance :") != std::string::npos) {
      distance(line, words);
    } else if (words.size() >= 8 && words[3] == "->" && words[4] == "Algo" && words[6] == "proto" && log_.algorithms.size() < 1000) {
      log_.algorithms.insert(first.substr(0, first.find(':')) + " " + words[5] + " " + words[7]);
    }
  }

  /// "CUDA Dev 0[3], IB NIC distance :  PIX SOC".
  void distance(const NcclLine& line, const std::vector<std::string>& words) {
    std::string number = words[2];
    if (number.back() == ',') number.pop_back();
    const auto device = end_of(number);
    const auto nvml = device && !device->bus.empty() ? small_number(device->bus) : std::nullopt;
    const auto colon = std::find(words.begin(), words.end(), ":");
    if (!device || colon == words.end()) return cut(line);
    NcclNicDistance said{line.host, nvml.value_or(device->rank), {colon + 1, words.end()}};
    if (said.ways.empty() || log_.nic_distances.size() >= kMostWarnings) return;
    if (std::find(log_.nic_distances.begin(), log_.nic_distances.end(), said) == log_.nic_distances.end()) log_.nic_distances.push_back(std::move(said));
  }

  void warn(const NcclLine& line) {
    for (NcclWarning& known : log_.warnings) {
      if (known.text == line.text && known.place == line.place) {
        ++known.count;
        return;
      }
    }
    if (log_.warnings.size() < kMostWarnings) log_.warnings.push_back({line.number, line.host, line.place, line.text, 1});
  }

  void cut(const NcclLine& line) { note(line.number, "this line is cut off or mixed with another, and left out.", true); }

  /// "Channel 00/12 : 0 1 2 3" is a ring's order; "Channel 00 : 0[1a000] -> 1[1c000] via P2P/IPC" a connection; "Ring 00 : 1 -> 0 -> 1" a
  /// rank's neighbours.
  void channel(const NcclLine& line, const std::vector<std::string>& words) {
    const auto number = small_number(std::string_view(words[1]).substr(0, words[1].find('/')), 4096);
    if (!number || *number < 0) return cut(line);
    const auto arrow = std::find(words.begin(), words.end(), "->");
    if (arrow == words.end()) {
      std::vector<int> order;
      for (std::size_t i = 3; i < words.size(); ++i) {
        const auto rank = small_number(words[i]);
        if (!rank || *rank < 0) return cut(line);
        order.push_back(*rank);
      }
      if (order.empty() || std::set<int>(order.begin(), order.end()).size() != order.size()) return cut(line);  // a ring names each rank once
      NcclInstance& at = beginning(line);
      if (at.size == 0 && order.size() != kPrintedRanks) at.size = static_cast<int>(order.size());
      at.rank = at.rank < 0 ? 0 : at.rank;  // rank 0 prints it
      at.said.rings[*number] = std::move(order);
      return;
    }
    const auto via = std::find(words.begin(), words.end(), "via");
    if (via == words.end()) {
      if (words.size() != 8 || words[4] != "->" || words[6] != "->") return cut(line);
      const auto before = small_number(words[3]), own = small_number(words[5]), after = small_number(words[7]);
      if (!before || !own || !after || *own < 0) return cut(line);
      NcclInstance& at = instance(line);
      at.rank = *own;
      at.around[*number] = {*before, *after};
      return;
    }
    const auto from = end_of(words[3]);
    const auto to = words.size() > 5 && words[4] == "->" ? end_of(words[5]) : std::nullopt;
    std::string transport;
    for (auto word = via + 1; word != words.end() && *word != "comm"; ++word) transport += (transport.empty() ? "" : " ") + *word;
    if (!from || !to || transport.empty()) return cut(line);
    NcclInstance& at = instance(line);
    const bool receives = std::find(words.begin(), via, "[receive]") != via;
    if (at.rank < 0) at.rank = receives ? to->rank : from->rank;
    if (at.bus.empty()) at.bus = receives ? to->bus : from->bus;
    at.said.links[{from->rank, to->rank}][transport].insert(*number);
  }

  /// "[0] 1/16/-1->0->-1 [1] …", each perhaps with "|-1->0->1/16/-1" after it; before 2.5 "[0] -1->0->1/16/-1". RCCL ends with "comm 0x… nRanks 08".
  void trees(const NcclLine& line, const std::vector<std::string>& words) {
    NcclInstance& at = beginning(line);
    for (std::size_t i = 1; i + 1 < words.size() && words[i] != "comm"; i += 2) {
      const std::string& head = words[i];
      const auto number = head.size() > 2 && head.front() == '[' && head.back() == ']' ? small_number(std::string_view(head).substr(1, head.size() - 2), 4096) : std::nullopt;
      const std::string body = words[i + 1].substr(0, words[i + 1].find('|'));
      const std::size_t a = body.find("->"), b = body.rfind("->");
      if (!number || *number < 0 || a == std::string::npos || a == b) return cut(line);
      std::string left = body.substr(0, a), right = body.substr(b + 2);
      if (left.find('/') == std::string::npos && right.find('/') != std::string::npos) left.swap(right);
      const auto down = children_of(left);
      const auto own = small_number(body.substr(a + 2, b - a - 2)), up = small_number(right);
      if (!down || !own || !up || *own < 0) return cut(line);
      if (at.rank < 0 || i == 1) at.rank = *own;
      at.said.trees[*number][*own] = {*up, *down};
    }
  }

  /// "Tree 0 : -1 -> 0 -> 1/-1/-1": up, the rank, down.
  void tree(const NcclLine& line, const std::vector<std::string>& words) {
    const auto number = small_number(words[1], 4096), up = small_number(words[3]), own = small_number(words[5]);
    const auto down = children_of(words[7]);
    if (!number || *number < 0 || !up || !own || *own < 0 || !down) return cut(line);
    NcclInstance& at = instance(line);
    at.rank = *own;
    at.said.trees[*number][*own] = {*up, *down};
  }

  /// "… comm 0x… rank 3 nranks 64 cudaDev 3 busId 8a000 commId 0x… - Init COMPLETE".
  void init(const NcclLine& line, const std::vector<std::string>& words) {
    const auto after = [&](const char* name) {
      const auto found = std::find(words.begin(), words.end(), name);
      return found == words.end() || found + 1 == words.end() ? std::string() : *(found + 1);
    };
    const auto rank = small_number(after("rank")), size = small_number(after("nranks").empty() ? after("nRanks") : after("nranks"));
    if (!rank || !size) return;
    if (line.text.find("Abort") != std::string::npos || line.text.find("Destroy") != std::string::npos) {  // by a thread of its own
      if (line.text.find("Abort COMPLETE") != std::string::npos) ++log_.aborted;
      return;
    }
    if (*rank < 0 || *size < 1 || *rank >= *size) return cut(line);
    const bool start = words.back() == "START", init_line = line.text.find("Init COMPLETE") != std::string::npos;
    NcclInstance& at = start ? beginning(line) : instance(line);
    at.rank = *rank;
    at.size = *size;
    if (const auto device = small_number(after("cudaDev"))) at.device = *device;
    if (const std::string bus = after("busId"); !bus.empty() && bus.find('X') == std::string::npos) at.bus = bus;
    if (const std::string id = after("commId"); id.find("...") == std::string::npos) at.id = id;
    at.begun = at.begun || start;
    at.complete = at.complete || init_line || words.back() == "COMPLETE";
  }

  std::string_view file_;
  NcclLog log_;
  TorchLines torch_;
  bool seen_ = false;
  std::deque<NcclLine> broken_off_;  // prefixes without a message
  std::string ras_section_;
  std::set<std::string> hosts_;
  std::vector<NcclInstance> instances_;
  std::map<Key, std::size_t> current_;
};

}  // namespace

NcclLog read_nccl_log(std::string_view text, std::string_view file) {
  std::string plain = utf8_of(text);
  read_entities(plain);  // "0[0] -&gt; 1[1]", out of a web page
  return Reader(file).run(plain);
}

NcclTransport transport_of(std::string_view text) noexcept {
  if (text.starts_with("P2P")) return NcclTransport::kPeer;
  if (text.starts_with("SHM") || text.find("shared memory") != std::string_view::npos) return NcclTransport::kShared;
  if (text.starts_with("NET/Socket")) return NcclTransport::kSocket;
  if (text.starts_with("NET/")) return NcclTransport::kRdma;
  return NcclTransport::kOther;
}

}  // namespace wirewise
