// What UCX is told of interfaces and transports: never shared memory between hosts, and the user's own variables first.
#include "wirewise/comm/ucx_settings.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "wirewise/base/error.h"

namespace wirewise {
namespace {

TEST(UcxSettings, SharedMemoryIsExcludedWhateverTheUserSays) {
  EXPECT_EQ(comm::without_shared_memory(""), "^sm");
  EXPECT_EQ(comm::without_shared_memory("all"), "^sm");
  EXPECT_EQ(comm::without_shared_memory("^ud"), "^ud,sm");
  EXPECT_EQ(comm::without_shared_memory("tcp"), "tcp");
  EXPECT_EQ(comm::without_shared_memory("tcp,sm,self"), "tcp,self");
  EXPECT_EQ(comm::without_shared_memory("posix,sysv,rc_x,cma,\\knem,xpmem"), "rc_x");
  EXPECT_EQ(comm::without_shared_memory("sm,all"), "^sm");
  EXPECT_THROW((void)comm::without_shared_memory("sm,self"), Error);
}

TEST(UcxSettings, TheUsersVariablesWin) {
  const auto value = [](const std::vector<std::pair<std::string, std::string>>& settings, const std::string& name) {
    for (const auto& [key, text] : settings) {
      if (key == name) return text;
    }
    return std::string("unset");
  };
  const comm::NetworkInterface interface { "eth1", "10.0.0.1", "", {"mlx5_1:1"}, false };
  const auto none = comm::ucx_settings(interface, [](const char*) -> const char* { return nullptr; });
  EXPECT_EQ(value(none, "TLS"), "^sm");
  EXPECT_EQ(value(none, "NET_DEVICES"), "mlx5_1:1,eth1");
  comm::NetworkInterface rdma = interface;
  rdma.rdma_only = true;
  EXPECT_EQ(value(comm::ucx_settings(rdma, [](const char*) -> const char* { return nullptr; }), "NET_DEVICES"), "mlx5_1:1");
  const auto own = comm::ucx_settings(interface, [](const char* name) -> const char* {
    return std::string_view(name) == "UCX_NET_DEVICES" ? "eth7" : std::string_view(name) == "UCX_TLS" ? "sm,tcp" : nullptr;
  });
  EXPECT_EQ(value(own, "TLS"), "tcp");
  EXPECT_EQ(value(own, "NET_DEVICES"), "unset");
}

TEST(UcxSettings, SocketsTakeLongPiecesWhereNothingButTcpIsThere) {
  const auto value = [](const comm::NetworkInterface& interface, const std::string& name, const char* set) {
    for (const auto& [key, text] : comm::ucx_settings(interface, [&](const char* variable) { return "UCX_" + name == variable ? set : nullptr; })) {
      if (key == name) return text;
    }
    return std::string("unset");
  };
  const comm::NetworkInterface tcp{"eth1", "10.0.0.1", "", {}, false};
  const comm::NetworkInterface both{"eth1", "10.0.0.1", "", {"mlx5_1:1"}, false};
  for (const char* const name : {"TCP_TX_SEG_SIZE", "TCP_RX_SEG_SIZE"}) {
    EXPECT_EQ(value(tcp, name, nullptr), "128k");
    EXPECT_EQ(value(tcp, name, "8k"), "unset") << "UCX reads the user's own";
    // UCX complains of settings for a transport that it doesn't use.
    EXPECT_EQ(value(both, name, nullptr), "unset");
  }
}

}  // namespace
}  // namespace wirewise
