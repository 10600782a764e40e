// JSON lines with the contract's keys, and event files that TensorBoard itself reads.
#include "wirewise/train/metrics.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>

#include "train/python.h"
#include "train/temporary_folder.h"
#include "wirewise/base/error.h"

namespace wirewise::testing {
namespace {

StepMetrics sample() {
  StepMetrics metrics;
  metrics.step = 12;
  metrics.loss = 3.14159265358979;
  metrics.grad_norm = 0.5;
  metrics.lr = 3e-4;
  metrics.tokens = 123456789012;
  metrics.step_s = 1.25;
  metrics.tokens_per_s = 2048;
  metrics.tokens_per_s_per_rank = 1024;
  metrics.mfu = 0.4321;
  metrics.exposed_comm_s = 0.0625;
  metrics.memory_measured = 3 * kGiB;
  metrics.memory_predicted = 3 * kGiB + 1;
  return metrics;
}

TEST(Metrics, StepLineHasTheContractsKeysInOrderAndNineDigits) {
  EXPECT_EQ(to_json(sample()),
            R"({"step":12,"loss":3.14159265,"grad_norm":0.5,"lr":0.0003,"tokens":123456789012,"step_s":1.25,"tokens_per_s":2048,)"
            R"("tokens_per_s_per_rank":1024,"mfu":0.4321,"exposed_comm_s":0.0625,"memory_measured_bytes":3221225472,)"
            R"("memory_predicted_bytes":3221225473})");
}

TEST(Metrics, NumbersThatArentFiniteAreNull) {
  StepMetrics metrics = sample();
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.grad_norm = -std::numeric_limits<double>::infinity();
  metrics.loss_scale = 1024;
  metrics.skipped = true;
  const auto json = nlohmann::json::parse(to_json(metrics));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["grad_norm"].is_null());
  EXPECT_EQ(json["loss_scale"], 1024);
  EXPECT_EQ(json["skipped"], true);
  EXPECT_EQ(validation_json(3, std::nan("")), R"({"event":"validation","step":3,"loss":null})");
}

TEST(Metrics, LossesOfFloatsSurviveTheirNineDigits) {
  // Nine significant digits tell any two floats apart.
  for (float loss = 0.1F; loss < 1e6F; loss = std::nextafter(loss * 1.37F, 1e9F)) {
    StepMetrics metrics = sample();
    metrics.loss = loss;
    EXPECT_EQ(nlohmann::json::parse(to_json(metrics))["loss"].get<float>(), loss);
  }
}

TEST(Metrics, EventLines) {
  EXPECT_EQ(validation_json(7, 2.5), R"({"event":"validation","step":7,"loss":2.5})");
  EXPECT_EQ(final_json("done", "ab12", "/out/step-000007"), R"({"event":"done","weights_sha256":"ab12","checkpoint":"/out/step-000007"})");
  EXPECT_EQ(final_json("failed", "", "a\"\xff"), "{\"event\":\"failed\",\"weights_sha256\":null,\"checkpoint\":\"a\\\"\xef\xbf\xbd\"}");
}

TEST(Events, ChecksumIsCrc32C) {
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283U);  // the check value of CRC-32C
  const std::string zeros(32, '\0'), ones(32, '\xff');
  EXPECT_EQ(crc32c(zeros.data(), 32), 0x8a9136aaU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(ones.data(), 32), 0x62a8ab43U);
}

TEST(Events, TwoWritersInOneSecondDontShareAFile) {
  const TemporaryFolder folder;
  const EventWriter first(folder / "tb"), second(folder / "tb");
  EXPECT_NE(first.file(), second.file());
}

TEST(Events, AFolderThatCantBeWrittenIsNamed) {
  const TemporaryFolder folder;
  write_text(folder / "file", "");
  EXPECT_NE(message_of([&] { EventWriter writer(folder / "file/tb"); }).find("file/tb"), std::string::npos);
}

TEST(Events, AFullDiskIsAnError) {
  const TemporaryFolder folder;
  EventWriter writer(folder / "tb");
  for (int i = 0; i < 20; ++i) writer.scalar("loss", i, 1);
  // A limit on the size of files stands for a full disk: writes fall short with EFBIG instead of ENOSPC.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{64, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of([&] { writer.flush(); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find(writer.file().filename().string()), std::string::npos) << message;
}

TEST(Events, TensorBoardReadsWhatWasWritten) {
  const auto python = python_with("tensorboard");
  if (!python) GTEST_SKIP() << "no Python with tensorboard (.venv, or WIREWISE_PYTHON)";
  const TemporaryFolder folder;
  EventWriter writer(folder / "tb");
  writer.step(sample());
  writer.validation(12, 2.75);
  StepMetrics later = sample();
  later.step = 1 << 20;
  later.loss = 1.5;
  writer.step(later);
  writer.flush();
  write_text(folder / "read.py", R"(
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
print("JSON" + json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
)");
  const std::string out = run_python(*python, folder / "read.py", (folder / "tb").string());
  const auto start = out.find("JSON{");
  ASSERT_NE(start, std::string::npos) << out;
  const auto json = nlohmann::json::parse(out.substr(start + 4));
  EXPECT_EQ(json.size(), 8U) << json;
  const float loss = 3.14159265358979F;
  EXPECT_EQ(json["loss_metrics/global_avg_loss"], (nlohmann::json{{12, static_cast<double>(loss)}, {1 << 20, 1.5}}));
  EXPECT_EQ(json["grad_norm"][0], (nlohmann::json{12, 0.5}));
  EXPECT_EQ(json["lr"][0][1], static_cast<double>(3e-4F));
  EXPECT_EQ(json["throughput(tps)"][0][1], 1024);
  EXPECT_EQ(json["mfu(%)"][0][1], static_cast<double>(43.21F));
  EXPECT_EQ(json["time_metrics/end_to_end(s)"][0][1], 1.25);
  EXPECT_EQ(json["memory/max_active(GiB)"][0][1], 3);
  EXPECT_EQ(json["validation_metrics/loss"], (nlohmann::json{{12, 2.75}}));
}

}  // namespace
}  // namespace wirewise::testing
