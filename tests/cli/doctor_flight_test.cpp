// `wirewise doctor flight` on the records of runs that failed in known ways, and on folders that hold anything else.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cli/program.h"
#include "comm/ranks.h"
#include "fuzz.h"
#include "wirewise/base/error.h"
#include "wirewise/comm/flight_recorder.h"

namespace wirewise {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::FuzzRounds;
using testing::run_communicators;
using testing::TemporaryFolder;
using testing_support::Program;
using Json = nlohmann::json;

Json findings_of(const fs::path& folder) {
  Program program({"doctor", "flight", folder.string(), "--json"});
  EXPECT_EQ(program.wait(), 0) << program.err();
  const Json findings = Json::parse(program.out()).at("findings");
  // Worst first, all four fields.
  int worst = 0;
  for (const Json& finding : findings) {
    const std::string severity = finding.at("severity");
    const int rank = severity == "error" ? 0 : severity == "warning" ? 1 : 2;
    EXPECT_GE(rank, worst);
    worst = rank;
    for (const char* const field : {"title", "evidence", "remedy"}) EXPECT_TRUE(finding.at(field).is_string());
  }
  return findings;
}

/// The first finding whose title has all of these words; null if there is none.
Json find(const Json& findings, const std::vector<std::string>& words) {
  for (const Json& finding : findings) {
    const std::string title = finding.at("title");
    if (std::all_of(words.begin(), words.end(), [&](const std::string& word) { return title.find(word) != std::string::npos; })) return finding;
  }
  return nullptr;
}

CommunicatorOptions recording(const TemporaryFolder& folder, std::chrono::milliseconds timeout = 400ms) {
  CommunicatorOptions options;
  options.timeout = timeout;
  options.flight_dir = folder.path();
  return options;
}

/// Runs a call that fails.
void fail(const std::function<void()>& call) { EXPECT_THROW(call(), Error); }

/// Stays away from collectives until all ranks' records are there.
void stay_elsewhere(const fs::path& folder, int ranks) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  for (int r = 0; r < ranks; ++r) {
    while (!fs::exists(folder / ("rank-" + std::to_string(r) + ".json")) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  }
}

TEST(DoctorFlight, NamesTheRankThatHasNotEnteredACallAndTheCall) {
  const TemporaryFolder folder;
  // All but rank 0 take the branch with the broadcast.
  testing::expect_all_ok(run_communicators(4, [&](Communicator& comm) {
    std::vector<float> data(112);
    for (int i = 0; i < 4; ++i) comm.barrier().wait();
    if (comm.rank() == 0) {
      stay_elsewhere(folder.path(), 4);
    } else {
      fail([&] { comm.broadcast({data.data(), DType::kFloat32}, 112, 1).wait(); });
    }
    return std::string();
  }, recording(folder)));
  const Json found = findings_of(folder.path());
  const Json first = found.at(0);
  const std::string title = first.at("title");
  EXPECT_EQ(first.at("severity"), "error");
  EXPECT_EQ(title.rfind("rank 0 has not entered call 4 of world (4 ranks), broadcast of 112 float32, root 1", 0), 0U) << title;
  EXPECT_NE(title.find("ranks 1, 2, 3 wait"), std::string::npos) << title;
  EXPECT_NE(first.at("evidence").get<std::string>().find("last entered call 3 (barrier, completed)"), std::string::npos) << first;
  EXPECT_FALSE(find(found, {"timed out", "rank 0 ("}).is_null()) << found;
  EXPECT_TRUE(find(found, {"left no flight record"}).is_null()) << found;
}

/// Writes a record as if another process had.
void write_as(const fs::path& folder, const comm::FlightRecorder& recorder, int rank, const comm::FlightMember& process) {
  Json json = Json::parse(recorder.text());
  json["host"] = process.host;
  json["pid"] = process.pid;
  std::ofstream(folder / ("rank-" + std::to_string(rank) + ".json")) << json;
}

TEST(DoctorFlight, NamesAbsenteesOfALongRunOf256Ranks) {
  const TemporaryFolder folder;
  constexpr int kRanks = 256;
  std::vector<comm::FlightMember> members;
  for (int r = 0; r < kRanks; ++r) members.push_back({r, "node" + std::to_string(r / 8), 1000 + r});
  for (int r = 0; r < kRanks; ++r) {
    if (r == 9) continue;
    comm::FlightRecorder recorder(20);
    recorder.set_rank(r, kRanks);
    const std::uint32_t id = recorder.add("world", r, members);
    comm::Fingerprint print;
    print.operation = comm::Operation::kAllReduce;
    print.count = 8'652'160;
    print.in = print.out = DType::kFloat32;
    const std::uint64_t last = r == 100 ? 2'398'458 : 2'398'478;
    for (std::uint64_t s = 2'398'450; s <= last; ++s) {
      print.sequence = s;
      const std::uint64_t number = recorder.issued(id, print, "network");
      if (s <= 2'398'458) recorder.completed(number);
    }
    comm::FlightFailure failure;
    failure.communicator = id;
    print.sequence = 2'398'459;
    if (r != 100) {
      failure.call = print;
      failure.missing = {{100, false}, {9, true}};
      recorder.failed(failure, Error(ErrorKind::kTimeout, "all_reduce timed out after 1800 s."));
    }
    write_as(folder.path(), recorder, r, members[static_cast<std::size_t>(r)]);
  }
  const Json found = findings_of(folder.path());
  const std::string title = found.at(0).at("title");
  EXPECT_EQ(title.rfind("rank 100 has not entered call 2398459 of world (256 ranks), all_reduce of 8652160 float32", 0), 0U) << title;
  EXPECT_NE(found.at(0).at("evidence").get<std::string>().find("(node12, pid 1100) last entered call 2398458"), std::string::npos) << found.at(0);
  EXPECT_FALSE(find(found, {"rank 9 left no flight record"}).is_null()) << found;
}

TEST(DoctorFlight, NamesBothSidesWhereRanksDisagree) {
  const TemporaryFolder folder;
  run_communicators(3, [&](Communicator& comm) {
    std::vector<float> data(300);
    comm.barrier().wait();
    CallOptions call;
    call.label = "gradients";
    fail([&] {
      comm.all_reduce({data.data(), DType::kFloat32}, {data.data(), DType::kFloat32}, comm.rank() == 1 ? 299 : 300, Reduction::kSum, call).wait();
    });
    return std::string();
  }, recording(folder, 20s));
  const Json found = findings_of(folder.path());
  const std::string title = found.at(0).at("title");
  // A rank that heard of the failure before it came to the call has no such call.
  EXPECT_EQ(title.rfind("ranks disagree in call 1 of world (3 ranks): ", 0), 0U) << title;
  EXPECT_NE(title.find("called all_reduce of 300 float32 'gradients'"), std::string::npos) << title;
  EXPECT_NE(title.find("rank 1 called all_reduce of 299 float32 'gradients'"), std::string::npos) << title;
  EXPECT_NE(found.at(0).at("evidence").get<std::string>().find("Before it all called barrier"), std::string::npos);
}

TEST(DoctorFlight, TellsASwapFromACallLeftOutAndOneTooMany) {
  struct Case {
    const char* even;  // b: barrier, r: all_reduce, c: broadcast
    const char* odd;   // rank 2's
    const char* says;
  };
  for (const Case& one : {Case{"bbrcr", "brbcr", "in the other order"}, Case{"brbcr", "bbcr", "left out all_reduce of 64"}, Case{"brbcr", "bcrbcr", "made a call more, broadcast of 64"}}) {
    const TemporaryFolder folder;
    const std::vector<comm::FlightMember> members{{0, "h", 10}, {1, "h", 11}, {2, "h", 12}};
    for (int r = 0; r < 3; ++r) {
      comm::FlightRecorder recorder(50);
      recorder.set_rank(r, 3);
      const std::uint32_t id = recorder.add("world", r, members);
      comm::Fingerprint print;
      for (const char c : std::string(r == 2 ? one.odd : one.even)) {
        print.operation = c == 'b' ? comm::Operation::kBarrier : c == 'r' ? comm::Operation::kAllReduce : comm::Operation::kBroadcast;
        print.count = c == 'b' ? 0 : 64;
        print.root = c == 'c' ? 0 : -1;
        static_cast<void>(recorder.issued(id, print, nullptr));
        ++print.sequence;
      }
      write_as(folder.path(), recorder, r, members[static_cast<std::size_t>(r)]);
    }
    const Json first = findings_of(folder.path()).at(0);
    EXPECT_EQ(first.at("title").get<std::string>().rfind("ranks disagree in call 1 of world (3 ranks): ranks 0, 1 called ", 0), 0U) << first;
    EXPECT_NE(first.at("evidence").get<std::string>().find(std::string("rank 2 (h, pid 12) ") + (one.says[0] == 'i' ? "made calls 1 and 2 " : "") + one.says), std::string::npos) << first;
  }
}

TEST(DoctorFlight, NamesARankThatDiedAndWhatItHadEntered) {
  const TemporaryFolder folder;
  run_communicators(3, [&](Communicator& comm) {
    for (int i = 0; i < 5; ++i) comm.barrier().wait();
    if (comm.rank() == 1) ::kill(::getpid(), SIGKILL);
    fail([&] { comm.barrier().wait(); });
    return std::string();
  }, recording(folder, 20s));
  const Json found = findings_of(folder.path());
  EXPECT_FALSE(find(found, {"rank 1 has not entered call 5 of world (3 ranks), barrier"}).is_null()) << found;
  EXPECT_FALSE(find(found, {"rank 1 (", "died during barrier"}).is_null()) << found;
  const Json silent = find(found, {"rank 1 left no flight record"});
  ASSERT_FALSE(silent.is_null()) << found;
  EXPECT_NE(silent.at("evidence").get<std::string>().find("enter 5 collectives of world"), std::string::npos) << silent;
}

TEST(DoctorFlight, NamesAMessageThatWasNeverSent) {
  const TemporaryFolder folder;
  run_communicators(2, [&](Communicator& comm) {
    float value = 0;
    if (comm.rank() == 0) {
      fail([&] { comm.recv({&value, DType::kFloat32}, 1, 1, 7).wait(); });
    } else {
      comm.send({&value, DType::kFloat32}, 1, 0, 8).wait();
      stay_elsewhere(folder.path(), 2);
    }
    return std::string();
  }, recording(folder));
  const Json found = findings_of(folder.path());
  EXPECT_FALSE(find(found, {"rank 0 (", "waits for a message with tag 7 that rank 1 never sent"}).is_null()) << found;
}

TEST(DoctorFlight, NamesTheSlowestToEnter) {
  const TemporaryFolder folder;
  run_communicators(3, [&](Communicator& comm) {
    for (int i = 0; i < 10; ++i) {
      if (comm.rank() == 2) ::usleep(3000);
      comm.barrier().wait();
    }
    static_cast<void>(comm.dump_flight(folder.path()));
    return std::string();
  });
  const Json found = findings_of(folder.path());
  ASSERT_EQ(found.size(), 1U) << found;
  EXPECT_EQ(found.at(0).at("severity"), "info");
  EXPECT_EQ(found.at(0).at("title").get<std::string>().rfind("rank 2 is the slowest to enter", 0), 0U) << found;
}

// --- folders that hold something else

/// Records of a run of two ranks, as rank-0.json and rank-1.json.
void write_good(const fs::path& folder, int ranks = 2, long first_pid = 10) {
  std::vector<comm::FlightMember> members;
  for (int r = 0; r < ranks; ++r) members.push_back({r, "h", first_pid + r});
  for (int r = 0; r < ranks; ++r) {
    comm::FlightRecorder recorder(50);
    recorder.set_rank(r, ranks);
    const std::uint32_t id = recorder.add("world", r, members);
    for (std::uint64_t s = 0; s < 20; ++s) {
      comm::Fingerprint print;
      print.operation = comm::Operation::kAllGather;
      print.count = 5;
      print.sequence = s;
      print.set_label("a label");
      recorder.completed(recorder.issued(id, print, "shared"));
    }
    write_as(folder, recorder, r, members[static_cast<std::size_t>(r)]);
  }
}

TEST(DoctorFlight, TornForeignAndStrangeFilesAreFindings) {
  const TemporaryFolder folder;
  write_good(folder.path(), 8, 500);
  write_good(folder.path(), 3, 10);  // over an earlier run of eight ranks: 3 to 7 are left of it
  for (int r = 5; r < 8; ++r) fs::remove(folder.path() / ("rank-" + std::to_string(r) + ".json"));
  const auto put = [&](const std::string& name, const std::string& text) { std::ofstream(folder.path() / name) << text; };
  std::ifstream file(folder.path() / "rank-0.json");
  const std::string good((std::istreambuf_iterator<char>(file)), {});
  put("rank-20.json", good.substr(0, good.size() / 2));
  put("rank-21.json", "");
  put("rank-22.json", R"({"format": "something else"})");
  put("rank-23.json", std::string(100'000, '['));
  put("rank-24.json", "[1, 2]");
  put("notes.txt", "not looked at");
  ASSERT_EQ(::mkfifo((folder.path() / "rank-25.json").c_str(), 0600), 0);
  fs::create_symlink("/etc/passwd", folder.path() / "rank-26.json");
  std::ofstream(folder.path() / "rank-27.json").close();
  fs::resize_file(folder.path() / "rank-27.json", std::uintmax_t{1} << 40);
  fs::create_directory(folder.path() / "rank-28.json");
  const Json found = findings_of(folder.path());
  for (const int n : {20, 21, 22, 23, 24, 25, 26, 27, 28}) {
    EXPECT_FALSE(find(found, {"rank-" + std::to_string(n) + ".json can't be read"}).is_null()) << n << found;
  }
  for (const int n : {3, 4}) EXPECT_FALSE(find(found, {"rank-" + std::to_string(n) + ".json is of another run"}).is_null()) << n << found;
  EXPECT_TRUE(find(found, {"left no flight record"}).is_null()) << found;
}

TEST(DoctorFlight, NoFolderAndNoRecordAreBadInput) {
  const TemporaryFolder folder;
  for (const fs::path& path : {folder.path() / "absent", folder.path()}) {
    Program program({"doctor", "flight", path.string()});
    EXPECT_EQ(program.wait(), 2);
    EXPECT_EQ(program.err().rfind("error: ", 0), 0U) << program.err();
    EXPECT_NE(program.err().find(path.string()), std::string::npos) << program.err();
  }
  Program bare({"doctor", "flight"});
  EXPECT_EQ(bare.wait(), 2);
}

TEST(DoctorFlight, AnyChangeToARecordIsReadWithoutACrash) {
  const TemporaryFolder folder;
  write_good(folder.path());
  std::ifstream file(folder.path() / "rank-1.json");
  const std::string good((std::istreambuf_iterator<char>(file)), {});
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  const std::vector<std::string> pieces{"null", "-1", "1e300", "18446744073709551615", "\"\"", "[]", "{}", "true", "99999999999", "\"\\ud800\"", "\x1b[31m", "0"};
  for (FuzzRounds rounds(60); rounds.more();) {
    std::string text = good;
    for (unsigned k = 0; k < 1 + random() % 3; ++k) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = static_cast<char>(random() % 256); break;
        case 1: text.erase(at, random() % 20); break;
        default: {
          // A value replaced by another.
          const std::size_t colon = text.find(':', at);
          if (colon == std::string::npos) break;
          const std::size_t end = text.find_first_of(",}]", colon);
          text.replace(colon + 1, end - colon - 1, pieces[random() % pieces.size()]);
        }
      }
    }
    std::ofstream(folder.path() / "rank-1.json") << text;
    Program program({"doctor", "flight", folder.path().string()});
    EXPECT_EQ(program.wait(), 0) << program.err() << text;
    EXPECT_EQ(program.out().find('\x1b'), std::string::npos);
  }
}

TEST(DoctorFlight, PrintsTheSameForPeople) {
  const TemporaryFolder folder;
  write_good(folder.path());
  Program program({"doctor", "flight", folder.path().string()});
  EXPECT_EQ(program.wait(), 0);
  EXPECT_NE(program.out().find("is the slowest to enter"), std::string::npos) << program.out();
}

}  // namespace
}  // namespace wirewise
