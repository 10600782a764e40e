// Everything that is emitted, read back by small readers of each format that share nothing with the writers: random placements (the seed is
// printed) onto hosts whose names hold what shells, YAML, Slurm and Open MPI take for more than a name. A format carries a name to the letter
// or refuses it, saying who can't take it.
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <regex>
#include <sstream>

#include "wirewise/base/error.h"
#include "wirewise/plan/emit.h"

namespace wirewise {
namespace {

/// Words of a POSIX shell from `at` on, up to a blank or one of `end`: single quotes, and backslashes outside of them.
std::string shell_value(const std::string& text, std::size_t& at, const std::string& end) {
  std::string value;
  for (; at < text.size() && end.find(text[at]) == std::string::npos; ++at) {
    if (text[at] == '\\') {
      value += text[++at];
    } else if (text[at] == '\'') {
      const std::size_t close = text.find('\'', at + 1);
      value += text.substr(at + 1, close - at - 1);
      at = close;
    } else {
      value += text[at];
    }
  }
  return value;
}

struct Case {
  std::string label;
  std::map<std::string, std::string> set;
};

/// The branches of the script's one `case`, but for the last, which takes the rest.
std::vector<Case> cases(const std::string& script) {
  std::vector<Case> all;
  std::size_t at = script.find(" in\n") + 4;
  while (script.compare(at, 4, "  *)") != 0) {
    at += 2;
    Case one;
    one.label = shell_value(script, at, ")");
    ++at;
    while (true) {
      at = script.find_first_not_of(" \n;", at);
      if (script.compare(at, 7, "export ") == 0) at += 7;
      const std::size_t equals = script.find('=', at);
      const std::string name = script.substr(at, equals - at);
      at = equals + 1;
      one.set[name] = shell_value(script, at, " ;\n");
      const std::size_t next = script.find_first_not_of(" \n", at);
      if (script.compare(next, 2, ";;") == 0 || script.compare(next, 4, "; ;;") == 0) {
        at = script.find(";;", next) + 3;
        break;
      }
    }
    all.push_back(std::move(one));
  }
  return all;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

class Names {
 public:
  explicit Names(unsigned seed) : random_(seed) {}
  int below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }

  std::string name(int number) {
    static const std::vector<std::string> parts{"node", "gpu", "a", "-", ".", "_", "7"}, evil{"'", "\"", " ", "$(touch x)", "`x`", "\n", "[1-3]", ",", "é", "\t", "\\", "*", ";;", ")", "#", "=", "END OF HOSTS", "\xff", "esac", ": "};
    std::string text = below(3) == 0 ? "" : "n";
    for (int i = 0, many = 1 + below(3); i < many; ++i) text += parts[static_cast<std::size_t>(below(static_cast<int>(parts.size())))];
    if (below(2) == 0) text += evil[static_cast<std::size_t>(below(static_cast<int>(evil.size())))];
    if (below(4) == 0) text += evil[static_cast<std::size_t>(below(static_cast<int>(evil.size())))] + "z";
    return text + std::to_string(number);
  }

  std::vector<RankPlace> places() {
    const int hosts = 1 + below(4), each = 1 + below(3);
    std::vector<std::string> names;
    for (int i = 0; i < hosts; ++i) names.push_back(name(i));
    std::vector<RankPlace> all;
    for (int rank = 0; rank < hosts * each; ++rank) {
      RankPlace place;
      place.rank = rank;
      place.node = rank / each;
      place.local_rank = rank % each;
      place.host = names[static_cast<std::size_t>(place.node)];
      place.gpu = each - 1 - place.local_rank;
      place.device = "GPU" + std::to_string(place.gpu);
      place.cpus = std::to_string(4 * place.local_rank) + "-" + std::to_string(4 * place.local_rank + 3);
      place.rdma_nics = {"mlx5_" + std::to_string(place.local_rank)};
      all.push_back(place);
    }
    return all;
  }

 private:
  std::mt19937 random_;
};

/// What is emitted; nothing where it is refused, as bad input that names who can't take the name.
template <typename Emit>
std::optional<std::string> emitted(Emit&& emit, const std::string& format) {
  try {
    return emit();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_NE(std::string(error.sentence()).find(format), std::string::npos) << error.sentence();
    EXPECT_NE(std::string(error.remedy()), "");
    return std::nullopt;
  }
}

bool plain(const std::string& name) { return std::regex_match(name, std::regex("[A-Za-z0-9._][A-Za-z0-9._-]*")); }

TEST(EmitNames, EveryFormatCarriesThemOrRefusesThem) {
  int carried = 0, refused = 0;
  for (unsigned seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Names names(seed);
    const std::vector<RankPlace> places = names.places();
    const bool all_plain = std::all_of(places.begin(), places.end(), [](const RankPlace& place) { return plain(place.host); });
    const std::size_t hosts = static_cast<std::size_t>(places.back().node) + 1;

    // Scripts carry any name.
    const std::string torchrun = emit_torchrun(places);
    const std::vector<Case> by_host = cases(torchrun);
    ASSERT_EQ(by_host.size(), hosts) << torchrun;
    for (const RankPlace& place : places) {
      const Case& own = by_host[static_cast<std::size_t>(place.node)];
      EXPECT_EQ(own.label, place.host) << torchrun;
      EXPECT_EQ(own.set.at("node"), std::to_string(place.node));
    }
    std::size_t at = torchrun.find("--master-addr=");
    ASSERT_EQ(at == std::string::npos, hosts == 1);
    if (hosts > 1) {
      at += 14;
      EXPECT_EQ(shell_value(torchrun, at, " "), places.front().host) << torchrun;
    }
    const std::vector<Case> by_rank = cases(emit_env(places));
    ASSERT_EQ(by_rank.size(), places.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      EXPECT_EQ(by_rank[i].label, std::to_string(places[i].rank));
      EXPECT_EQ(by_rank[i].set.at("CUDA_VISIBLE_DEVICES"), std::to_string(places[i].gpu));
      EXPECT_EQ(by_rank[i].set.at("NCCL_IB_HCA"), "=" + places[i].rdma_nics[0]);
      EXPECT_EQ(by_rank[i].set.at("cpus"), places[i].cpus);
    }

    // Lists of hosts carry plain ones.
    const auto hostfile = emitted([&] { return emit_slurm_hostfile(places); }, "Slurm");
    ASSERT_EQ(hostfile.has_value(), all_plain);
    const auto slurm = emitted([&] { return emit_slurm(places, 3); }, "Slurm");
    ASSERT_EQ(slurm.has_value(), all_plain);
    const auto rankfile = emitted([&] { return emit_rankfile(places); }, "Open MPI rankfile");
    ASSERT_EQ(rankfile.has_value(), all_plain);
    const auto jobset = emitted([&] { return emit_jobset(places, {}); }, "Kubernetes label");
    if (!all_plain) {
      EXPECT_FALSE(jobset.has_value());
      ++refused;
      continue;
    }
    ++carried;
    std::vector<std::string> in_order, ranks;
    for (const RankPlace& place : places) in_order.push_back(place.host);
    EXPECT_EQ(lines(*hostfile), in_order);
    const std::size_t first = slurm->find("<<'END OF HOSTS'\n") + 17;
    EXPECT_EQ(lines(slurm->substr(first, slurm->find("\nEND OF HOSTS\n", first) + 1 - first)), in_order);
    EXPECT_NE(slurm->find("MASTER_ADDR=${MASTER_ADDR:-" + places.front().host + "}"), std::string::npos);
    EXPECT_NE(slurm->find("--nodes=" + std::to_string(hosts) + " --ntasks=" + std::to_string(places.size()) + " --switches=3 \"$@\"\n"), std::string::npos);
    for (const std::string& line : lines(*rankfile)) {
      std::smatch parts;
      if (line.front() == '#') continue;
      ASSERT_TRUE(std::regex_match(line, parts, std::regex("rank ([0-9]+)=([^ =]+) slot=([0-9,-]+)"))) << line;
      const RankPlace& place = places.at(ranks.size());
      EXPECT_EQ(parts[1], std::to_string(place.rank));
      EXPECT_EQ(parts[2], place.host);
      EXPECT_EQ(parts[3], place.cpus);
      ranks.push_back(line);
    }
    EXPECT_EQ(ranks.size(), places.size());
    if (!jobset) continue;  // labels begin and end with a letter or digit
    const YAML::Node pod = YAML::Load(*jobset)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"];
    const YAML::Node values = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"];
    ASSERT_EQ(values.size(), hosts);
    for (const RankPlace& place : places) EXPECT_EQ(values[place.node].as<std::string>(), place.host);
  }
  EXPECT_GT(carried, 40);
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace wirewise
