// Measured figures in a description: what a person wrote stays, byte for byte, and the figures are what topo and place use.
#include "wirewise/wiring/measured_file.h"

#include <gtest/gtest.h>

#include <random>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

MeasuredClass figures(const std::string& name, double alpha_us, double beta_gbyte) {
  return {name,         alpha_us * 1e-6,   beta_gbyte * 1e9, 0.012, "wirewise bench --fit", "rank 0 on a\"b and rank 1 on c",
          "2026-01-31", {8, 1024, 1 << 20}};
}

std::string with(const std::string& text, const std::vector<MeasuredClass>& classes) { return with_measured(text, "c.toml", classes); }

/// Lines of `text` without those of `without`, which must all be in it, in order.
bool keeps(const std::string& whole, const std::string& before) {
  std::size_t at = 0;
  const auto lines = split(whole, '\n');
  for (const std::string& line : split(before, '\n')) {
    while (at < lines.size() && lines[at] != line) ++at;
    if (at++ >= lines.size()) return false;
  }
  return true;
}

const std::string kCluster = R"(# Ours, since May
name = "pod"   # ü

[[host]]
template = "workstation-10gbe"
names = ["a", "b"]

[network]
link = "10 GbE"  # the switch does more

[[level]]
)";

const Link& network_link_of(const Reading& reading) {
  for (const Link& link : reading.wiring.links) {
    if (link.kind == LinkKind::kEthernet) return link;
  }
  throw std::runtime_error("no network");
}

TEST(MeasuredFile, NewFiguresAreAddedAndUsed) {
  const std::string text = with(kCluster, {figures("10 GbE", 21.5, 1.125)});
  EXPECT_TRUE(text.starts_with(kCluster));
  const Reading reading = read_cluster(text, "c.toml");
  EXPECT_DOUBLE_EQ(network_link_of(reading).alpha, 21.5e-6);
  EXPECT_DOUBLE_EQ(network_link_of(reading).beta, 1.125e9);
  EXPECT_EQ(network_link_of(reading).provenance, Provenance::kMeasured);
  EXPECT_TRUE(reading.notes.empty());
}

TEST(MeasuredFile, OldFiguresOfTheClassChangeAndNothingElse) {
  const std::string before = kCluster + R"(
# measured on a Sunday
[[measured]]
class = "25 GbE"
beta_GBps = 2.5

  [[measured]]  # ours
  class = '10 GbE'   # ü, of both
  # careful:
  beta_GBps = 1.0   # by hand
  alpha_us = 30     # by hand too
  source = 'iperf # one'

# the end)";
  const std::string text = with(before, {figures("10 GbE", 21.5, 1.125)});
  std::string expected = before;
  const auto swap = [&](const std::string& from, const std::string& to) { expected.replace(expected.find(from), from.size(), to); };
  swap("beta_GBps = 1.0   #", "beta_GBps = 1.125   #");
  swap("alpha_us = 30     #", "alpha_us = 21.5     #");
  swap("source = 'iperf # one'\n",
       "source = \"wirewise bench --fit\"\nbetween = \"rank 0 on a\\\"b and rank 1 on c\"\ndate = \"2026-01-31\"\nsizes = [8, 1024, "
       "1048576]\nresidual_percent = 1.2\n");
  EXPECT_EQ(text, expected);
  EXPECT_DOUBLE_EQ(network_link_of(read_cluster(text, "c.toml")).beta, 1.125e9);
  // Again with the same figures: nothing changes.
  EXPECT_EQ(with(text, {figures("10 GbE", 21.5, 1.125)}), text);
}

TEST(MeasuredFile, FiguresOfSomeHostsStillHoldForThem) {
  const std::string before = kCluster + "\n# b has a bad cable\n[[measured]]\nclass = \"10 GbE\"\nhosts = \"b\"\nbeta_GBps = 0.3\n";
  const std::string text = with(before, {figures("10 GbE", 21.5, 1.125), figures("shared memory", 0.5, 9)});
  EXPECT_TRUE(keeps(text, before));
  const Reading reading = read_cluster(text, "c.toml");
  std::vector<double> of_hosts;
  for (const Link& link : reading.wiring.links) {
    if (link.kind == LinkKind::kEthernet && reading.wiring.devices[static_cast<std::size_t>(link.from)].host >= 0)
      of_hosts.push_back(link.beta);
  }
  EXPECT_EQ(of_hosts, (std::vector<double>{1.125e9, 0.3e9}));
}

TEST(MeasuredFile, OneHostsDescriptionTakesThemToo) {
  const std::string before =
      "device = [{ name = \"core0\", kind = \"cpu\" }, { name = \"core1\", kind = \"cpu\" }]\n"
      "link = [{ b = \"core0\", kind = \"shared memory\", beta_GBps = 8 }, { b = \"core1\", kind = \"shared memory\", beta_GBps = 8 }]\n";
  const Reading reading = read_cluster(with(before, {figures("shared memory", 0.5, 9)}), "c.toml");
  ASSERT_EQ(reading.wiring.links.size(), 4U);
  for (const Link& link : reading.wiring.links) {
    EXPECT_DOUBLE_EQ(link.beta, 9e9);
    EXPECT_EQ(link.provenance, Provenance::kMeasured);
  }
}

TEST(MeasuredFile, LineEndsAreThoseOfTheFile) {
  std::string windows = "\xEF\xBB\xBF";
  for (const char c : kCluster + "[[measured]]\nclass = \"10 GbE\"\nbeta_GBps = 1\n") windows += c == '\n' ? "\r\n" : std::string(1, c);
  const std::string text = with(windows, {figures("10 GbE", 21.5, 1.125), figures("25 GbE", 1, 2)});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), std::count(text.begin(), text.end(), '\r'));
  EXPECT_DOUBLE_EQ(network_link_of(read_cluster(text, "c.toml")).beta, 1.125e9);
}

TEST(MeasuredFile, EmptyLinesBeforeAllElseAreLines) {
  const std::string before = "\n\n" + kCluster + "[[measured]]\nclass = \"10 GbE\"\nbeta_GBps = 1\n";
  const std::string text = with(before, {figures("10 GbE", 21.5, 1.125)});
  EXPECT_TRUE(text.starts_with("\n\n" + kCluster));
  EXPECT_DOUBLE_EQ(network_link_of(read_cluster(text, "c.toml")).beta, 1.125e9);
  EXPECT_TRUE(with("\n", {figures("10 GbE", 21.5, 1.125)}).starts_with("\n"));
  EXPECT_FALSE(with("", {figures("10 GbE", 21.5, 1.125)}).empty());
}

TEST(MeasuredFile, WhatCouldBeLostIsRefusedWithTheTablesToPutIn) {
  const std::string list = "measured = [{ class = \"25 GbE\", beta_GBps = 2.5 }]\n" + kCluster;
  const std::string comment = kCluster + "[[measured]]\nclass = \"10 GbE\"\nsizes = [8, # smallest\n 16]\nbeta_GBps = 1\n";
  const std::string table = kCluster + "[measured]\nclass = \"10 GbE\"\nbeta_GBps = 1\n";
  for (const std::string& text : {list, comment, table}) {
    try {
      (void)with(text, {figures("10 GbE", 21.5, 1.125)});
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_NE(error.remedy().find("[[measured]]\nclass = \"10 GbE\"\nalpha_us = 21.5\n"), std::string::npos) << error.what();
    }
  }
  // Values of an entry of a list can be changed where it stands.
  const std::string own = "measured = [{ class = \"10 GbE\", beta_GBps = 1.0 }] # mine\n" + kCluster;
  EXPECT_DOUBLE_EQ(network_link_of(read_cluster(with(own, {figures("10 GbE", 21.5, 1.125)}), "c.toml")).beta, 1.125e9);
}

TEST(MeasuredFile, HostileFilesAreChangedRightOrRefused) {
  // Whatever comes back has been compared with what it must be; nothing else may come but an Error.
  const std::string whole = kCluster +
                            "[[measured]]\nclass = \"10 GbE\" # ü\nbeta_GBps = 1.0 # one\nsizes = [\n 8,\n 16 ]\n[[measured]]\nclass = "
                            "\"10 GbE\"\nhosts = \"b\"\nbeta_GBps = 2.0\n";
  const std::vector<std::string> words{"\xE2\x80\xA8",
                                       "\xC2\x85",
                                       "\xC2\xA0",
                                       "\xEF\xBB\xBF",
                                       "\r",
                                       "\r\n",
                                       "\"\"\"",
                                       "[[measured]]\n",
                                       "[measured.x]\n",
                                       "#",
                                       "\\",
                                       "{",
                                       "}",
                                       "'",
                                       "=",
                                       "ü",
                                       "1e999",
                                       std::string(1, '\0')};
  int changed = 0, refused = 0;
  for (unsigned seed = 1; seed <= 4000; ++seed) {
    std::mt19937 random(seed);
    std::string text = whole;
    for (unsigned times = 1 + random() % 3; times > 0; --times) {
      const std::size_t at = random() % (text.size() + 1);
      switch (random() % 4) {
        case 0: text.insert(at, words[random() % words.size()]); break;
        case 1: text.erase(at, random() % 12); break;
        case 2: text.insert(at, text.substr(random() % text.size(), random() % 40)); break;
        default: text.resize(at); break;
      }
      if (text.empty()) text = "\n";
    }
    try {
      const std::string out = with(text, {figures("10 GbE", 21.5, 1.125), figures("shared memory", 1, 2)});
      EXPECT_EQ(with(out, {figures("10 GbE", 21.5, 1.125), figures("shared memory", 1, 2)}), out) << "seed " << seed;
      ++changed;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << "seed " << seed;
      ++refused;
    } catch (const std::exception& other) {
      ADD_FAILURE() << "seed " << seed << ": " << other.what() << "\n" << text;
    }
  }
  EXPECT_GT(changed, 100);
  EXPECT_GT(refused, 100);
}

TEST(MeasuredFile, CommentsAndValuesOfRandomFilesSurvive) {
  // Files put together from awkward pieces: whatever isn't of the class must be found again, in order.
  const std::vector<std::string> pieces{
      "[[measured]]\nclass = \"25 GbE\" # [[measured]]\nbeta_GBps = 2.5\n",
      "# class = \"10 GbE\"\n",
      "\n\n",
      "[[measured]]\nclass = \"10 GbE\"\nhosts = [\"a\", # one\n \"b\"] # both\nalpha_us = 1\n",
      "[[template]]\nname = \"x\"\nabout = \"\"\"\n[[measured]]\nclass = '10 GbE'\n\"\"\"\ngpus = { count = 1 }\nbridge = { gpus = [0] }\n",
      "[[override]]\nhosts = \"a\" # ü ö\nrack = \"[[measured]]\"\n",
      "[[measured]]\nclass = \"10 GbE\"\nunits = 1\nbeta_GBps = 3.0\n",
      "[[measured]]\n# of all\nclass = \"10 GbE\"\nbeta_GBps = 4.0 # four\n"};
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    std::string before = kCluster;
    for (int i = 0; i < 6; ++i) before += pieces[random() % pieces.size()];
    std::string kept = before;
    if (random() % 2 == 0) before.pop_back();
    std::string text;
    try {
      text = with(before, {figures("10 GbE", 21.5, 1.125), figures("PCIe 4", 1, 20)});
    } catch (const Error&) {
      continue;  // such as two templates of one name
    }
    // Of the class's own table the values are new, the comments old.
    for (std::size_t at; (at = kept.find("beta_GBps = 4.0 #")) != std::string::npos;) kept.replace(at, 17, "beta_GBps = 1.125 #");
    const auto last = text.rfind("beta_GBps = 4.0 #");  // only the last of several tables is in force
    if (last != std::string::npos) continue;
    EXPECT_TRUE(keeps(text, kept)) << "seed " << seed << "\n" << before << "\n---\n" << text;
  }
}

}  // namespace
}  // namespace wirewise
