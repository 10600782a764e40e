// The flight recorder: what it keeps, what it costs, and what a failed run leaves behind.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/ranks.h"
#include "wirewise/base/error.h"
#include "wirewise/comm/flight_recorder.h"
#include "wirewise/comm/phase.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;
using namespace std::chrono_literals;
using comm::Fingerprint;
using comm::FlightRecorder;
using Json = nlohmann::json;

Fingerprint call(std::uint64_t sequence, const std::string& label = "") {
  Fingerprint print;
  print.operation = comm::Operation::kAllReduce;
  print.in = print.out = DType::kBFloat16;
  print.count = 10 * sequence;
  print.sequence = sequence;
  print.set_label(label);
  return print;
}

Json read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return Json::parse(std::string((std::istreambuf_iterator<char>(file)), {}));
}

TEST(Flight, KeepsTheLastCallsInOrderWithTimesThatAscend) {
  FlightRecorder recorder(100);
  recorder.set_rank(3, 8);
  const auto before = std::chrono::system_clock::now().time_since_epoch();
  const std::uint32_t id = recorder.add("world", 3, {{0, "a", 1}, {3, "b", 2}});
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::uint64_t number = recorder.issued(id, call(i, "step " + std::to_string(i)), "shared");
    recorder.driven(number);
    if (i % 2 == 0) recorder.output(number);
    if (i != 999) recorder.completed(number);
  }
  const Json json = Json::parse(recorder.text());
  const auto after = std::chrono::system_clock::now().time_since_epoch();
  EXPECT_EQ(json.at("rank"), 3);
  EXPECT_EQ(json.at("world_size"), 8);
  EXPECT_EQ(json.at("calls"), 1000);
  EXPECT_TRUE(json.at("error").is_null());
  EXPECT_EQ(json.at("communicators").at(0).at("members").at(1).at("host"), "b");
  ASSERT_EQ(json.at("entries").size(), 100U);
  std::int64_t last = std::chrono::duration_cast<std::chrono::nanoseconds>(before).count() - 1'000'000;
  for (std::size_t i = 0; i < 100; ++i) {
    const Json& entry = json.at("entries").at(i);
    EXPECT_EQ(entry.at("sequence"), 900 + i);
    EXPECT_EQ(entry.at("count"), 10 * (900 + i));
    EXPECT_EQ(entry.at("in"), "bfloat16");
    EXPECT_EQ(entry.at("reduction"), "sum");
    EXPECT_EQ(entry.at("label"), "step " + std::to_string(900 + i));
    EXPECT_EQ(entry.at("how"), "shared");
    EXPECT_EQ(entry.at("state"), i == 99 ? "driven" : "completed");
    for (const char* const name : {"issued_ns", "driven_ns", "output_ns", "completed_ns"}) {
      if (i == 99 && entry.at(name).is_null()) continue;
      EXPECT_GE(entry.at(name).get<std::int64_t>(), last) << name;
      last = entry.at(name).get<std::int64_t>();
    }
  }
  EXPECT_LE(last, std::chrono::duration_cast<std::chrono::nanoseconds>(after).count() + 1'000'000);
}

TEST(Flight, KeepsLabelsOfEveryLengthAndLeavesNothingOfEarlierOnes) {
  FlightRecorder recorder(1);
  const std::uint32_t id = recorder.add("world", 0, {});
  for (const std::size_t length : {95UL, 0UL, 1UL, 7UL, 8UL, 9UL, 64UL, 3UL}) {
    const std::string label(length, static_cast<char>('a' + length % 26));
    static_cast<void>(recorder.issued(id, call(1, label), nullptr));
    EXPECT_EQ(Json::parse(recorder.text()).at("entries").at(0).value("label", ""), label);
  }
}

TEST(Flight, ACallThatFailsAfterItFellOutIsEnteredAgain) {
  const TemporaryFolder folder;
  ::setenv("WIREWISE_FLIGHT_ENTRIES", "4", 1);
  auto communicators = make_thread_communicators(2);
  ::unsetenv("WIREWISE_FLIGHT_ENTRIES");
  float value = 0;
  CallOptions patient;
  patient.label = "the one that hangs";
  patient.progress = CallOptions::Progress::kOnWait;
  Work work = communicators[0]->recv({&value, DType::kFloat32}, 1, 1, 0, patient);
  std::thread other([&] {
    for (int i = 0; i < 20; ++i) communicators[1]->barrier().wait();
  });
  for (int i = 0; i < 20; ++i) communicators[0]->barrier().wait();
  other.join();
  communicators[0]->abort("enough");
  EXPECT_THROW(work.wait(), Error);
  const Json json = read(communicators[0]->dump_flight(folder.path()));
  EXPECT_EQ(json.at("entries").back().at("label"), "the one that hangs");
  EXPECT_EQ(json.at("entries").back().at("state"), "failed");
  EXPECT_EQ(json.at("entries").size(), 4U);
}

TEST(Flight, IsReadWhileManyThreadsWriteIt) {
  FlightRecorder recorder(64);
  const std::uint32_t id = recorder.add("world", 0, {});
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (std::uint64_t t = 0; t < 3; ++t) {
    writers.emplace_back([&, t] {
      while (!stop.load()) {
        const std::uint64_t number = recorder.issued(id, call(7 * t + 1, std::string(t * 20, 'x')), "shared");
        recorder.driven(number);
        recorder.completed(number);
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    const Json json = Json::parse(recorder.text());
    for (const Json& entry : json.at("entries")) {
      // Whole entries only: sequence, count and label belong together.
      const auto sequence = entry.at("sequence").get<std::uint64_t>();
      EXPECT_EQ(entry.at("count"), 10 * sequence);
      EXPECT_EQ(entry.value("label", "").size(), (sequence - 1) / 7 * 20);
    }
  }
  stop.store(true);
  for (std::thread& writer : writers) writer.join();
}

TEST(Flight, ForgetsClosedCommunicatorsOnceTheirCallsAreGone) {
  FlightRecorder recorder(10);
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const std::uint32_t id = recorder.add("part", 0, {{0, "a", 1}});
    for (int k = 0; k < 3; ++k) static_cast<void>(recorder.issued(id, call(i), nullptr));
    recorder.close(id);
  }
  const Json json = Json::parse(recorder.text());
  EXPECT_LT(json.at("communicators").size(), 300U);
  EXPECT_EQ(json.at("communicators").back().at("instance"), 4999);
  for (const Json& entry : json.at("entries")) {
    bool found = false;
    for (const Json& communicator : json.at("communicators")) found = found || communicator.at("id") == entry.at("communicator");
    EXPECT_TRUE(found);
  }
}

TEST(Flight, RefusesAWrongNumberOfEntries) {
  for (const char* const wrong : {"many", "-1", "10000001", "1e3"}) {
    ::setenv("WIREWISE_FLIGHT_ENTRIES", wrong, 1);
    EXPECT_THROW(static_cast<void>(make_thread_communicators(1)), Error) << wrong;
  }
  ::setenv("WIREWISE_FLIGHT_ENTRIES", "0", 1);
  const auto none = make_thread_communicators(1);
  ::unsetenv("WIREWISE_FLIGHT_ENTRIES");
  none[0]->barrier().wait();
  const TemporaryFolder folder;
  EXPECT_THROW(static_cast<void>(none[0]->dump_flight(folder.path())), Error);
}

// --- failures of processes

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(FlightDump, EveryRankLeavesOneWhenACommunicatorFails) {
  const TemporaryFolder folder;
  CommunicatorOptions options;
  options.timeout = 300ms;
  options.flight_dir = folder.path() / "made" / "flight";
  ::setenv("WIREWISE_SECRET_TOKEN", "hunter2-token", 1);
  expect_all_ok(run_communicators(3, [](Communicator& comm) {
    float value = 1;
    CallOptions call;
    call.label = "loss";
    comm.all_reduce({&value, DType::kFloat32}, {&value, DType::kFloat32}, 1, Reduction::kMax, call).wait();
    if (comm.rank() == 2) {
      // Stuck outside of collectives: its record is written all the same.
      const auto end = std::chrono::steady_clock::now() + 20s;
      const std::filesystem::path folder_of_this(std::getenv("TEST_FLIGHT"));
      while (!std::filesystem::exists(folder_of_this / "rank-2.json") && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      return std::string();
    }
    EXPECT_THROW(comm.barrier().wait(), Error);
    return std::string();
  }, [&] {
    ::setenv("TEST_FLIGHT", options.flight_dir.c_str(), 1);
    return options;
  }()));
  ::unsetenv("WIREWISE_SECRET_TOKEN");
  ::unsetenv("TEST_FLIGHT");
  ASSERT_EQ(names_in(options.flight_dir), (std::vector<std::string>{"rank-0.json", "rank-1.json", "rank-2.json"}));
  for (int r = 0; r < 3; ++r) {
    const std::filesystem::path path = options.flight_dir / ("rank-" + std::to_string(r) + ".json");
    const Json json = read(path);
    EXPECT_EQ(json.at("rank"), r);
    EXPECT_EQ(json.at("world_size"), 3);
    EXPECT_EQ(json.at("error").at("kind"), "timeout");
    EXPECT_NE(json.at("error").at("sentence").get<std::string>().find("rank 2 ("), std::string::npos);
    EXPECT_EQ(json.at("error").at("entered"), (std::vector<std::uint64_t>{2, 2, 1}));
    EXPECT_EQ(json.at("entries").size(), r == 2 ? 1U : 2U);
    EXPECT_EQ(json.at("entries").at(0).at("state"), "completed");
    EXPECT_EQ(json.at("entries").at(0).at("reduction"), "max");
    EXPECT_EQ(json.at("entries").at(0).at("label"), "loss");
    if (r < 2) {
      EXPECT_EQ(json.at("entries").at(1).at("state"), "failed");
      const Json& missing = json.at("error").at("missing");
      EXPECT_NE(std::find(missing.begin(), missing.end(), Json::parse(R"({"rank": 2, "arrived": false})")), missing.end()) << missing;
    }
    EXPECT_EQ(json.dump().find("hunter2"), std::string::npos) << "only listed variables are told";
  }
}

TEST(FlightDump, OfASplitBearsTheRanksOfTheJob) {
  const TemporaryFolder folder;
  CommunicatorOptions options;
  options.flight_dir = folder.path() / "f";
  expect_all_ok(run_communicators(4, [](Communicator& comm) {
    CommunicatorOptions part_options;
    part_options.name = "odd";
    const auto part = comm.split(comm.rank() % 2 == 1 ? 0 : -1, 0, part_options);
    if (part) {
      if (part->rank() == 0) part->abort("on purpose");
      EXPECT_THROW(part->barrier().wait(), Error);
    }
    comm.barrier().wait();
    return std::string();
  }, options));
  EXPECT_EQ(names_in(folder.path() / "f"), (std::vector<std::string>{"rank-1.json", "rank-3.json"}));
  const Json json = read(folder.path() / "f" / "rank-3.json");
  EXPECT_EQ(json.at("rank"), 3);
  EXPECT_EQ(json.at("world_size"), 4);
  const Json& part = json.at("communicators").at(1);
  EXPECT_EQ(part.at("name"), "odd");
  EXPECT_EQ(part.at("rank"), 1);
  EXPECT_EQ(part.at("members").at(0).at("rank"), 1);
  EXPECT_EQ(part.at("members").at(1).at("rank"), 3);
  EXPECT_EQ(json.at("error").at("communicator"), part.at("id"));
}

std::filesystem::path awaited_record;

/// Holds a rank that has announced a call until its record is written.
void await_record(const char* phase) {
  if (std::string_view(phase) != "taking over") return;
  const auto end = std::chrono::steady_clock::now() + kPatience * 20s;
  while (!std::filesystem::exists(awaited_record) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

TEST(FlightDump, HasACallThatPeersSawBeforeItsRankHeardOfTheFailure) {
  const TemporaryFolder folder;
  CommunicatorOptions options;
  options.flight_dir = folder.path();
  awaited_record = folder.path() / "rank-1.json";
  expect_all_ok(run_communicators(2, [](Communicator& comm) {
    std::vector<float> data(8);
    comm.barrier().wait();
    if (comm.rank() == 1) comm::phase_hook.store(await_record);
    const std::size_t count = comm.rank() == 1 ? 7 : 8;
    EXPECT_THROW(comm.all_reduce({data.data(), DType::kFloat32}, {data.data(), DType::kFloat32}, count).wait(), Error);
    return std::string();
  }, options));
  for (const int rank : {0, 1}) {
    const Json json = read(folder.path() / ("rank-" + std::to_string(rank) + ".json"));
    const Json& last = json.at("entries").back();
    EXPECT_EQ(last.at("operation"), "all_reduce") << json;
    EXPECT_EQ(last.at("count"), 8 - rank) << json;
    EXPECT_EQ(last.at("state"), "failed") << json;
  }
}

TEST(FlightDump, NothingIsWrittenWithoutAFolderOrWithoutAFailure) {
  const TemporaryFolder folder;
  CommunicatorOptions options;
  options.flight_dir = folder.path() / "f";
  expect_all_ok(run_communicators(2, [](Communicator& comm) {
    comm.barrier().wait();
    return std::string();
  }, options));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "f"));
}

TEST(FlightDump, TheVariableWinsOverTheProgram) {
  const TemporaryFolder folder;
  CommunicatorOptions options;
  options.flight_dir = folder.path() / "program";
  ::setenv("WIREWISE_FLIGHT_DIR", (folder.path() / "variable").c_str(), 1);
  expect_all_ok(run_communicators(2, [](Communicator& comm) {
    if (comm.rank() == 0) comm.abort("on purpose");
    EXPECT_THROW(comm.barrier().wait(), Error);
    return std::string();
  }, options));
  ::unsetenv("WIREWISE_FLIGHT_DIR");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"variable"});
  EXPECT_EQ(names_in(folder.path() / "variable"), (std::vector<std::string>{"rank-0.json", "rank-1.json"}));
}

TEST(FlightDump, AFolderThatCannotBeMadeLeavesTheErrorAlone) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "in the way";
  CommunicatorOptions options;
  options.flight_dir = folder.path() / "file" / "flight";
  expect_all_ok(run_communicators(2, [](Communicator& comm) {
    if (comm.rank() == 0) comm.abort("on purpose");
    try {
      comm.barrier().wait();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("on purpose"), std::string::npos);
    }
    return std::string();
  }, options));
}

}  // namespace
}  // namespace wirewise
