// Limits of control groups, read from made-up trees of both versions.
#include "wirewise/base/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace wirewise {
namespace {

namespace fs = std::filesystem;

class CgroupTree : public testing::Test {
 protected:
  CgroupTree() : root_(fs::temp_directory_path() / ("wirewise_cgroup_" + std::to_string(getpid()))) {}
  ~CgroupTree() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  fs::path root_;
};

TEST_F(CgroupTree, TakesTheTightestLimitOnTheWayToTheRoot) {
  write("proc/self/cgroup", "0::/slice/job");
  write("sys/fs/cgroup/slice/cpu.max", "150000 100000");
  write("sys/fs/cgroup/slice/memory.max", "1073741824");
  write("sys/fs/cgroup/slice/job/cpu.max", "max 100000");
  write("sys/fs/cgroup/slice/job/memory.max", "2147483648");
  const auto limits = cgroup_limits(root_);
  EXPECT_EQ(limits.cpus, 1.5);
  EXPECT_EQ(limits.memory, kGiB);
}

TEST_F(CgroupTree, ReadsVersionOne) {
  write("proc/self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "536870912");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "200000");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000");
  const auto limits = cgroup_limits(root_);
  EXPECT_EQ(limits.cpus, 2.0);
  EXPECT_EQ(limits.memory, 512 * kMiB);
}

TEST_F(CgroupTree, NoLimitIsNone) {
  write("proc/self/cgroup", "0::/");
  write("sys/fs/cgroup/memory.max", "max");
  write("sys/fs/cgroup/memory.limit_in_bytes", "9223372036854771712");
  write("sys/fs/cgroup/cpu.cfs_quota_us", "-1");
  write("sys/fs/cgroup/cpu.cfs_period_us", "100000");
  const auto limits = cgroup_limits(root_);
  EXPECT_FALSE(limits.cpus);
  EXPECT_FALSE(limits.memory);
}

TEST(UsableCores, IsAtLeastOne) { EXPECT_GE(usable_cores(), 1); }

}  // namespace
}  // namespace wirewise
