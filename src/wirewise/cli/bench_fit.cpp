#include "wirewise/cli/bench_fit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/cli/bench_fit_messages.h"
#include "wirewise/cli/rank_binding.h"
#include "wirewise/cli/report.h"
#include "wirewise/comm/cards.h"
#include "wirewise/comm/network_interface.h"
#include "wirewise/comm/unique_fd.h"
#include "wirewise/wiring/discover.h"
#include "wirewise/wiring/link_pairs.h"
#include "wirewise/wiring/measured_file.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/write.h"

namespace wirewise::bench {
namespace {

namespace fs = std::filesystem;

constexpr double kUneven = 0.1;  // directions that differ by more are said to
constexpr const char* kSource = "wirewise bench --fit";

/// What a rank tells all others of its place; plain bytes.
struct Introduction {
  char host_id[192] = {}, host_name[72] = {}, sockets[48] = {}, port[48] = {};
  std::int32_t numa = -1, network = 0, kind = 0, rdma = 0;
};

void put(char* to, std::size_t room, std::string_view text) { std::memcpy(to, text.data(), std::min(text.size(), room - 1)); }

std::vector<int> own_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

/// Kind and class of what this rank's messages to other hosts leave by.
void describe_port(Introduction& own) {
  const comm::NetworkInterface chosen = comm::find_interface();
  double gbit = 0;
  for (const comm::HostInterface& interface : comm::host_interfaces()) {
    if (interface.name == chosen.name) gbit = static_cast<double>(interface.speed) / 1000;
  }
  LinkKind kind = LinkKind::kEthernet;
  for (const RdmaPort& port : read_rdma("/")) {
    if (std::find(chosen.rdma.begin(), chosen.rdma.end(), port.device + ":" + std::to_string(port.port)) == chosen.rdma.end()) continue;
    if (port.link_layer == "InfiniBand") kind = LinkKind::kInfiniband;
    if (port.gbit > 0) gbit = port.gbit;
  }
  own.network = 1;
  own.kind = static_cast<std::int32_t>(kind);
  own.rdma = chosen.rdma.empty() ? 0 : 1;
  put(own.port, sizeof own.port, port_class(kind, gbit, own.rdma != 0));
}

std::vector<RankSpot> introduce(Communicator& communicator) {
  Introduction own;
  put(own.host_id, sizeof own.host_id, comm::host_id());
  put(own.host_name, sizeof own.host_name, comm::host_name());
  const HostCpus cpus = host_cpus("/", own_cpus(), nullptr);
  if (cpus.nodes.size() == 1) own.numa = cpus.nodes.front().number;
  put(own.sockets, sizeof own.sockets, sockets_class(read_processors("/").model));
  if (!communicator.one_host()) describe_port(own);
  std::vector<Introduction> all(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather({&own, DType::kUInt8}, {all.data(), DType::kUInt8}, sizeof own).wait();
  std::vector<RankSpot> spots;
  std::map<std::string, int> hosts;
  for (const Introduction& one : all) {
    RankSpot spot;
    spot.host = hosts.try_emplace(one.host_id, static_cast<int>(hosts.size())).first->second;
    spot.host_name = one.host_name;
    spot.numa = one.numa;
    spot.sockets = one.sockets;
    spot.network = one.network != 0;
    spot.port = one.port;
    spot.port_kind = static_cast<LinkKind>(one.kind);
    spot.rdma = one.rdma != 0;
    spots.push_back(std::move(spot));
  }
  return spots;
}

/// The description that there is; none where there is no such file yet.
struct Description {
  std::string text;
  Wiring wiring;
};

std::optional<Description> read_description(const std::string& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) {
    const int error = errno;
    if (::lstat(file.c_str(), &status) == 0)
      throw bad_input("--fit " + printable(file) + " is a link that leads nowhere: " + std::strerror(error) + ".", "Name the file itself, or mend the link.");
    if (error != ENOENT) throw bad_input("--fit " + printable(file) + ": " + std::strerror(error) + ".", "Check the path and its permissions.");
    if (!file.ends_with(".toml"))
      throw bad_input("--fit " + printable(file) + " is no file, and a new description needs the name of one.",
                      "Name it so that it ends in .toml.");
    return std::nullopt;
  }
  // Replacing it needs the folder alone, but whoever made it read-only meant it, root's files too.
  if (S_ISREG(status.st_mode) && ((status.st_mode & 0222) == 0 || ::access(file.c_str(), W_OK) != 0))
    throw bad_input("--fit " + printable(file) + " is read-only.", "Make it writable (chmod u+w), or name another.");
  if (!S_ISREG(status.st_mode)) throw bad_input("--fit " + printable(file) + " is no plain file.", "Name one that can be written anew.");
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

/// What is measured takes the names that the description has for it; what it hasn't is left out, with a word why.
void name_as(const Wiring& known, std::vector<RankSpot>& spots, std::vector<std::string>& left_out) {
  const KnownClasses classes = known_classes(known);
  const bool several = std::any_of(spots.begin(), spots.end(), [&](const RankSpot& spot) { return spot.host != spots.front().host; });
  for (RankSpot& spot : spots) {
    spot.sockets = classes.cores && classes.sockets.size() == 1 ? classes.sockets.front() : "";
    std::string port = port_class_of(known, spot.host_name);
    if (port.empty() && classes.ports.size() == 1) port = classes.ports.front();
    if (port.empty() && several && classes.ports.size() > 1) {
      throw bad_input("host " + printable(spot.host_name) + " isn't in the description, whose hosts have several kinds of ports (" +
                          join(classes.ports, ", ") + ").",
                      "Name the hosts in it as they are called, or measure into a new file.");
    }
    spot.network = !port.empty();
    spot.port = std::move(port);
  }
  if (several && classes.ports.empty()) left_out.emplace_back("between hosts: the description has no network of a known class");
}

struct Measured {
  ClassPair pair;
  LinkFit fit;
  Seconds alpha_of_link = 0;
  double other_direction = 0;  // its bandwidth over the saved one's
  bool saved = true;
};

/// Both directions; a link is as fast as the slower of them.
Measured measure(Communicator& communicator, const ClassPair& pair, std::span<const Bytes> sizes) {
  const LinkFit there = fit_link(time_messages(communicator, pair.from, pair.to, sizes));
  const LinkFit back = fit_link(time_messages(communicator, pair.to, pair.from, sizes));
  const bool slower = back.beta < there.beta;
  return {pair, slower ? back : there, 0, slower ? there.beta / back.beta : back.beta / there.beta};
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

std::string between(const ClassPair& pair, const std::vector<RankSpot>& spots) {
  const RankSpot& a = spots[static_cast<std::size_t>(pair.from)];
  const RankSpot& b = spots[static_cast<std::size_t>(pair.to)];
  if (a.host == b.host) return fmt::format("ranks {} and {} on {}", pair.from, pair.to, a.host_name);
  return fmt::format("rank {} on {} and rank {} on {}", pair.from, a.host_name, pair.to, b.host_name);
}

[[noreturn]] void cannot_write(const fs::path& file, int error) {
  throw Error(ErrorKind::kFailed, printable(file.string()) + " can't be written: " + std::strerror(error) + ". It is as it was.",
              "Check the folder's permissions and room.");
}

/// The file that a name leads to, through links; the name itself where there is none yet.
fs::path file_of(const std::string& name) {
  std::error_code none;
  return fs::exists(name, none) ? fs::canonical(name) : fs::path(name);
}

/// Held while a description is read, changed and replaced, so that of two that keep figures at once neither loses the other's. The lock is on
/// the folder, since the file itself is replaced; where a file system has no locks it is done without.
comm::UniqueFd lock_folder_of(const std::string& name) {
  const fs::path file = file_of(name);
  comm::UniqueFd folder(::open(file.has_parent_path() ? file.parent_path().c_str() : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  while (folder.get() >= 0 && ::flock(folder.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  return folder;
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
    for (std::size_t at = 0; error == 0 && at < text.size();) {
      const ssize_t written = ::write(out.get(), text.data() + at, text.size() - at);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0)
        error = errno;
      else
        at += static_cast<std::size_t>(written);
    }
    if (error == 0 && ::fsync(out.get()) != 0) error = errno;
    if (error == 0 && ::rename(beside.c_str(), file.c_str()) != 0) error = errno;
    if (error != 0) {
      ::unlink(beside.c_str());
      cannot_write(file, error);
    }
  }
  const comm::UniqueFd folder(::open(file.has_parent_path() ? file.parent_path().c_str() : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) (void)::fsync(folder.get());
}

std::string new_description(const std::vector<RankSpot>& spots) {
  std::string text = write_cluster(wire_spots(spots));
  const std::size_t line = text.find('\n');
  return "# Written by " + std::string(kSource) + ": hosts and their ranks' cores. Add what else there is." + text.substr(line);
}

std::string sizes_text(const std::vector<Bytes>& sizes) { return format_bytes(sizes.front()) + " to " + format_bytes(sizes.back()); }

void print(const std::vector<Measured>& all, const std::vector<std::string>& left_out, const FitOptions& options, bool fresh) {
  if (options.json) {
    using Json = nlohmann::ordered_json;
    for (const Measured& one : all) {
      Json medians = Json::array();
      for (const Seconds time : one.fit.medians) medians.push_back(time * 1e6);
      std::cout << Json{{"class", one.pair.name},
                        {"from", one.pair.from},
                        {"to", one.pair.to},
                        {"alpha_us", one.alpha_of_link * 1e6},
                        {"message_alpha_us", one.fit.alpha * 1e6},
                        {"beta_GBps", one.fit.beta / 1e9},
                        {"residual", one.fit.residual},
                        {"other_direction", one.other_direction},
                        {"sizes", one.fit.sizes},
                        {"median_us", std::move(medians)},
                        {"left_out", one.fit.left_out},
                        {"saved", one.saved}}
                       .dump(-1, ' ', false, Json::error_handler_t::replace)
                << "\n";
    }
  } else {
    std::cout << fmt::format("{:<26}{:>12}{:>14}{:>12}{:>10}  {}\n", "class", "ranks", "alpha us", "GB/s", "off by", "sizes");
    for (const Measured& one : all) {
      std::string row =
          fmt::format("{:<26}{:>12}{:>14.4g}{:>12.4g}{:>8.2g} %  {}", one.pair.name, fmt::format("{}, {}", one.pair.from, one.pair.to),
                      one.fit.alpha * 1e6, one.fit.beta / 1e9, one.fit.residual * 100, sizes_text(one.fit.sizes));
      if (!one.fit.left_out.empty()) row += fmt::format(", {} of {} off the line", one.fit.left_out.size(), one.fit.sizes.size());
      std::cout << row << "\n";
    }
  }
  std::ostream& notes = options.json ? std::cerr : std::cout;
  for (const Measured& one : all) {
    if (one.other_direction > 1 + kUneven)
      notes << fmt::format("{}: the other direction gets {:.3g} times as much; the slower one is kept.\n", one.pair.name,
                           one.other_direction);
    if (!one.saved) notes << one.pair.name << ": not kept, the description has no such link.\n";
  }
  for (const std::string& line : left_out) notes << printable(line) << "\n";
  const bool any = std::any_of(all.begin(), all.end(), [](const Measured& one) { return one.saved; });
  notes << (!any ? "Nothing to keep: " + printable(options.file) + " is as it was.\n"
                 : printable(options.file) + (fresh ? " is written.\n" : " has these figures now; all else in it is as it was.\n"));
  std::cout << std::flush;
}

}  // namespace

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

int fit_links(Communicator& communicator, const FitOptions& options) {
  std::vector<RankSpot> spots = introduce(communicator);
  std::optional<Description> known;
  std::vector<std::string> left_out;
  std::vector<ClassPair> pairs;
  std::optional<Error> refusal;
  std::int64_t header[2] = {0, 0};  // exit code, pairs
  if (communicator.rank() == 0) {
    try {
      check_fit_file(options.file);
      known = read_description(options.file);
      if (known) name_as(known->wiring, spots, left_out);
      pairs = class_pairs(spots);
      if (pairs.empty()) throw bad_input("no two of these ranks are joined by a link that can be measured.", "Start 2 ranks or more.");
    } catch (const Error& error) {
      refusal = error;
      header[0] = exit_code(error.kind());
    }
    header[1] = static_cast<std::int64_t>(pairs.size());
  }
  communicator.broadcast({header, DType::kInt64}, 2, 0).wait();
  if (refusal) throw *refusal;
  if (header[0] != 0) return static_cast<int>(header[0]);
  std::vector<std::int64_t> ends;
  for (const ClassPair& pair : pairs) ends.insert(ends.end(), {pair.from, pair.to});
  ends.resize(static_cast<std::size_t>(header[1]) * 2);
  communicator.broadcast({ends.data(), DType::kInt64}, ends.size(), 0).wait();
  pairs.resize(static_cast<std::size_t>(header[1]));
  std::vector<Measured> all;
  std::optional<Seconds> memory_alpha;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    pairs[i].from = static_cast<int>(ends[2 * i]);
    pairs[i].to = static_cast<int>(ends[2 * i + 1]);
    all.push_back(measure(communicator, pairs[i], options.sizes));
    Measured& one = all.back();
    one.alpha_of_link = alpha_of_link(pairs[i], one.fit, memory_alpha);
    if (pairs[i].kind == LinkKind::kSharedMemory) memory_alpha = one.alpha_of_link;
  }
  communicator.barrier().wait();
  if (communicator.rank() != 0) return 0;
  const KnownClasses classes = known ? known_classes(known->wiring) : KnownClasses{};
  std::vector<MeasuredClass> kept;
  for (Measured& one : all) {
    const RankSpot& first = spots[static_cast<std::size_t>(one.pair.from)];
    if (one.pair.name.empty()) {
      one.pair.name = port_class_by_beta(first.port_kind, one.fit.beta, first.rdma);
      left_out.push_back(
          "The interfaces between hosts don't state their speed: the class is the slowest that can carry what was measured, " +
          one.pair.name + ".");
      for (RankSpot& spot : spots) {
        if (spot.network && spot.port.empty()) spot.port = one.pair.name;
      }
    }
    one.saved = !known || classes.cores || (one.pair.kind != LinkKind::kSharedMemory && one.pair.kind != LinkKind::kSockets);
    if (!one.saved) continue;
    kept.push_back(
        {one.pair.name, one.alpha_of_link, one.fit.beta, one.fit.residual, kSource, between(one.pair, spots), today(), one.fit.sizes});
  }
  if (!kept.empty()) {
    try {
      // Measuring took a while: what was changed in the file or came into being since then stays.
      const comm::UniqueFd lock = lock_folder_of(options.file);
      known = read_description(options.file);
      const std::string text = with_measured(known ? known->text : new_description(spots), options.file, kept);
      (void)read_cluster(text, options.file);  // what is written reads back
      write_file(options.file, text);
    } catch (const Error& error) {
      const std::string tables = measured_tables(kept);  // which a layout that isn't understood has as its remedy
      if (std::string_view(error.what()).find(tables) == std::string_view::npos) std::cerr << "What was measured, to be put in by hand:\n" << tables << std::flush;
      throw;
    }
  }
  print(all, left_out, options, !known);
  return 0;
}

}  // namespace wirewise::bench
