// The store that is a folder: values of any bytes, additions of many processes, deadlines, privacy.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "comm/error_text.h"
#include "comm/ranks.h"
#include "wirewise/base/error.h"

namespace wirewise {
namespace {

using namespace wirewise::testing;
using namespace std::chrono_literals;

TEST(FileStore, KeepsValuesOfAnyBytesUnderAnyKey) {
  const TemporaryFolder folder;
  FileStore store(folder.path() / "s");
  const std::string value("a\0b\n\xff", 5);
  store.set("rank/0 ../x%", value);
  store.set("", "empty key");
  FileStore other(folder.path() / "s");
  EXPECT_EQ(other.get("rank/0 ../x%", 1ms), value);
  EXPECT_EQ(other.get("", 1ms), "empty key");
  store.set("", "");
  EXPECT_EQ(other.get("", 1ms), "");
}

TEST(FileStore, GetTimesOutNamingTheKey) {
  const TemporaryFolder folder;
  FileStore store(folder.path() / "s");
  const std::string text = kind_and_text([&] { static_cast<void>(store.get("absent", 5ms)); });
  EXPECT_TRUE(contains(text, kind(ErrorKind::kTimeout)) && contains(text, "'absent'")) << text;
}

TEST(FileStore, ItsEndIsNoticedByThoseWhoWait) {
  const TemporaryFolder folder;
  FileStore store(folder.path() / "s");
  store.set("present", "");
  std::filesystem::remove_all(folder.path() / "s");
  const auto start = std::chrono::steady_clock::now();
  const std::string text = kind_and_text([&] { static_cast<void>(store.get("absent", 300s)); });
  EXPECT_TRUE(contains(text, kind(ErrorKind::kStore)) && contains(text, (folder.path() / "s").string())) << text;
  EXPECT_LT(std::chrono::steady_clock::now() - start, 100s);
}

TEST(FileStore, AddIsAtomicAcrossProcesses) {
  const TemporaryFolder folder;
  expect_all_ok(run_ranks(4, [&](int) {
    FileStore store(folder.path() / "s");
    for (int i = 0; i < 200; ++i) store.add("n", 2);
    return std::string();
  }));
  FileStore store(folder.path() / "s");
  EXPECT_EQ(store.add("n", 0), 4 * 200 * 2);
}

TEST(FileStore, ItsFolderIsPrivate) {
  const TemporaryFolder folder;
  const FileStore store(folder.path() / "s");
  struct stat info {};
  ASSERT_EQ(::stat((folder.path() / "s").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
}

}  // namespace
}  // namespace wirewise
