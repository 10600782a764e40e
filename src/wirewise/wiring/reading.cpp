// Which reader a text is for.
#include "wirewise/wiring/reading.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

#include "wirewise/base/nearest.h"
#include "wirewise/base/text.h"
#include "wirewise/wiring/cluster_file.h"
#include "wirewise/wiring/pasted.h"
#include "wirewise/wiring/several_hosts.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise {
namespace {

constexpr std::size_t kMostBytes = 64 << 20;
constexpr std::size_t kMostPasted = 4 << 20;  // what is larger nobody pasted

/// Outputs that people take for wiring: what they are, and what to give in their place.
struct Known {
  std::string_view sign, what, remedy;
};
constexpr Known kUnread[] = {
    {" NCCL INFO ", "this is a log of NCCL.", "Read it with wirewise doctor nccl."},
    {" NCCL WARN ", "this is a log of NCCL.", "Read it with wirewise doctor nccl."},
    {"ROCm System Management Interface", "this is rocm-smi's output, but not of the GPUs' topology.", "Give what rocm-smi --showtopo or amd-smi topology prints."},
    {"ROCM-SMI", "this is rocm-smi's output, but not of the GPUs' topology.", "Give what rocm-smi --showtopo or amd-smi topology prints."},
    {"AMD-SMI ", "this is amd-smi's output, but not of the GPUs' topology.", "Give what amd-smi topology prints."},
    {"==>  ", "this is a list of ports that isn't read (ibdev2netdev).", "Give what ibstat or ibv_devinfo -v prints."},
    {" ==> ", "this is a list of ports that isn't read (ibdev2netdev).", "Give what ibstat or ibv_devinfo -v prints."},
    {"NVIDIA-SMI has failed", "nvidia-smi found no driver that answers.", "Look at the driver there: lsmod | grep nvidia, dmesg."},
    {"NUMANode L#", "this is lstopo's text, which isn't read.", "Give what lstopo --of xml prints."},
    {"GPU Topology Information", "this is dcgmi's output, which isn't read.", "Give what nvidia-smi topo -m prints."},
    {"[P2P (Peer-to-Peer) GPU Bandwidth", "this is p2pBandwidthLatencyTest's output, which isn't read.", "Give what nvidia-smi topo -m prints."},
};

Reading read_as(Format format, std::string_view text, std::string_view file) {
  switch (format) {
    case Format::kNvidiaTopo: return read_nvidia_topo(text, file);
    case Format::kNcclXml: return read_nccl_xml(text, file);
    case Format::kJson: return read_json(text, file);
    case Format::kClusterToml: return read_cluster(text, file);
    case Format::kSlurmConf: return read_slurm_conf(text, file);
    case Format::kIbstat: return read_ibstat(text, file);
    case Format::kIbvDevinfo: return read_ibv_devinfo(text, file);
    case Format::kNodeList: return read_node_list(text, file);
    case Format::kSlurmNodes: return read_slurm_nodes(text, file);
    case Format::kSlurmYaml: return read_slurm_yaml(text, file);
    case Format::kIbnetdiscover: return read_ibnetdiscover(text, file);
    case Format::kNcclTests: return read_nccl_tests(text, file);
    case Format::kNvlinkStatus: return read_nvlink_status(text, file);
    case Format::kNvidiaReport: return read_nvidia_report(text, file);
    case Format::kNvidiaTable: return read_nvidia_table(text, file);
    case Format::kRocmTopo: return read_rocm_topo(text, file);
    case Format::kIblinkinfo: return read_iblinkinfo(text, file);
    case Format::kHwlocXml: return read_hwloc_xml(text, file);
    case Format::kNvidiaList: return read_nvidia_list(text, file);
    case Format::kNumactl: return read_numactl(text, file);
    case Format::kLscpu: return read_lscpu(text, file);
    case Format::kNvidiaQuery: return read_nvidia_query(text, file);
    default: break;
  }
  throw unreadable(file, 0, 0, "this format can't be read yet.");
}

/// Marks a reading as partial where a line stands for others ("...").
void note_gaps(std::string_view text, Reading& reading) {
  for (const TextLine& line : text_lines(text)) {
    if (!is_gap(line.text)) continue;
    const bool noted = std::any_of(reading.notes.begin(), reading.notes.end(), [&](const Note& note) { return note.line == line.number; });
    if (!noted) reading.notes.push_back({line.number, 0, "lines are left out here."});
    reading.partial = true;
  }
}

/// Whether a list of hosts has more than bare words, which any prose has.
bool clearly_hosts(std::string_view text) { return text.find_first_of("[=") != std::string_view::npos; }

/// Reads what one host or command printed: as it stands, or else without what it was passed on with.
Reading read_one(std::string_view text, std::string_view file) {
  std::optional<Format> format;
  try {
    format = recognise(text, file);
    Reading reading = read_as(*format, text, file);
    note_gaps(text, reading);
    return reading;
  } catch (const Error& as_it_is) {
    if (text.size() > kMostPasted) throw;
    const std::string bare = unpasted(text);
    if (bare == text) throw;
    try {
      format = recognise(bare, file);
    } catch (const Error&) {
      throw as_it_is;
    }
    if (*format == Format::kNodeList && !clearly_hosts(bare)) throw as_it_is;
    Reading reading = read_as(*format, bare, file);
    reading.notes.push_back({0, 0, "marks of quoting, commands and text round the output were left out."});
    note_gaps(bare, reading);
    return reading;
  }
}

std::string text_of(std::istream& in, const std::string& name) {
  std::string text;
  char block[65536];
  while (in.read(block, sizeof block) || in.gcount() > 0) {
    text.append(block, static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMostBytes) throw bad_input(name + " is larger than 64 MiB.", "Descriptions of machines are smaller: is it the right file?");
  }
  if (in.bad() || !in.eof()) throw bad_input(name + " can't be read.", "Check its permissions.");
  return text;
}

}  // namespace

Error unreadable(std::string_view file, int line, int column, const std::string& what, const std::string& remedy) {
  std::string place = printable(file);
  if (line > 0) place += ":" + std::to_string(line);
  if (line > 0 && column > 0) place += ":" + std::to_string(column);
  return bad_input(place + ": " + what, remedy);
}

Format recognise(std::string_view text, std::string_view file) {
  if (looks_like_nccl_xml(text)) return Format::kNcclXml;
  if (looks_like_json(text)) return Format::kJson;
  const std::vector<TextLine> lines = text_lines(text);
  if (looks_like_hwloc_xml(lines)) return Format::kHwlocXml;
  if (looks_like_rocm_topo(lines)) return Format::kRocmTopo;
  for (const TextLine& line : lines) {
    const auto words = words_of(line);
    if (!words.empty() && words.front().text == "GPU0") return Format::kNvidiaTopo;
  }
  if (looks_like_nvidia_report(lines)) return Format::kNvidiaReport;
  if (looks_like_cluster(text, file)) return Format::kClusterToml;
  if (looks_like_slurm_conf(lines)) return Format::kSlurmConf;
  if (looks_like_slurm_nodes(lines)) return Format::kSlurmNodes;
  if (looks_like_ibstat(lines)) return Format::kIbstat;
  if (looks_like_ibv_devinfo(lines)) return Format::kIbvDevinfo;
  if (looks_like_slurm_yaml(lines)) return Format::kSlurmYaml;
  if (looks_like_ibnetdiscover(lines)) return Format::kIbnetdiscover;
  if (looks_like_iblinkinfo(lines)) return Format::kIblinkinfo;
  if (looks_like_nccl_tests(lines)) return Format::kNcclTests;
  if (looks_like_nvlink_status(lines)) return Format::kNvlinkStatus;
  if (looks_like_nvidia_list(lines)) return Format::kNvidiaList;
  if (looks_like_nvidia_table(lines)) return Format::kNvidiaTable;
  if (looks_like_numactl(lines)) return Format::kNumactl;
  if (looks_like_lscpu(lines)) return Format::kLscpu;
  if (looks_like_nvidia_query(lines)) return Format::kNvidiaQuery;
  if (looks_like_node_list(lines)) return Format::kNodeList;  // almost any word is a host's name: last
  for (const TextLine& line : lines) {
    for (const Known& known : kUnread) {
      const std::size_t at = line.text.find(known.sign);
      if (at != std::string::npos) throw unreadable(file, line.number, line.column[at], std::string(known.what), std::string(known.remedy));
    }
  }
  if (text.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos) {
    throw unreadable(file, 0, 0, text.empty() ? "it is empty." : "there is nothing in it but blanks.", "See that the command which wrote it succeeded, and wrote to standard output.");
  }
  throw unreadable(file, 0, 0, "this is none of the formats that are known.", "wirewise topo --help lists them.");
}

Reading read_wiring(std::string_view given, std::string_view file) {
  const std::string text = utf8_of(given);
  if (auto several = read_several_hosts(text, file, read_one)) return *std::move(several);
  if (text.size() <= kMostPasted && text.find('>') != std::string::npos) {  // quoted in a mail
    std::string bare = unpasted(text);
    if (bare != text) {
      if (auto several = read_several_hosts(bare, file, read_one)) return *std::move(several);
    }
  }
  return read_one(text, file);
}

Reading read_wiring_file(const std::string& path) {
  if (path == "-") return read_wiring(text_of(std::cin, "standard input"), "standard input");
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (auto shipped = read_shipped(path)) return *std::move(shipped);
    std::vector<std::string> known;
    for (const ShippedMachine& machine : shipped_machines()) known.push_back(machine.name);
    const auto guess = nearest(path, known);
    throw bad_input("there is no file " + printable(path) + ", and no machine of that name.",
                    (guess ? "Did you mean " + *guess + "? " : "") + "Check the path; wirewise topo list names the machines.");
  }
  if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) throw bad_input(printable(path) + " is no plain file.");
  std::ifstream in(path, std::ios::binary);
  return read_wiring(text_of(in, printable(path)), path);
}

}  // namespace wirewise
