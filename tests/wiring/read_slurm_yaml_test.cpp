// topology.yaml: trees, blocks, flat ones, and several in a file.
#include <gtest/gtest.h>

#include "wiring/reader_fuzz.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

using field::refusal;

const char* const kThree =
    "- topology: a\n  cluster_default: false\n  flat: true\n"
    "- topology: b\n  cluster_default: True\n  tree:\n    switches:\n    - switch: top\n      children: s[1-2]\n    - switch: s1\n      nodes: n[01-04]\n    - switch: s2\n      nodes: n[05-08]\n"
    "- topology: c\n  block:\n    block_sizes:\n      - 4\n      - 8\n    blocks:\n    - block: b1\n      nodes: n[01-04]\n    - {block: b2, nodes: \"n[05-08]\"}\n";

TEST(ReadSlurmYaml, TheDefaultOfSeveralMakesTheGraph) {
  const Reading reading = read_wiring(kThree, "t");
  EXPECT_EQ(reading.format, Format::kSlurmYaml);
  EXPECT_EQ(devices_of(reading.wiring, DeviceKind::kHost).size(), 8U);
  const int top = find_device(reading.wiring, "top", -1);
  ASSERT_GE(top, 0);
  EXPECT_EQ(reading.wiring.devices[static_cast<std::size_t>(top)].level, 1);
  ASSERT_EQ(reading.facts.size(), 3U);
  EXPECT_EQ(reading.facts[1].value, "tree, default");
  EXPECT_EQ(reading.facts[2].value, "block");
}

TEST(ReadSlurmYaml, BlocksAreRacks) {
  const Reading reading = read_wiring("- topology: c\n  block:\n    block_sizes: [2]\n    blocks:\n    - block: b1\n      nodes: n[1-2]\n    - block: b2\n      nodes: n[3-4]\n", "t");
  std::vector<std::string> racks;
  for (int host : devices_of(reading.wiring, DeviceKind::kHost)) racks.push_back(reading.wiring.devices[static_cast<std::size_t>(host)].rack);
  EXPECT_EQ(racks, (std::vector<std::string>{"b1", "b1", "b2", "b2"}));
}

TEST(ReadSlurmYaml, RefusalsNameThePlace) {
  EXPECT_EQ(refusal("- topology: a\n  tree:\n    switches:\n    - switch: s\n      nodes: n[1-\n").substr(0, 8), "f:5:15: ");
  EXPECT_EQ(refusal("- topology: a\n  trees:\n"), "f:2:3: trees is no key of a topology.");
  EXPECT_NE(refusal("- topology: a\n  flat: true\n  block: {}\n").find("several kinds: block, flat"), std::string::npos);
  EXPECT_NE(refusal("- topology: a\n  flat: maybe\n").find("f:2:9: flat must be true or false"), std::string::npos);
  EXPECT_EQ(refusal("- topology: a\n  tree: *b\n"), "f:2:9: anchors and aliases have no place in a topology.");
  EXPECT_NE(refusal("- topology: a\n  tree: " + std::string(5000, '[')).find("nested too deep"), std::string::npos);
  EXPECT_NE(refusal("- topology: a\n" + std::string(200, '-')).find("nested too deep"), std::string::npos);
  EXPECT_NE(refusal("- topology: a\n  tree:\n    switches:\n    - switch: s\n      children: s\n").find("f:5:17: the switch s is below itself"), std::string::npos);
  EXPECT_NE(refusal("- topology: a\n   flat: [\n").find("f:"), std::string::npos);
}

TEST(ReadSlurmYaml, SurvivesAnyText) {
  fuzz::run_reader({kThree, "- topology: r\n  ring:\n    rings:\n    - ring: a\n      nodes: n[1-5]\n"}, [](const std::string& text) { return read_slurm_yaml(text, "fuzz"); });
}

}  // namespace
}  // namespace wirewise
