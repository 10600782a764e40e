// The choice of the interface between hosts, over made-up hosts: what a person says wins, what isn't fit is passed over, and what can't
// be is refused with the names that exist.
#include "wirewise/comm/network_interface.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "wirewise/base/error.h"

namespace wirewise::comm {
namespace {

using Environment = std::map<std::string, std::string>;

HostInterface make(const std::string& name, int index, std::vector<std::string> addresses, long speed = -1,
                   std::vector<std::string> rdma = {}) {
  return {name, index, true, name == "lo", speed, std::move(addresses), std::move(rdma)};
}

// A host as found in clusters: two Ethernets, a faster one with RDMA, containers' bridges, and one that is down.
std::vector<HostInterface> cluster_host() {
  auto down = make("eth9", 9, {"10.9.0.1"}, 400000);
  down.up = false;
  return {make("lo", 1, {"127.0.0.1", "::1"}),
          make("eth0", 2, {"10.0.0.1", "fd00::1", "fe80::1"}, 1000),
          make("eth1", 3, {"10.1.0.1"}, 25000),
          make("ens5f0", 4, {"10.2.0.1"}, 10000, {"mlx5_0:1"}),
          make("docker0", 5, {"172.17.0.1"}),
          make("veth1a2b", 6, {"fe80::2"}, 10000),
          make("usb0", 7, {"169.254.3.1", "fe80::3"}, 100000),
          make("bare0", 8, {}, 100000),
          down};
}

NetworkInterface choose(const Environment& environment, const std::vector<HostInterface>& interfaces = cluster_host(),
                        const std::string& to_master = {}) {
  InterfaceWishes wishes;
  wishes.environment = [&environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  };
  wishes.address_to_master = to_master;
  wishes.rdma_ports = {"mlx5_0:1", "mlx5_7:2"};
  return choose_interface(interfaces, wishes);
}

std::string refusal(const Environment& environment, const std::vector<HostInterface>& interfaces = cluster_host()) {
  try {
    return "chose " + choose(environment, interfaces).name;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.what();
  }
}

TEST(NetworkInterface, APersonsWordWins) {
  struct Case {
    Environment environment;
    std::string name;
    std::string address;
  };
  const std::vector<Case> cases = {
      {{{"WIREWISE_NET", "eth0"}}, "eth0", "10.0.0.1"},
      {{{"WIREWISE_NET", "nope,eth1,eth0"}}, "eth1", "10.1.0.1"},
      {{{"WIREWISE_NET", "lo"}}, "lo", "127.0.0.1"},
      {{{"WIREWISE_NET", "docker0"}}, "docker0", "172.17.0.1"},
      {{{"WIREWISE_NET", "usb0"}}, "usb0", "169.254.3.1"},
      {{{"WIREWISE_NET", "10.1.0.1"}}, "eth1", "10.1.0.1"},
      {{{"WIREWISE_NET", "fd00::1"}}, "eth0", "fd00::1"},
      {{{"WIREWISE_NET", "eth9,eth0"}}, "eth0", "10.0.0.1"},  // the first is down
      {{{"WIREWISE_NET", "eth0"}, {"NCCL_SOCKET_IFNAME", "eth1"}}, "eth0", "10.0.0.1"},
      {{{"NCCL_SOCKET_IFNAME", "eth1"}, {"GLOO_SOCKET_IFNAME", "eth0"}}, "eth1", "10.1.0.1"},
      {{{"NCCL_SOCKET_IFNAME", "eth"}}, "eth1", "10.1.0.1"},  // a prefix: the fastest of them
      {{{"NCCL_SOCKET_IFNAME", "ib,ens"}}, "ens5f0", "10.2.0.1"},
      {{{"NCCL_SOCKET_IFNAME", "=eth0"}}, "eth0", "10.0.0.1"},
      {{{"NCCL_SOCKET_IFNAME", "^ens,eth1"}}, "eth0", "10.0.0.1"},
      {{{"NCCL_SOCKET_IFNAME", "^=ens5f0"}}, "eth1", "10.1.0.1"},
      {{{"NCCL_SOCKET_IFNAME", "^=ens"}}, "ens5f0", "10.2.0.1"},  // exact: excludes nothing
      {{{"GLOO_SOCKET_IFNAME", "eth0,eth1"}}, "eth0", "10.0.0.1"},
  };
  for (const Case& c : cases) {
    const NetworkInterface chosen = choose(c.environment);
    const std::string shown = c.environment.begin()->first + "=" + c.environment.begin()->second;
    EXPECT_EQ(chosen.name, c.name) << shown;
    EXPECT_EQ(chosen.address, c.address) << shown;
    EXPECT_FALSE(chosen.reason.empty()) << shown;
  }
}

TEST(NetworkInterface, ByItselfItPrefersMasterThenRdmaThenSpeedThenOrder) {
  EXPECT_EQ(choose({}, cluster_host(), "10.0.0.1").name, "eth0");
  EXPECT_NE(choose({}, cluster_host(), "10.0.0.1").reason.find("MASTER_ADDR"), std::string::npos);
  EXPECT_EQ(choose({}, cluster_host(), "fd00::1").address, "fd00::1");  // the family that leads there
  EXPECT_EQ(choose({}).name, "ens5f0");
  EXPECT_EQ(choose({}).rdma, std::vector<std::string>{"mlx5_0:1"});
  auto without_rdma = cluster_host();
  without_rdma[3].rdma.clear();
  EXPECT_EQ(choose({}, without_rdma).name, "eth1");
  for (auto& interface : without_rdma) interface.speed = -1;
  EXPECT_EQ(choose({}, without_rdma).name, "eth0");
}

TEST(NetworkInterface, AVirtualOneIsTakenWhenItIsAllThereIs) {
  const auto chosen = choose({}, {make("lo", 1, {"127.0.0.1"}), make("veth0", 2, {"10.7.0.1"})});
  EXPECT_EQ(chosen.name, "veth0");
  EXPECT_NE(chosen.reason.find("virtual"), std::string::npos) << chosen.reason;
}

TEST(NetworkInterface, NeverLoopbackOrLinkLocalByItself) {
  const std::string text = refusal({}, {make("lo", 1, {"127.0.0.1"}), make("eth0", 2, {"169.254.1.1", "fe80::1"})});
  EXPECT_NE(text.find("WIREWISE_NET"), std::string::npos) << text;
  EXPECT_NE(text.find("eth0"), std::string::npos) << text;
}

TEST(NetworkInterface, AnRdmaPortIsTakenAlone) {
  const auto named = choose({{"WIREWISE_NET", "mlx5_0:1"}});
  EXPECT_EQ(named.name, "ens5f0");
  EXPECT_EQ(named.rdma, std::vector<std::string>{"mlx5_0:1"});
  EXPECT_TRUE(named.rdma_only);
  EXPECT_EQ(choose({{"WIREWISE_NET", "mlx5_0"}}).rdma, std::vector<std::string>{"mlx5_0:1"});
  // A port without an interface carries the data; connections go over the interface that is chosen otherwise.
  const auto alone = choose({{"WIREWISE_NET", "mlx5_7:2"}}, cluster_host(), "10.0.0.1");
  EXPECT_EQ(alone.rdma, std::vector<std::string>{"mlx5_7:2"});
  EXPECT_EQ(alone.name, "eth0");
}

TEST(NetworkInterface, WhatDoesNotExistIsRefusedWithTheNearest) {
  const std::string text = refusal({{"WIREWISE_NET", "ens5f1"}});
  EXPECT_NE(text.find("Did you mean ens5f0?"), std::string::npos) << text;
  for (const char* const name : {"lo", "eth0", "eth1", "docker0", "mlx5_7:2", "eth9 (down)"})
    EXPECT_NE(text.find(name), std::string::npos) << text;
  EXPECT_NE(refusal({{"NCCL_SOCKET_IFNAME", "=eth"}}).find("NCCL_SOCKET_IFNAME"), std::string::npos);
  EXPECT_NE(refusal({{"GLOO_SOCKET_IFNAME", "eth2"}}).find("GLOO_SOCKET_IFNAME"), std::string::npos);
  EXPECT_NE(refusal({{"WIREWISE_NET", "eth9"}}).find("is down"), std::string::npos);
  EXPECT_NE(refusal({{"WIREWISE_NET", "bare0"}}).find("has no address"), std::string::npos);
  EXPECT_NE(refusal({{"WIREWISE_NET", "veth1a2b"}}).find("no address that other hosts can use"), std::string::npos);
  EXPECT_EQ(refusal({{"WIREWISE_NET", "e\x1b[2Jth"}}).find('\x1b'), std::string::npos);
}

TEST(NetworkInterface, ThisHostShowsItsLoopback) {
  bool found = false;
  for (const HostInterface& interface : host_interfaces())
    found = found || (interface.name == "lo" && interface.loopback && interface.index > 0);
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace wirewise::comm
