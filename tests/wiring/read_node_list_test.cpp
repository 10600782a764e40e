// Lists of hosts, Slurm's and launchers'.
#include <gtest/gtest.h>

#include "wiring/field.h"
#include "wiring/reader_fuzz.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/reading.h"

namespace wirewise {
namespace {

std::string hosts(const Reading& reading) {
  std::vector<std::string> names;
  for (int host : devices_of(reading.wiring, DeviceKind::kHost)) names.push_back(reading.wiring.devices[static_cast<std::size_t>(host)].name);
  return join(names, " ");
}

std::string slots(const Reading& reading) {
  std::vector<std::string> values;
  for (const Fact& fact : reading.facts) {
    if (fact.name == "slots") values.push_back(fact.value);
  }
  return join(values, " ");
}

TEST(ReadNodeList, EveryLauncherSFile) {
  const Reading list = read_wiring("n[08-10],login\n", "t");
  EXPECT_EQ(list.format, Format::kNodeList);
  EXPECT_EQ(hosts(list), "n08 n09 n10 login");
  const Reading mpi = read_wiring("# hosts\nnode1 slots=8 max_slots=16\nnode2 slots=4 # small\n\nnode3\r\n", "t");
  EXPECT_EQ(hosts(mpi), "node1 node2 node3");
  EXPECT_EQ(slots(mpi), "8 4 1");
  EXPECT_EQ(slots(read_wiring("a:2\nb:4\n", "t")), "2 4");
  const Reading repeated = read_wiring("a\na\nb\na\n", "t");  // a scheduler's file has a line a rank
  EXPECT_EQ(hosts(repeated), "a b");
  EXPECT_EQ(slots(repeated), "3 1");
  EXPECT_EQ(hosts(read_wiring("fe80::1\nfe80::2\n", "t")), "fe80::1 fe80::2");
}

TEST(ReadNodeList, RefusalsNameThePlace) {
  const auto refusal = [](std::string_view text) {
    try {
      (void)read_node_list(text, "t");
    } catch (const Error& error) {
      return error.sentence();
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal("a\n n[1-\n"), "t:2:3: the bracket is never closed.");
  EXPECT_EQ(refusal("a slots=0\n"), "t:1:3: slots=0 is no number of ranks.");
  EXPECT_EQ(refusal("a:x\n"), "t:1:1: a:x is no host with a number of ranks.");
  EXPECT_NE(refusal("n[0-2000000000]\n").find("more than"), std::string::npos);
  EXPECT_EQ(refusal("# none\n"), "t: the file names no host.");
}

TEST(ReadNodeList, EveryListOfTheFieldHolds) {
  WIREWISE_FIELD_TEXT(lists, "slurm/nodelists.tsv");
  int lines = 0;
  for (const std::string& line : split(lists, '\n')) {
    const auto cells = split(line, '\t');
    if (cells.size() < 2 || line.front() == '#') continue;
    ++lines;
    if (cells[1].find("REFUSE") == 0) {
      EXPECT_THROW((void)read_wiring(cells[0], "t"), Error) << cells[0];
    } else if (cells[1].front() != '<' && cells[1].find("1 name") != 0) {
      EXPECT_EQ(hosts(read_wiring(cells[0], "t")), cells[1]);
    }
  }
  EXPECT_EQ(lines, 25);
}

TEST(ReadNodeList, ProseIsNone) {
  EXPECT_THROW((void)read_wiring("there is nothing to see\n", "t"), Error);
  EXPECT_THROW((void)read_wiring("{\"a\": 1}\n", "t"), Error);
}

TEST(ReadNodeList, SurvivesAnyText) {
  fuzz::run_reader({"n[001-003,7],login\n", "node1 slots=8 max_slots=9\nnode2:4\n# no\nr[1-2]n[3-4]x\n"}, [](const std::string& text) { return read_node_list(text, "fuzz"); });
}

TEST(ReadNodeList, CountsAfterTheNameInEveryWayPeopleWriteThem) {
  for (const char* line : {"host1 8", "host1:8", "host1 slots=8", "host1 np=8", "host1\t8"}) {
    const Reading reading = read_wiring(std::string(line) + "\nhost2 slots=4\n", "f");
    EXPECT_EQ(reading.format, Format::kNodeList) << line;
    EXPECT_EQ(field::fact(reading, "host1", "slots"), "8") << line;
    EXPECT_EQ(field::fact(reading, "host2", "slots"), "4") << line;
  }
  for (const char* other : {"1 2\n3 4\n", "host1 8 9\n", "host1 0\n", "host1 many\n", "host1 8 np=8\n"}) EXPECT_THROW((void)read_wiring(other, "f"), Error) << other;
}

TEST(ReadNodeList, AnEmptyFileSaysThatItIs) {
  EXPECT_EQ(field::refusal("").substr(0, 15), "f: it is empty.");
  EXPECT_NE(field::refusal(" \n\t\n").find("nothing in it but blanks"), std::string::npos);
  try {
    (void)read_wiring("the moon is a rock, and so on\n", "f");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("wirewise topo --help lists them"), std::string::npos) << error.what();
  }
}

TEST(ReadNodeList, AHostWithSlotsThatStandsThereTwiceIsNoted) {
  // A list for -H above the host file of the same hosts.
  const Reading reading = read_wiring("n1:2,n2:2\nn1 slots=2\nn2 slots=2\n", "t");
  EXPECT_EQ(field::fact(reading, "n1", "slots"), "4");
  EXPECT_TRUE(field::noted(reading, "n1 stands there again, first in line 1: its slots are added, 4 in all."));
  // A line for each slot, as batch systems write it, is a host file like any.
  EXPECT_FALSE(field::noted(read_wiring("n1\nn1\nn2\nn2\n", "t"), "again"));
}

}  // namespace
}  // namespace wirewise
