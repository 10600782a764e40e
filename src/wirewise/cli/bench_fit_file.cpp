#include "wirewise/cli/bench_fit_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/comm/unique_fd.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/write.h"

namespace wirewise::bench {
namespace {

namespace fs = std::filesystem;

/// Whether there is such a file. Throws bad input where it is none that can be replaced, and where a new one can't have that name.
bool is_there(const std::string& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) {
    const int error = errno;
    if (::lstat(file.c_str(), &status) == 0)
      throw bad_input("--fit " + printable(file) + " is a link that leads nowhere: " + std::strerror(error) + ".", "Name the file itself, or mend the link.");
    if (error != ENOENT) throw bad_input("--fit " + printable(file) + ": " + std::strerror(error) + ".", "Check the path and its permissions.");
    if (!file.ends_with(".toml"))
      throw bad_input("--fit " + printable(file) + " is no file, and a new description needs the name of one.",
                      "Name it so that it ends in .toml.");
    return false;
  }
  // Replacing it needs the folder alone, but whoever made it read-only meant it, root's files too.
  if (S_ISREG(status.st_mode) && ((status.st_mode & 0222) == 0 || ::access(file.c_str(), W_OK) != 0))
    throw bad_input("--fit " + printable(file) + " is read-only.", "Make it writable (chmod u+w), or name another.");
  if (!S_ISREG(status.st_mode)) throw bad_input("--fit " + printable(file) + " is no plain file.", "Name one that can be written anew.");
  return true;
}

[[noreturn]] void cannot_write(const fs::path& file, int error) {
  throw Error(ErrorKind::kFailed, printable(file.string()) + " can't be written: " + std::strerror(error) + ". It is as it was.",
              "Check the folder's permissions and room.");
}

/// The folder that a file lies in, opened.
comm::UniqueFd open_folder_of(const fs::path& file) {
  return comm::UniqueFd(::open(file.has_parent_path() ? file.parent_path().c_str() : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

/// The file that a name leads to, through links; the name itself where there is none yet.
fs::path file_of(const std::string& name) {
  std::error_code none;
  return fs::exists(name, none) ? fs::canonical(name) : fs::path(name);
}

/// Held while a description is read, changed and replaced, so that of two that keep figures at once neither loses the other's. The lock is on
/// the folder, since the file itself is replaced; where a file system has no locks it is done without.
comm::UniqueFd lock_folder_of(const std::string& name) {
  comm::UniqueFd folder = open_folder_of(file_of(name));
  while (folder.get() >= 0 && ::flock(folder.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  return folder;
}

/// 0, or what the system says against it.
int write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// Beside, synced, renamed: the file is whole at every moment. A link is followed; permissions stay, and the owner where that is allowed.
void write_file(const std::string& name, const std::string& text) {
  const fs::path file = file_of(name);
  struct stat before {};
  const bool old = ::stat(file.c_str(), &before) == 0;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  const mode_t mode = old ? before.st_mode & 07777 : 0666 & ~mask;
  const fs::path beside = file.string() + ".part" + std::to_string(::getpid());
  {
    const comm::UniqueFd out(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (out.get() < 0) cannot_write(file, errno);
    if (old && ::fchown(out.get(), before.st_uid, before.st_gid) != 0) (void)::fchown(out.get(), static_cast<uid_t>(-1), before.st_gid);
    int error = ::fchmod(out.get(), mode) == 0 ? 0 : errno;
    if (error == 0) error = write_all(out.get(), text);
    if (error == 0 && ::fsync(out.get()) != 0) error = errno;
    if (error == 0 && ::rename(beside.c_str(), file.c_str()) != 0) error = errno;
    if (error != 0) {
      ::unlink(beside.c_str());
      cannot_write(file, error);
    }
  }
  const comm::UniqueFd folder = open_folder_of(file);
  if (folder.get() >= 0) (void)::fsync(folder.get());
}

std::string new_description(const std::vector<RankSpot>& spots) {
  std::string text = write_cluster(wire_spots(spots));
  const std::size_t line = text.find('\n');
  return "# Written by " + std::string(kFitSource) + ": hosts and their ranks' cores. Add what else there is." + text.substr(line);
}

}  // namespace

std::optional<Description> read_description(const std::string& file) {
  if (!is_there(file)) return std::nullopt;
  Reading reading = read_wiring_file(file);
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) throw bad_input(printable(file) + " can't be read.", "Check its permissions.");
  if (const auto format = recognise(text.str(), file); format != Format::kClusterToml) {
    throw bad_input("--fit " + printable(file) + " is no description of a cluster but " + std::string(name_of(format)) + ".",
                    "Make one of it with wirewise topo --from " + printable(file) + " --to cluster.");
  }
  return Description{text.str(), std::move(reading.wiring)};
}

void check_fit_file(const std::string& file) {
  const auto known = read_description(file);
  const fs::path folder = fs::path(file).has_parent_path() ? fs::path(file).parent_path() : fs::path(".");
  std::error_code none;
  if (!fs::is_directory(folder, none))
    throw bad_input("--fit " + printable(file) + ": there is no folder " + printable(folder.string()) + ".", "Make it, or name another.");
  const fs::path written = known ? fs::canonical(file).parent_path() : folder;
  if (::access(written.c_str(), W_OK) != 0)
    throw bad_input("--fit " + printable(file) + ": " + printable(written.string()) + " can't be written to.",
                    "Name a file where you may write.");
  const MeasuredClass trial{
      .name = std::string(kSharedMemoryClass), .alpha = 1, .beta = 1, .residual = 0, .source = {}, .between = {}, .date = {}, .sizes = {}};
  if (!known) return;
  try {
    (void)with_measured(known->text, file, std::span(&trial, 1));
  } catch (const Error& error) {  // its remedy would be the figures of the trial
    throw bad_input(error.sentence(), "Lay its [[measured]] tables out with a line for each key, or measure into a new file.");
  }
}

bool keep_figures(const std::string& file, std::span<const MeasuredClass> figures, const std::vector<RankSpot>& spots) {
  try {
    // Measuring took a while: what was changed in the file or came into being since then stays.
    const comm::UniqueFd lock = lock_folder_of(file);
    const std::optional<Description> known = read_description(file);
    const std::string text = with_measured(known ? known->text : new_description(spots), file, figures);
    (void)read_cluster(text, file);  // what is written reads back
    write_file(file, text);
    return !known;
  } catch (const Error& error) {
    const std::string tables = measured_tables(figures);  // which a layout that isn't understood has as its remedy
    if (std::string_view(error.what()).find(tables) == std::string_view::npos) std::cerr << "What was measured, to be put in by hand:\n" << tables << std::flush;
    throw;
  }
}

}  // namespace wirewise::bench
