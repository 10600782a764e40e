// What a file from the field says about a machine: a graph where it describes one, facts where it states single things, and notes on what
// was odd, missing or left out. One reader a format, each in a file of its own; all are pure functions of the text.
//
// A text that can't be what it claims is refused with bad input "FILE:LINE:COLUMN: what is wrong"; one that is cut off or contradicts
// itself gives what it does say, with notes, and `partial` set. No text makes a reader crash, hang or take memory out of proportion.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/wiring/wiring.h"

namespace wirewise {

struct TextLine;

enum class Format : std::uint8_t {
  kNvidiaTopo,     // nvidia-smi topo -m, and -p2p
  kNcclXml,        // NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE, NCCL_GRAPH_DUMP_FILE
  kSlurmConf,      // topology.conf, and what scontrol show topology prints
  kSlurmYaml,      // topology.yaml
  kNodeList,       // Slurm's bracketed lists, and host files
  kSlurmNodes,     // NodeName=… of slurm.conf, slurmd -C, scontrol show node
  kIbstat,
  kIbvDevinfo,
  kIbnetdiscover,
  kIblinkinfo,
  kNvidiaQuery,    // nvidia-smi --query-gpu=… --format=csv
  kNvidiaList,     // nvidia-smi -L
  kNvlinkStatus,   // nvidia-smi nvlink --status
  kNvidiaReport,   // nvidia-smi -q, with -d and -x too
  kNvidiaTable,    // nvidia-smi without options
  kRocmTopo,       // rocm-smi --showtopo, amd-smi topology
  kNcclTests,
  kNumactl,        // numactl --hardware
  kLscpu,
  kHwlocXml,       // lstopo --of xml
  kClusterToml,    // our own description
  kJson,           // our own dump
  kThisMachine,    // discover.h; the last, as read_json() needs to know
};
[[nodiscard]] std::string_view name_of(Format format) noexcept;

struct Note {
  int line = 0;    // from 1; 0: the whole file
  int column = 0;  // from 1, in bytes; 0: the whole line
  std::string text;
  std::string remedy{};  // what to do where something is wrong with the machine; empty: the note is of the file
};

/// One thing that a file states and a graph has no place for: {"GPU0-GPU1", "p2p read", "OK"}.
struct Fact {
  std::string subject, name, value;
  int line = 0;
};

struct Reading {
  Format format = Format::kNvidiaTopo;
  Wiring wiring;
  std::vector<Fact> facts;
  std::vector<Note> notes;
  bool partial = false;  // the file was cut off, or left parts of the machine out
};

/// Bad input at a place of a file, as compilers print it.
[[nodiscard]] Error unreadable(std::string_view file, int line, int column, const std::string& what, const std::string& remedy = {});

/// Which format a text is in. Throws bad input naming `file` when it is none, with the formats there are.
[[nodiscard]] Format recognise(std::string_view text, std::string_view file);

/// Reads `text` in the format that it is in.
[[nodiscard]] Reading read_wiring(std::string_view text, std::string_view file);
/// The same of a file, "-" of standard input: throws bad input when it is missing, no plain file, or over 64 MiB.
[[nodiscard]] Reading read_wiring_file(const std::string& path);

[[nodiscard]] Reading read_nvidia_topo(std::string_view text, std::string_view file);

[[nodiscard]] bool looks_like_nccl_xml(std::string_view text);
[[nodiscard]] Reading read_nccl_xml(std::string_view text, std::string_view file);

[[nodiscard]] bool looks_like_json(std::string_view text);
/// What write_json() wrote; `pairs` are worked out of the links again. Unknown keys are refused.
[[nodiscard]] Reading read_json(std::string_view text, std::string_view file);

[[nodiscard]] bool looks_like_cluster(std::string_view text, std::string_view file);
[[nodiscard]] Reading read_cluster(std::string_view text, std::string_view file);
[[nodiscard]] Reading read_slurm_conf(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_slurm_conf(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_ibstat(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_ibstat(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_ibv_devinfo(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_ibv_devinfo(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_node_list(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_node_list(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_slurm_nodes(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_slurm_nodes(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_slurm_yaml(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_slurm_yaml(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_ibnetdiscover(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_ibnetdiscover(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_nccl_tests(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_nccl_tests(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_nvlink_status(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_nvlink_status(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_nvidia_report(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_nvidia_report(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_nvidia_table(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_nvidia_table(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_rocm_topo(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_rocm_topo(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_iblinkinfo(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_iblinkinfo(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_hwloc_xml(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_hwloc_xml(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_nvidia_list(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_nvidia_list(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_numactl(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_numactl(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_lscpu(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_lscpu(const std::vector<TextLine>& lines);
[[nodiscard]] Reading read_nvidia_query(std::string_view text, std::string_view file);
[[nodiscard]] bool looks_like_nvidia_query(const std::vector<TextLine>& lines);

}  // namespace wirewise
