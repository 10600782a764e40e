// What launchers are told, tried on a real shell and YAML reader; names stay data.
#include "wirewise/plan/emit.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "wirewise/base/error.h"
#include "wirewise/wiring/link_classes.h"

namespace wirewise {
namespace {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "wirewise-emit-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path path;
};

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[256];
  while (std::fgets(buffer, sizeof buffer, pipe) != nullptr) text += buffer;
  pclose(pipe);
  return text;
}

/// Runs a script with a program of our own in front of the path.
std::string run_script(const std::string& script, const std::string& variables, const std::string& arguments) {
  const Folder folder;
  std::ofstream(folder.path / "script") << script;
  for (const char* name : {"torchrun", "srun", "taskset"}) {
    std::ofstream(folder.path / name) << "#!/bin/sh\necho \"" << name << ": $*\"\necho \"gpus $CUDA_VISIBLE_DEVICES nics $NCCL_IB_HCA net $WIREWISE_NET\"\n"
                                      << "if [ -n \"$SLURM_HOSTFILE\" ]; then cat \"$SLURM_HOSTFILE\"; fi\n";
    std::filesystem::permissions(folder.path / name, std::filesystem::perms::owner_all);
  }
  return output_of("cd '" + folder.path.string() + "' && PATH=\"$PWD:$PATH\" " + variables + " sh ./script " + arguments + " 2>&1");
}

std::vector<RankPlace> two_hosts(const std::string& first = "node1", const std::string& second = "node2") {
  std::vector<RankPlace> places;
  for (int r = 0; r < 4; ++r) {
    RankPlace place;
    place.rank = r;
    place.node = r / 2;
    place.host = place.node == 0 ? first : second;
    place.local_rank = r % 2;
    place.gpu = r % 2 == 0 ? 3 : 1;
    place.device = "GPU" + std::to_string(place.gpu);
    place.rdma_nics = {"mlx5_" + std::to_string(r % 2)};
    place.cpus = r % 2 == 0 ? "0-7" : "8-15";
    places.push_back(place);
  }
  return places;
}

template <typename F>
std::string refusal(F&& what) {
  try {
    (void)what();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.what();
  }
  return "accepted";
}

TEST(EmitTorchrun, EachHostStartsItsNumberWithItsGpusInOrder) {
  const std::string script = emit_torchrun(two_hosts());
  EXPECT_EQ(run_script(script, "WIREWISE_NODE=node2", "train.py --lr 1"),
            "torchrun: --nnodes=2 --nproc-per-node=2 --node-rank=1 --master-addr=node1 --master-port=29500 train.py --lr 1\n"
            "gpus 3,1 nics =mlx5_0,mlx5_1 net \n");
  EXPECT_NE(run_script(script, "WIREWISE_NODE=node3", "train.py").find("not in this placement"), std::string::npos);
}

TEST(EmitTorchrun, NamesStayData) {
  const std::string evil = "a'b \"c\" $(touch pwned) `touch pwned` ;*";
  const std::string script = emit_torchrun(two_hosts(evil, "node2"));
  const std::string printed = run_script(script, "WIREWISE_NODE=node2", "train.py; ls");
  EXPECT_NE(printed.find("--master-addr=" + evil + " "), std::string::npos) << printed;
  EXPECT_EQ(printed.find("pwned\n"), std::string::npos) << printed;
  EXPECT_NE(run_script(script, "WIREWISE_NODE=" + shell_word(evil), "x").find("--node-rank=0"), std::string::npos);
  EXPECT_NE(run_script(emit_torchrun(two_hosts("*", "node2")), "WIREWISE_NODE=node2", "x").find("--node-rank=1"), std::string::npos);  // no pattern
}

TEST(EmitTorchrun, RefusesRanksThatItWouldNumberOtherwise) {
  auto places = two_hosts();
  std::swap(places[1].node, places[2].node);
  std::swap(places[1].host, places[2].host);
  EXPECT_NE(refusal([&] { return emit_torchrun(places); }).find("without its neighbours"), std::string::npos);
  auto uneven = two_hosts();
  uneven.pop_back();
  EXPECT_NE(refusal([&] { return emit_torchrun(uneven); }).find("equally many"), std::string::npos);
}

TEST(EmitEnv, EachRankGetsItsGpuNicAndCpus) {
  const std::string script = emit_env(two_hosts());
  EXPECT_EQ(run_script(script, "RANK=2", "program"), "taskset: --cpu-list 0-7 program\ngpus 3 nics =mlx5_0 net \n");
  EXPECT_EQ(run_script(script, "RANK= SLURM_PROCID=3", "program"), "taskset: --cpu-list 8-15 program\ngpus 1 nics =mlx5_1 net \n");
  EXPECT_NE(run_script(script, "RANK=4", "program").find("not in this placement"), std::string::npos);
  auto places = two_hosts();
  places[0].cpus = "0'; touch pwned; '";
  EXPECT_NE(run_script(emit_env(places), "RANK=0", "program").find("0'; touch pwned; '"), std::string::npos);
  places[0].rdma_nics = {"NIC0"};  // a description's number, by which NCCL finds nothing
  places[0].interfaces = {"NIC12"};
  EXPECT_EQ(emit_env({places.begin(), places.begin() + 1}).find("NIC"), std::string::npos);
  places[0].interfaces = {"eth0"};
  EXPECT_NE(emit_env({places.begin(), places.begin() + 1}).find("NCCL_SOCKET_IFNAME='=eth0'"), std::string::npos);
  places[0].interfaces.clear();
  places[0].rdma_nics = {"a,b"};
  EXPECT_NE(refusal([&] { return emit_env(places); }).find("list of NICs"), std::string::npos);
}

TEST(EmitSlurm, GivesSrunItsHostFile) {
  const std::string printed = run_script(emit_slurm(two_hosts("node1", "END"), 1), "SLURM_HOSTFILE=", "hostname");
  EXPECT_NE(printed.find("srun: --distribution=arbitrary --kill-on-bad-exit=1 --nodes=2 --ntasks=4 --switches=1 hostname\n"), std::string::npos) << printed;
  EXPECT_NE(printed.find("\nnode1\nnode1\nEND\nEND\n"), std::string::npos) << printed;
  for (const char* evil : {"a b", "a,b", "n[1-2]", "$(x)", "a'b", "a\nb", "", "-n"}) {
    EXPECT_NE(refusal([&] { return emit_slurm_hostfile(two_hosts("node1", evil)); }).find("can't name the host"), std::string::npos) << evil;
  }
}

TEST(EmitRankfile, NamesHostAndCpusOfEachRank) {
  std::istringstream lines(emit_rankfile(two_hosts()));
  std::vector<std::string> ranks;
  for (std::string line; std::getline(lines, line);) {
    if (line.front() != '#') ranks.push_back(line);
  }
  EXPECT_EQ(ranks, (std::vector<std::string>{"rank 0=node1 slot=0-7", "rank 1=node1 slot=8-15", "rank 2=node2 slot=0-7", "rank 3=node2 slot=8-15"}));
  EXPECT_NE(refusal([&] { return emit_rankfile(two_hosts("a=b")); }).find("can't name"), std::string::npos);
  auto places = two_hosts();
  EXPECT_EQ(emit_rankfile(places).find("aren't known"), std::string::npos);
  for (RankPlace& place : places) {
    if (place.host == "node2") place.cpus.clear();
  }
  const std::string text = emit_rankfile(places);  // what is made up is called so
  EXPECT_NE(text.find("# The CPUs of node2 aren't known"), std::string::npos) << text;
  EXPECT_EQ(text.find("# The CPUs of node1"), std::string::npos) << text;
}

TEST(EmitJobset, IsYamlWithAPodAHost) {
  JobsetOptions options;
  options.leaf_of_node = {7, 7};
  options.image = "registry/\"image\": $(x) # no comment";
  const YAML::Node set = YAML::Load(emit_jobset(two_hosts(), options));
  EXPECT_EQ(set["apiVersion"].as<std::string>(), "jobset.x-k8s.io/v1alpha2");
  EXPECT_EQ(set["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].as<std::string>(), "default");
  const YAML::Node job = set["spec"]["replicatedJobs"][0]["template"]["spec"];
  EXPECT_EQ(job["parallelism"].as<int>(), 2);
  EXPECT_EQ(job["completionMode"].as<std::string>(), "Indexed");
  const YAML::Node annotations = job["template"]["metadata"]["annotations"];
  EXPECT_EQ(annotations["kueue.x-k8s.io/podset-required-topology"].as<std::string>(), "cloud.provider.com/topology-rack");
  const YAML::Node pod = job["template"]["spec"];
  const YAML::Node hosts = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"];
  EXPECT_EQ(hosts.as<std::vector<std::string>>(), (std::vector<std::string>{"node1", "node2"}));
  EXPECT_EQ(pod["containers"][0]["image"].as<std::string>(), options.image);
  EXPECT_EQ(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"].as<int>(), 2);
  for (const YAML::Node& variable : pod["containers"][0]["env"]) EXPECT_NE(variable["name"].as<std::string>(), "CUDA_VISIBLE_DEVICES");  // of GPUs 1 and 3 a pod knows nothing
}

TEST(EmitJobset, SlicesWhereLeavesHoldEquallyManyHosts) {
  std::vector<RankPlace> places;
  for (int r = 0; r < 4; ++r) {
    RankPlace place;
    place.rank = place.node = r;
    place.host = "node" + std::to_string(r);
    places.push_back(place);
  }
  JobsetOptions options;
  const auto annotations = [&](std::vector<int> leaf_of_node) {
    options.leaf_of_node = std::move(leaf_of_node);
    return YAML::Load(emit_jobset(places, options))["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"]["annotations"];
  };
  const YAML::Node even = annotations({1, 1, 2, 2});
  EXPECT_EQ(even["kueue.x-k8s.io/podset-slice-size"].as<std::string>(), "2");
  EXPECT_EQ(even["kueue.x-k8s.io/podset-slice-required-topology"].as<std::string>(), options.level);
  EXPECT_TRUE(even["kueue.x-k8s.io/podset-preferred-topology"].IsDefined());
  const YAML::Node mixed = annotations({1, 2, 1, 2});
  EXPECT_FALSE(mixed["kueue.x-k8s.io/podset-slice-size"].IsDefined());
  EXPECT_TRUE(mixed["kueue.x-k8s.io/podset-preferred-topology"].IsDefined());
  places[0].host = "a$(b)";
  EXPECT_NE(refusal([&] { return emit_jobset(places, options); }).find("can't name"), std::string::npos);
  places[0].host = std::string(64, 'a');
  EXPECT_NE(refusal([&] { return emit_jobset(places, options); }).find("63"), std::string::npos);
  options.name = "Capital";
  EXPECT_NE(refusal([&] { return emit_jobset(places, options); }).find("can't be named"), std::string::npos);
}

TEST(EmitJobset, RefusesNamesThatTheClusterWouldRefuse) {
  const auto said = [&](auto change) {
    JobsetOptions options;
    change(options);
    return refusal([&] { return emit_jobset(two_hosts(), options); });
  };
  for (const char* name : {"", "Capital", "1st", "-a", "a-", "a.b", "a b", "a$(b)", "a\"b"}) {
    EXPECT_NE(said([&](JobsetOptions& options) { options.name = name; }).find("can't be named"), std::string::npos) << name;
  }
  // Pods are called NAME-hosts-0-1-abcde: 16 characters more, of 63.
  EXPECT_EQ(said([](JobsetOptions& options) { options.name = std::string(47, 'a'); }), "accepted");
  EXPECT_NE(said([](JobsetOptions& options) { options.name = std::string(48, 'a'); }).find("at most 47"), std::string::npos);
  for (const char* queue : {"", "a b", "-a", "a/b", "q\"", "$(x)"}) {
    EXPECT_NE(said([&](JobsetOptions& options) { options.queue = queue; }).find("LocalQueue"), std::string::npos) << queue;
  }
  for (const char* level : {"", "a b", "/x", "Upper.com/rack", "a..b/rack", "rack/", "a/b/c", "x\ny", "-x.com/rack"}) {
    EXPECT_NE(said([&](JobsetOptions& options) { options.level = level; }).find("no node label"), std::string::npos) << level;
  }
  for (const char* level : {"rack", "topology.kubernetes.io/zone", "oci.oraclecloud.com/rdma.local_block_id"}) {
    EXPECT_EQ(said([&](JobsetOptions& options) { options.level = level; }), "accepted") << level;
  }
  JobsetOptions plain;
  plain.image = "train:1";
  for (const char* host : {"..", "node-", "_node", "a b", ""}) {
    EXPECT_NE(refusal([&] { return emit_jobset(two_hosts("node1", host), plain); }).find("can't name the host"), std::string::npos) << host;
  }
  EXPECT_NE(said([](JobsetOptions& options) { options.image.clear(); }).find("--image"), std::string::npos);
}

TEST(RankPlaces, ShareOutTheCpusOfTheirNodeAndNameTheNearestNic) {
  Wiring wiring;
  const auto add = [&](std::string name, DeviceKind kind, int numa) {
    Device device;
    device.name = std::move(name);
    device.kind = kind;
    device.host = 0;
    device.numa = numa;
    return add_device(wiring, device);
  };
  const int host = add("node", DeviceKind::kHost, -1);
  std::vector<int> gpus;
  for (int n = 0; n < 2; ++n) {
    const int node = add("numa" + std::to_string(n), DeviceKind::kNumaNode, n);
    wiring.devices.back().cpus = n == 0 ? "0-2,8-10" : "4-7";
    add_link(wiring, host, node, sockets_link("", Provenance::kAssumed));
    for (int g = 0; g < 2; ++g) {
      gpus.push_back(add("GPU" + std::to_string(2 * n + g), DeviceKind::kGpu, n));
      add_link(wiring, node, gpus.back(), pcie_link(4, 16, Provenance::kSpec));
    }
    add_link(wiring, node, add("mlx5_" + std::to_string(n), DeviceKind::kNic, n), pcie_link(4, 16, Provenance::kSpec));
  }
  const std::vector<int> device{gpus[3], gpus[0], gpus[1]};
  const std::vector<RankPlace> places = rank_places(wiring, device);
  EXPECT_EQ(places[0].cpus, "4-7");
  EXPECT_EQ(places[0].gpu, 3);
  EXPECT_EQ(places[0].rdma_nics, std::vector<std::string>{"mlx5_1"});
  EXPECT_EQ(places[1].cpus, "0,8");  // CPU 8 is the other thread of CPU 0's core
  EXPECT_EQ(places[2].cpus, "1,9");
  EXPECT_EQ(places[2].local_rank, 2);
  EXPECT_EQ(parse_cpu_list("0-2,5"), (std::vector<int>{0, 1, 2, 5}));
  EXPECT_TRUE(parse_cpu_list("0-x").empty());
  EXPECT_TRUE(parse_cpu_list("3-1").empty());
  EXPECT_TRUE(parse_cpu_list("0-99999999999").empty());
}

}  // namespace
}  // namespace wirewise
