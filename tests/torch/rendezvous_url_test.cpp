// What a URL and the rank variables mean, and every way they can be wrong: text only, no network.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/torch/rendezvous.h"

namespace wirewise {
namespace {

using Variables = std::map<std::string, std::string>;

Environment from(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

Meeting parse(const std::string& url, Variables variables = {}) { return parse_meeting(url, from(std::move(variables))); }

TEST(RendezvousUrl, EnvironmentOfTorchrunIsRead) {
  const Meeting meeting = parse("env://", {{"RANK", "5"},
                                           {"WORLD_SIZE", "8"},
                                           {"LOCAL_RANK", "1"},
                                           {"LOCAL_WORLD_SIZE", "4"},
                                           {"MASTER_ADDR", "node0"},
                                           {"MASTER_PORT", "29501"},
                                           {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                           {"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_EQ(meeting.place, Meeting::Place::kTcp);
  EXPECT_EQ(meeting.rank, 5);
  EXPECT_EQ(meeting.size, 8);
  EXPECT_EQ(meeting.local_rank, 1);
  EXPECT_EQ(meeting.local_size, 4);
  EXPECT_EQ(to_string(meeting.endpoint), "node0:29501");
  EXPECT_TRUE(meeting.agent_store);
  EXPECT_EQ(meeting.attempt, 2);
}

TEST(RendezvousUrl, TcpTakesRankFromTheUrlBeforeTheVariables) {
  const Meeting meeting = parse("tcp://10.0.0.1:4000?rank=3&world_size=4", {{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(meeting.rank, 3);
  EXPECT_EQ(meeting.size, 4);
  EXPECT_FALSE(meeting.local_rank.has_value());
  EXPECT_FALSE(meeting.agent_store);
  EXPECT_EQ(parse("tcp://10.0.0.1:4000/", {{"RANK", "1"}, {"WORLD_SIZE", "2"}}).rank, 1);
}

TEST(RendezvousUrl, Ipv6LiteralsStandInBrackets) {
  const Meeting meeting = parse("tcp://[fe80::1]:65535?rank=0&world_size=1");
  EXPECT_EQ(meeting.endpoint.host, "fe80::1");
  EXPECT_EQ(to_string(meeting.endpoint), "[fe80::1]:65535");
  for (const char* address : {"::1", "[::1]"}) {
    const Meeting environment =
        parse("env://", {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", address}, {"MASTER_PORT", "1"}});
    EXPECT_EQ(environment.endpoint.host, "::1");
  }
}

TEST(RendezvousUrl, FileTakesAnAbsolutePathAndPercentCodes) {
  const Meeting meeting = parse("file:///shared/a%20b?rank=0&world_size=2");
  EXPECT_EQ(meeting.place, Meeting::Place::kFile);
  EXPECT_EQ(meeting.path, "/shared/a b");
}

TEST(RendezvousUrl, PrivateFolderWinsOnlyWhenAllRanksAreLocal) {
  Variables variables{
      {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"WIREWISE_STORE", "/run/store"}, {"MASTER_ADDR", "n0"}, {"MASTER_PORT", "29500"}};
  EXPECT_EQ(parse("env://", variables).place, Meeting::Place::kFolder);
  variables["LOCAL_WORLD_SIZE"] = "4";
  EXPECT_EQ(parse("env://", variables).place, Meeting::Place::kFolder);
  EXPECT_EQ(parse("env://", variables).path, "/run/store");
  variables["LOCAL_WORLD_SIZE"] = "2";
  EXPECT_EQ(parse("env://", variables).place, Meeting::Place::kTcp);
  EXPECT_EQ(parse("tcp://n0:1?rank=0&world_size=4", variables).place, Meeting::Place::kTcp) << "an explicit URL is meant";
}

struct BadCase {
  const char* url;
  Variables variables;
  std::vector<const char*> named;  // what the error must contain
};

void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.url; }

class RendezvousUrlRefuses : public ::testing::TestWithParam<BadCase> {};

TEST_P(RendezvousUrlRefuses, AsBadInputThatNamesTheCause) {
  try {
    (void)parse(GetParam().url, GetParam().variables);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    for (const char* part : GetParam().named) EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "one line";
  }
}

const Variables kGood{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "n0"}, {"MASTER_PORT", "29500"}};

Variables good_but(const std::string& name, const std::string& value) {
  Variables variables = kGood;
  variables[name] = value;
  return variables;
}

INSTANTIATE_TEST_SUITE_P(
    Table, RendezvousUrlRefuses,
    ::testing::Values(
        BadCase{"env://", {}, {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "wirewise launch"}},
        BadCase{"env://", {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}}, {"needs MASTER_ADDR, which is not set"}},
        BadCase{"env://", {{"WIREWISE_STORE", "/x"}}, {"RANK", "WORLD_SIZE"}},
        BadCase{"env://", good_but("MASTER_ADDR", ""), {"MASTER_ADDR"}},
        BadCase{"env://", good_but("MASTER_PORT", "66660"), {"MASTER_PORT", "'66660'", "65535"}},
        BadCase{"env://", good_but("MASTER_PORT", "-1"), {"MASTER_PORT", "'-1'"}},
        BadCase{"env://", good_but("MASTER_PORT", "29500x"), {"MASTER_PORT", "'29500x'"}},
        BadCase{"env://", good_but("MASTER_PORT", "0"), {"MASTER_PORT", "any free port"}},
        BadCase{"env://", good_but("RANK", "2"), {"RANK", "'2'", "from 0 to 1"}},
        BadCase{"env://", good_but("RANK", "one"), {"RANK", "'one'"}},
        BadCase{"env://", good_but("WORLD_SIZE", "0"), {"WORLD_SIZE", "'0'"}},
        BadCase{"env://", good_but("WORLD_SIZE", "99999999999999999999"), {"WORLD_SIZE"}},
        BadCase{"env://", good_but("LOCAL_WORLD_SIZE", "3"), {"LOCAL_WORLD_SIZE", "'3'"}},
        BadCase{"env://", good_but("LOCAL_RANK", "2"), {"LOCAL_RANK", "'2'"}},
        BadCase{"env://", good_but("TORCHELASTIC_RESTART_COUNT", "x"), {"TORCHELASTIC_RESTART_COUNT"}},
        BadCase{"tcp://n0:29500", {}, {"rank", "world_size"}},
        BadCase{"tcp://n0:66660?rank=0&world_size=2", {}, {"66660", "65535"}},
        BadCase{"tcp://n0?rank=0&world_size=2", {}, {"host and port"}},
        BadCase{"tcp://:1?rank=0&world_size=2", {}, {"host and port"}},
        BadCase{"tcp://::1:29500?rank=0&world_size=2", {}, {"brackets"}},
        BadCase{"tcp://[::1]?rank=0&world_size=2", {}, {"host and port"}},
        BadCase{"tcp://n0:1/path?rank=0&world_size=2", {}, {"path"}},
        BadCase{"tcp://n0:0?rank=0&world_size=2", {}, {"any free port"}},
        BadCase{"tcp://n0:1?rank=0&worldsize=2", {}, {"'worldsize'", "world_size"}},
        BadCase{"tcp://n0:1?rank=0&rank=1&world_size=2", {}, {"twice"}},
        BadCase{"tcp://n0:1?rank&world_size=2", {}, {"rank of the URL", "''"}},
        BadCase{"file://shared/file?rank=0&world_size=2", {}, {"absolute", "three slashes"}},
        BadCase{"file:///?rank=0&world_size=2", {}, {"absolute"}}, BadCase{"file:///a%2?rank=0&world_size=2", {}, {"%"}},
        BadCase{"file:///a%zz?rank=0&world_size=2", {}, {"%"}}, BadCase{"http://n0:1", {}, {"'http://n0:1'", "env://"}},
        BadCase{"", {}, {"''"}}, BadCase{"env://n0\n", kGood, {"\\x0a"}}));

}  // namespace
}  // namespace wirewise
