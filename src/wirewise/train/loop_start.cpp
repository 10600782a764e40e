#include "wirewise/train/loop_start.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/train/checkpoint_files.h"
#include "wirewise/train/data.h"
#include "wirewise/train/loop.h"

namespace wirewise {
namespace {

/// config.toml of the run, beside first, so that a full disk leaves the one of the run that is resumed.
void write_config(const TrainConfig& config) {
  checkpoint::FileOperations files;
  const std::filesystem::path path = config.out / "config.toml", beside = config.out / ".config.toml.new";
  std::error_code absent;
  std::filesystem::remove(beside, absent);
  try {
    checkpoint::write_file(files, beside, to_toml(config));
    std::filesystem::rename(beside, path);
  } catch (...) {
    std::filesystem::remove(beside, absent);
    throw;
  }
}

/// Throws bad input unless `folder` is one that can be written, or can be made where it is missing.
void check_place(const std::filesystem::path& folder) {
  const auto refuse = [&](const std::filesystem::path& place, const std::string& reason) {
    return bad_input("output folder " + printable(folder.string()) + " can't be used: " + printable(place.string()) + " " + reason + ".",
                     "Give another --out.");
  };
  std::filesystem::path place = std::filesystem::absolute(folder);
  for (;; place = place.parent_path()) {
    std::error_code error;
    const auto type = std::filesystem::status(place, error).type();
    if (type == std::filesystem::file_type::directory) break;
    if (type == std::filesystem::file_type::none) throw refuse(place, "can't be looked at (" + error.message() + ")");
    if (type != std::filesystem::file_type::not_found) throw refuse(place, "is no folder");
    if (!place.has_relative_path()) break;
  }
  if (::access(place.c_str(), W_OK | X_OK) != 0) throw refuse(place, "can't be written (" + std::string(std::strerror(errno)) + ")");
}

/// Makes the run's folder; what no look beforehand shows (a full table of inodes, a folder of the kernel's) is said here.
void make_output_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw bad_input("output folder " + printable(folder.string()) + " can't be made: " + error.message() + ".", "Give another --out.");
}

}  // namespace

std::filesystem::path checkpoints_of(const TrainConfig& config) { return config.out / "checkpoints"; }

void check_same_run(const CheckpointReader& reader, const TrainConfig& config, const std::string& fingerprint) {
  const auto stored = [&](const char* key) {
    const auto found = reader.state().find(key);
    return found == reader.state().end() ? std::string() : found->second;
  };
  check_resume(stored("identity"), config);
  if (const std::string data = stored("data"); !data.empty() && data != fingerprint) {
    throw bad_input("the data differs from what checkpoint " + printable(reader.folder().string()) + " was trained on.",
                    "Give the same --data, or start in another --out.");
  }
}

void make_run_folder(const TrainConfig& config) {
  make_output_folder(config.out);
  write_config(config);
}

void check_start(const TrainConfig& config, bool restarted) {
  const DataSet data = open_data(config);
  if (config.data_format != DataFormat::kRandom && config.data_path != "random") check_tokens(*data.source, config.model.vocab);
  if (!config.validation_path.empty() && config.validation_path != "random") {
    check_tokens(*open_tokens(config.validation_path, config.data_format, config.model.vocab, config.seed), config.model.vocab);
  }
  if (config.out.empty()) {
    if (config.resume) throw bad_input("--resume needs the folder of the run.", "Give --out DIR.");
    return;
  }
  check_place(config.out);
  if (restarted) return;
  if (config.resume) {
    const auto newest = newest_checkpoint(checkpoints_of(config));
    if (!newest) {
      throw bad_input("no complete checkpoint under " + printable(checkpoints_of(config).string()) + " to resume from.",
                      "Leave --resume out and name a new --out, or check the path.");
    }
    check_same_run(CheckpointReader(*newest), config, data.fingerprint);
    return;
  }
  const bool exists = std::filesystem::exists(config.out) && !(std::filesystem::is_directory(config.out) && std::filesystem::is_empty(config.out));
  if (exists) throw bad_input("output folder " + printable(config.out.string()) + " exists.", "Give --resume to go on from its newest checkpoint, or another --out.");
}

}  // namespace wirewise
