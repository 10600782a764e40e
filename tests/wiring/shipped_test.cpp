// What is shipped has sources: every figure of interconnects, hosts and clusters says where it is from, or that it is taken for granted.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <string_view>

#include "wirewise/wiring/cluster_file.h"
#include "wirewise/wiring/embedded.h"
#include "wirewise/wiring/host_template.h"
#include "wirewise/wiring/link_classes.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/relation.h"
#include "wirewise/wiring/settings.h"
#include "wirewise/wiring/write.h"

namespace wirewise {
namespace {

bool has(std::string_view text, std::string_view word) { return text.find(word) != std::string_view::npos; }
bool has_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return has(text, word); });
}

/// An address, a repository with a file or an issue, or what was printed by a machine; or it says that it is not known from anywhere.
bool names_a_source(const std::string& line) {
  static const std::regex place(R"([a-z0-9-]+\.(com|co|org|net|cc|cloud|dev|ai|io)\b|[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+(#[0-9]+| [a-z]|/|\))|-topo\.xml|cli99/)");
  return std::regex_search(line, place) || has_any(line, {"taken", "a usual", "isn't published", "aren't published", "an example"});
}

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

std::vector<std::string> names_below(std::string_view folder) {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name.starts_with(folder)) names.emplace_back(file.name.substr(folder.size(), file.name.size() - folder.size() - std::string_view(".toml").size()));
  }
  return names;
}

TEST(Shipped, EveryInterconnectSaysWhereItsFiguresAreFrom) {
  for (const LinkClass& of : link_classes()) {
    SCOPED_TRACE(of.name);
    EXPECT_GT(of.spec, 0);
    EXPECT_GT(of.usable, 0);
    EXPECT_LE(of.usable, of.spec);
    const bool as_another = of.source.starts_with("as ");
    EXPECT_TRUE(as_another || names_a_source(of.source) || has(of.source, "line rate / 8") || has(of.source, "GT/s")) << of.source;
    EXPECT_TRUE(as_another || has_any(of.source, {"usable", "measured"}) || of.usable == of.spec) << of.source;
    if (of.latency > 0) {
      EXPECT_TRUE(as_another || has(of.source, "latency")) << of.source;
    } else {
      EXPECT_TRUE(has(of.source, "latency: no published figure found")) << of.source;  // never a figure out of memory
    }
  }
}

TEST(Shipped, EveryHostSaysWhereItsFiguresAreFrom) {
  const std::vector<std::string> names = names_below("hosts/");
  EXPECT_GE(names.size(), 28U);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const HostTemplate host = shipped_host(name);
    ASSERT_FALSE(host.sources.empty());
    for (const std::string& line : host.sources) EXPECT_TRUE(names_a_source(line)) << line;
    const std::string all = joined(host.sources);
    Settings settings(embedded("hosts/" + name + ".toml"), name);
    const std::string sockets = settings.text("sockets");
    if (!sockets.empty() && sockets != "NVLink-C2C") {
      EXPECT_TRUE(has_any(all, {"CPU", "EPYC", "Xeon", "Sapphire"})) << "who says that its sockets are joined by " << sockets << "?";
    }
    for (const Device& device : host.wiring.devices) {
      if (device.kind != DeviceKind::kGpu) continue;
      EXPECT_FALSE(device.model.empty()) << device.name;
      EXPECT_GT(device.memory, 0U) << device.name;
    }
  }
}

TEST(Shipped, EveryHostsMatrixReadsBackToTheSameMatrix) {
  for (const std::string& name : names_below("hosts/")) {
    SCOPED_TRACE(name);
    const std::string matrix = write_matrix(read_shipped(name).value().wiring);
    const Reading back = read_wiring(matrix, name + ".txt");
    EXPECT_EQ(back.format, Format::kNvidiaTopo);
    EXPECT_EQ(write_matrix(back.wiring), matrix);
    EXPECT_TRUE(back.notes.empty()) << back.notes.front().text;
  }
}

TEST(Shipped, EveryClusterSaysWhatItIs) {
  for (const std::string& name : names_below("clusters/")) {
    Settings settings(embedded("clusters/" + name + ".toml"), name);
    const auto sources = settings.texts("source");
    ASSERT_FALSE(sources.empty()) << name;
    for (const std::string& line : sources) EXPECT_TRUE(names_a_source(line)) << name << ": " << line;
  }
}

TEST(Shipped, TheLargeCloudsAndDgxAreThere) {
  const std::vector<std::string> names = names_below("hosts/");
  for (const char* name : {"dgx-1", "dgx-2", "dgx-a100", "dgx-h100", "aws-p4d", "aws-p4de", "aws-p5", "aws-p5en", "aws-p6-b200", "azure-ndv4", "azure-ndv5", "gcp-a2-highgpu-8g",
                           "gcp-a2-ultragpu-8g", "gcp-a3-highgpu-8g", "gcp-a3-megagpu-8g", "gcp-a3-ultragpu-8g", "gcp-a4-highgpu-8g"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
}

/// Bandwidth of all ports to the network, in Gbit/s as vendors count them.
double network_gbit(const HostTemplate& host) { return static_cast<double>(host.ports.size()) * link_class(host.port_class).rate_gbit; }

TEST(Shipped, NetworksAreAsWideAsVendorsSay) {
  const std::pair<const char*, double> published[] = {{"gcp-a2-highgpu-8g", 100}, {"gcp-a2-ultragpu-8g", 100}, {"gcp-a3-highgpu-8g", 800}, {"gcp-a3-megagpu-8g", 1600},
                                                      {"gcp-a3-ultragpu-8g", 3200}, {"gcp-a4-highgpu-8g", 3200}, {"aws-p4d", 400}, {"aws-p4de", 400}, {"aws-p5", 3200},
                                                      {"aws-p5en", 3200}, {"dgx-h100", 3200}, {"azure-ndv4", 1600}, {"azure-ndv5", 3200}};
  for (const auto& [name, gbit] : published) EXPECT_EQ(network_gbit(shipped_host(name)), gbit) << name;
}

TEST(Shipped, NicsLieWherePeopleSawThem) {
  const auto between = [](const Wiring& wiring, const std::string& gpu, const std::string& nic) {
    return Relations(wiring).between(find_device(wiring, gpu, 0), find_device(wiring, nic, 0)).pcie;
  };
  const Wiring dgx = shipped_host("dgx-h100").wiring;  // an nvidia-smi matrix: PXB to its own, NODE to those of its socket, SYS beyond
  EXPECT_EQ(between(dgx, "GPU0", "NIC0"), Connection::kPxb);
  EXPECT_EQ(between(dgx, "GPU0", "NIC3"), Connection::kNode);
  EXPECT_EQ(between(dgx, "GPU3", "NIC4"), Connection::kSys);
  EXPECT_EQ(between(dgx, "GPU7", "NIC7"), Connection::kPxb);
  const Wiring a3 = shipped_host("gcp-a3-highgpu-8g").wiring;  // a NIC on a bridge with two GPUs
  for (int gpu = 0; gpu < 8; ++gpu) {
    for (int nic = 0; nic < 4; ++nic) EXPECT_EQ(between(a3, "GPU" + std::to_string(gpu), "NIC" + std::to_string(nic)) == Connection::kPix, gpu / 2 == nic) << gpu << ", " << nic;
  }
}

}  // namespace
}  // namespace wirewise
