// Two network namespaces joined by a virtual cable, standing for two hosts. Needs root and the ip command; gone with the object.
#pragma once

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "comm/wires.h"
#include "wirewise/comm/unique_fd.h"

namespace wirewise::testing {

class TwoHosts {
 public:
  TwoHosts() : tag_(std::to_string(::getpid() % 100000)) {
    while (::getuid() == 0 && spaces_ < 2 && run("ip netns add " + name(spaces_))) ++spaces_;
    made_ = spaces_ == 2 && run("ip link add " + interface(0) + " netns " + name(0) + " type veth peer name " + interface(1) + " netns " + name(1));
    for (int host = 0; made_ && host < 2; ++host) {  // which is allowed where the above is
      EXPECT_TRUE(run("ip -n " + name(host) + " addr add " + address(host) + "/24 dev " + interface(host)));
      EXPECT_TRUE(run("ip -n " + name(host) + " link set " + interface(host) + " up"));
    }
  }
  ~TwoHosts() {
    for (int host = 0; host < spaces_; ++host) run("ip netns del " + name(host));
  }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  /// False where namespaces can't be made.
  [[nodiscard]] bool made() const noexcept { return made_; }
  [[nodiscard]] std::string name(int host) const { return "ww-" + tag_ + (host == 0 ? "-a" : "-b"); }
  [[nodiscard]] std::string interface(int host) const { return "veth" + tag_ + (host == 0 ? "a" : "b"); }
  [[nodiscard]] static std::string address(int host) { return "10.213.7." + std::to_string(host + 1); }

  /// Moves the calling thread (of a forked process, before it starts others) into the host.
  void enter(int host) const {
    const comm::UniqueFd space(::open(("/var/run/netns/" + name(host)).c_str(), O_RDONLY | O_CLOEXEC));
    if (!space.valid() || ::setns(space.get(), CLONE_NEWNET) != 0) throw std::runtime_error("can't enter " + name(host));
    // /sys shows the interfaces of the namespace it was mounted in.
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("", "/", nullptr, MS_SLAVE | MS_REC, nullptr) != 0)
      throw std::runtime_error("can't unshare mounts");
    ::umount2("/sys", MNT_DETACH);
    if (::mount("sysfs", "/sys", "sysfs", 0, nullptr) != 0) throw std::runtime_error("can't mount /sys of " + name(host));
    if (!eventually([&] { return running(interface(host)); })) throw std::runtime_error(interface(host) + " doesn't come up");
  }

  /// Bytes sent by the host's interface so far; called inside.
  [[nodiscard]] std::uint64_t sent(int host) const {
    std::ifstream file("/proc/thread-self/net/dev");
    std::string line;
    while (std::getline(file, line)) {
      const std::size_t colon = line.find(interface(host) + ":");
      if (colon == std::string::npos) continue;
      std::istringstream fields(line.substr(line.find(':') + 1));
      std::uint64_t value = 0;
      for (int i = 0; i < 9; ++i) fields >> value;  // eight of receiving, then bytes sent
      return value;
    }
    throw std::runtime_error("no counter of " + interface(host));
  }

  /// Bytes that TCP has sent again in this namespace, at most: its segments times what an interface can carry in one. Called inside.
  [[nodiscard]] static std::uint64_t sent_again() {
    std::ifstream file("/proc/thread-self/net/snmp");
    std::string names;
    std::string values;
    while (std::getline(file, names) && std::getline(file, values)) {
      if (names.rfind("Tcp:", 0) != 0) continue;
      std::istringstream name_fields(names);
      std::istringstream value_fields(values);
      std::string name;
      std::string value;
      while (name_fields >> name && value_fields >> value) {
        if (name == "RetransSegs") return std::stoull(value) * kFrame;
      }
    }
    throw std::runtime_error("no counter of TCP's repeated segments");
  }

  static bool run(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

 private:
  static constexpr std::uint64_t kFrame = 1514;  // an MTU of 1500 and the Ethernet header

  static bool running(const std::string& interface) {
    const comm::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    std::strncpy(request.ifr_name, interface.c_str(), IFNAMSIZ - 1);
    return ::ioctl(socket.get(), SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_RUNNING) != 0;
  }

  std::string tag_;
  int spaces_ = 0;
  bool made_ = false;
};

}  // namespace wirewise::testing
