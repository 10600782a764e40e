// The file of `wirewise launch --hosts`, and how ranks are spread over its hosts.
#include <gtest/gtest.h>

#include <string>

#include "wirewise/base/error.h"
#include "wirewise/cli/host_launcher.h"
#include "wirewise/cli/hostfile.h"

namespace wirewise {
namespace {

/// What the refusal says, or "accepted".
template <typename F>
std::string refusal(F&& what) {
  try {
    what();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.what();
  }
  return "accepted";
}

TEST(Hostfile, ReadsNamesSlotsAndComments) {
  const auto hosts = parse_hosts("# the cluster\nnode1 slots=2  # first\n\n  user@node2\tslots=4\r\nnode3\n", "h");
  ASSERT_EQ(hosts.size(), 3U);
  EXPECT_EQ(hosts[0].name, "node1");
  EXPECT_EQ(hosts[0].slots, 2);
  EXPECT_EQ(hosts[1].name, "user@node2");
  EXPECT_EQ(hosts[1].slots, 4);
  EXPECT_EQ(hosts[2].slots, 1);
}

TEST(Hostfile, RefusalsNameTheLine) {
  const auto of = [](const std::string& text) { return refusal([&] { (void)parse_hosts(text, "h"); }); };
  EXPECT_NE(of("").find("h names no host"), std::string::npos);
  EXPECT_NE(of("a\nb max_slots=2\n").find("h, line 2: max_slots=2"), std::string::npos);
  EXPECT_NE(of("a slots=0\n").find("slots=0 is no number of ranks"), std::string::npos);
  EXPECT_NE(of("a slots=1 slots=2\n").find("a second slots=2"), std::string::npos);
  EXPECT_NE(of("a\nb\na\n").find("line 3: a stands there twice"), std::string::npos);
  EXPECT_NE(of("-oProxyCommand=x\n").find("is no host's name"), std::string::npos);
  EXPECT_NE(refusal([] { (void)read_hosts("/nowhere/hosts"); }).find("/nowhere/hosts can't be read"), std::string::npos);
}

TEST(Hostfile, RanksFillHostsInOrder) {
  const auto hosts = parse_hosts("a slots=2\nb slots=2\nc slots=2\n", "h");
  EXPECT_EQ(share_hosts(hosts, 0, 0, "h").names.size(), 3U);
  EXPECT_EQ(share_hosts(hosts, 4, 0, "h").names, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(share_hosts(hosts, 4, 0, "h").ranks_each, 2);
  EXPECT_EQ(share_hosts(hosts, 3, 1, "h").names.size(), 3U);
  EXPECT_EQ(share_hosts(hosts, 0, 8, "h").ranks_each, 8);
  EXPECT_NE(refusal([&] { (void)share_hosts(hosts, 7, 0, "h"); }).find("hold 6 ranks together, but --ranks is 7"), std::string::npos);
  EXPECT_NE(refusal([&] { (void)share_hosts(hosts, 3, 0, "h"); }).find("don't fill hosts of 2"), std::string::npos);
  const auto uneven = parse_hosts("a slots=2\nb slots=4\n", "h");
  EXPECT_NE(refusal([&] { (void)share_hosts(uneven, 0, 0, "h"); }).find("a has 2 slots and b has 4"), std::string::npos);
  EXPECT_EQ(share_hosts(uneven, 2, 0, "h").names.size(), 1U);
}

TEST(Hostfile, AShellReadsQuotedWordsBack) {
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("a b$c"), "'a b$c'");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
}

}  // namespace
}  // namespace wirewise
