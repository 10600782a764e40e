// jobset.x-k8s.io/v1alpha2 and Kueue's Topology-Aware Scheduling (kueue.x-k8s.io/podset-…-topology on the pod template).
#include <algorithm>
#include <map>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/plan/emit.h"
#include "wirewise/plan/emit_variables.h"

namespace wirewise {
namespace {

constexpr std::size_t kLongestLabel = 63;

bool is_small(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter_or_digit(char c) { return is_small(c) || (c >= 'A' && c <= 'Z') || is_digit(c); }

/// What a label may be set to, but empty: such names reach the scheduler as labels.
bool is_label_value(std::string_view text) {
  if (text.empty() || text.size() > kLongestLabel || !is_letter_or_digit(text.front()) || !is_letter_or_digit(text.back())) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.'; });
}

/// "name" or "prefix/name", the prefix a DNS name.
bool is_label_key(std::string_view text) {
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return is_label_value(text);
  constexpr std::size_t kLongestPrefix = 253;
  const std::string prefix(text.substr(0, slash));
  if (prefix.empty() || prefix.size() > kLongestPrefix || !is_label_value(text.substr(slash + 1))) return false;
  for (const std::string& part : split(prefix, '.')) {
    const auto dns = [](char c) { return is_small(c) || is_digit(c) || c == '-'; };
    if (part.empty() || part.front() == '-' || part.back() == '-' || !std::all_of(part.begin(), part.end(), dns)) return false;
  }
  return true;
}

/// The names of its jobs and pods are made of a JobSet's own, and must be labels of DNS (RFC 1035) with all that is added: the controller
/// refuses others.
void require_jobset_name(const std::string& name, std::size_t pods) {
  const std::size_t added = ("-hosts-0-" + std::to_string(pods - 1) + "-abcde").size();
  const bool fits = !name.empty() && is_small(name.front()) && name.back() != '-' &&
                    std::all_of(name.begin(), name.end(), [](char c) { return is_small(c) || is_digit(c) || c == '-'; });
  if (!fits) throw bad_input("a JobSet can't be named " + printable(name) + ".", "Use small letters, digits and dashes, a letter first.");
  if (name.size() + added <= kLongestLabel) return;
  throw bad_input("the JobSet's name " + name + " is too long: the names of its pods would be longer than 63 characters.",
                  "Use at most " + std::to_string(kLongestLabel - added) + " characters.");
}

/// How many neighbouring hosts always lie under one leaf; 0: not known.
std::size_t hosts_of_slice(const std::vector<int>& leaf_of_node) {
  std::map<int, std::size_t> hosts;
  for (const int leaf : leaf_of_node) ++hosts[leaf];
  if (hosts.empty()) return 0;
  const std::size_t each = hosts.begin()->second;
  for (const auto& [leaf, count] : hosts) {
    if (count != each) return 0;
  }
  for (std::size_t i = 0; i < leaf_of_node.size(); ++i) {
    if (leaf_of_node[i] != leaf_of_node[i / each * each]) return 0;
  }
  return each;
}

std::string annotations(const JobsetOptions& options, std::size_t nodes) {
  const std::string level = json_string(options.level);
  const std::string indent(14, ' ');
  if (nodes == 1) return indent + "kueue.x-k8s.io/podset-required-topology: \"kubernetes.io/hostname\"\n";
  const std::size_t slice = hosts_of_slice(options.leaf_of_node);
  if (slice == nodes) return indent + "kueue.x-k8s.io/podset-required-topology: " + level + "\n";
  std::string text = indent + "kueue.x-k8s.io/podset-preferred-topology: " + level + "\n";
  if (slice > 1) {
    text += indent + "kueue.x-k8s.io/podset-slice-required-topology: " + level + "\n";
    text += indent + "kueue.x-k8s.io/podset-slice-size: \"" + std::to_string(slice) + "\"\n";
  }
  return text;
}

using Nodes = std::map<int, std::vector<const RankPlace*>>;

void check_options(const JobsetOptions& options, std::size_t nodes) {
  require_jobset_name(options.name, nodes);
  if (!is_label_value(options.queue)) {
    throw bad_input("a LocalQueue can't be named " + printable(options.queue) + ".", "Use at most 63 letters, digits, dots, dashes and underscores, letters or digits at both ends.");
  }
  if (!is_label_key(options.level)) {
    throw bad_input(printable(options.level) + " is no node label.", "Write it as Kubernetes does: cloud.provider.com/topology-rack.");
  }
  if (options.image.empty()) throw bad_input("the JobSet's containers have no image.", "Give --image.");
}

/// Every pod has `each` ranks, and pods number theirs host by host.
void check_host(int node, const std::vector<const RankPlace*>& ranks, std::size_t each) {
  const std::string& host = ranks.front()->host;
  require_plain_host(host, "a Kubernetes label");
  if (host.size() > kLongestLabel) throw bad_input("a Kubernetes label can't hold the host name " + host + ": it is longer than 63 characters.", "Shorten it.");
  if (!is_label_value(host)) throw bad_input("a Kubernetes label can't name the host " + host + ".", "It has to begin and end with a letter or a digit.");
  if (ranks.size() != each) throw bad_input("pods of a JobSet hold equally many ranks, but the hosts of this placement don't.", "Give --nodes.");
  for (std::size_t i = 0; i < each; ++i) {
    if (ranks[i]->rank == static_cast<int>(static_cast<std::size_t>(node) * each + i)) continue;
    throw bad_input("pods number their ranks host by host, but here " + printable(host) + " holds rank " + std::to_string(ranks[i]->rank) + " without its neighbours.",
                    "Put ranks in the order of the devices with --order linear, which costs what place prints for it.");
  }
}

/// One pod's variables hold for all: only what is the same on every host.
NamedValues common_variables(const Nodes& nodes) {
  NamedValues common = variables_of_host(nodes.begin()->second);
  for (const auto& [node, ranks] : nodes) {
    const NamedValues own = variables_of_host(ranks);
    std::erase_if(common, [&, &of = own](const auto& value) { return std::find(of.begin(), of.end(), value) == of.end(); });
  }
  // A pod sees the GPUs that it was given, numbered from 0.
  std::vector<int> numbers;
  for (const RankPlace* rank : nodes.begin()->second) numbers.push_back(rank->gpu);
  std::sort(numbers.begin(), numbers.end());
  const bool from_0 = numbers.front() == 0 && numbers.back() == static_cast<int>(numbers.size()) - 1;
  if (!from_0) std::erase_if(common, [](const auto& value) { return value.first.starts_with("CUDA_"); });
  return common;
}

/// All but the container's variables and resources; `hosts` are the values of its node selector.
std::string manifest(const JobsetOptions& options, std::size_t nodes, std::size_t each, const std::string& hosts) {
  const std::string count = std::to_string(nodes);
  return
      "apiVersion: jobset.x-k8s.io/v1alpha2\n"
      "kind: JobSet\n"
      "metadata:\n"
      "  name: " + json_string(options.name) + "\n"
      "  labels:\n"
      "    kueue.x-k8s.io/queue-name: " + json_string(options.queue) + "\n"
      "spec:\n"
      "  network:\n"
      "    enableDNSHostnames: true\n"
      "  replicatedJobs:\n"
      "  - name: \"hosts\"\n"
      "    replicas: 1\n"
      "    template:\n"
      "      spec:\n"
      "        parallelism: " + count + "\n"
      "        completions: " + count + "\n"
      "        completionMode: Indexed\n"
      "        backoffLimit: 0\n"
      "        template:\n"
      "          metadata:\n"
      "            annotations:\n" +
      annotations(options, nodes) +
      "          spec:\n"
      "            restartPolicy: Never\n"
      "            affinity:\n"
      "              nodeAffinity:\n"
      "                requiredDuringSchedulingIgnoredDuringExecution:\n"
      "                  nodeSelectorTerms:\n"
      "                  - matchExpressions:\n"
      "                    - key: kubernetes.io/hostname\n"
      "                      operator: In\n"
      "                      values:\n" +
      hosts +
      "            containers:\n"
      "            - name: \"ranks\"\n"
      "              image: " + json_string(options.image) + "\n"
      "              command: [\"torchrun\"]\n"
      "              args:\n"
      "              - \"--nnodes=" + count + "\"\n"
      "              - \"--nproc-per-node=" + std::to_string(each) + "\"\n"
      "              - \"--node-rank=$(JOB_COMPLETION_INDEX)\"\n"
      "              - " + json_string("--master-addr=" + options.name + "-hosts-0-0." + options.name) + "\n"
      "              - \"--master-port=29500\"\n"
      "              - \"train.py\"\n";
}

}  // namespace

std::string emit_jobset(std::span<const RankPlace> places, const JobsetOptions& options) {
  Nodes nodes;
  for (const RankPlace& place : places) nodes[place.node].push_back(&place);
  check_options(options, nodes.size());
  const std::size_t each = nodes.begin()->second.size();
  std::string hosts;
  for (const auto& [node, ranks] : nodes) {
    check_host(node, ranks, each);
    hosts += "                      - " + json_string(ranks.front()->host) + "\n";
  }
  std::string text = manifest(options, nodes.size(), each, hosts);
  const NamedValues common = common_variables(nodes);
  if (!common.empty()) text += "              env:\n";
  for (const auto& [name, value] : common) text += "              - name: " + name + "\n                value: " + json_string(value) + "\n";
  const bool gpus = places.front().gpu >= 0;
  if (gpus) text += "              resources:\n                limits:\n                  nvidia.com/gpu: " + std::to_string(each) + "\n";
  return text;
}

}  // namespace wirewise
