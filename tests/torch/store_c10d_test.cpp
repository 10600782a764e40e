// libtorch's stores behind wirewise::Store: values, waits, and which error a late key or a dead store becomes.
#include "wirewise/torch/store_c10d.h"

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "wirewise/base/error.h"

namespace wirewise {
namespace {

using std::chrono::milliseconds;

c10::intrusive_ptr<c10d::TCPStore> serve() {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

c10::intrusive_ptr<c10d::TCPStore> connect(const c10d::TCPStore& server) {
  c10d::TCPStoreOptions options;
  options.port = server.getPort();
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

ErrorKind kind_of(const std::function<void()>& call, std::string* what = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (what != nullptr) *what = error.what();
    return error.kind();
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::kFailed;
}

void check_contract(Store& store) {
  store.set("a", std::string("one\0two\n", 8));
  EXPECT_EQ(store.get("a", milliseconds(0)), std::string("one\0two\n", 8));
  store.set("a", "");
  EXPECT_EQ(store.get("a", milliseconds(1000)), "");
  EXPECT_EQ(store.add("n", 2), 2);
  EXPECT_EQ(store.add("n", -5), -3);
  for (const int timeout : {0, 30}) {
    std::string what;
    EXPECT_EQ(kind_of([&] { (void)store.get("absent/key", milliseconds(timeout)); }, &what), ErrorKind::kTimeout);
    EXPECT_NE(what.find("'absent/key'"), std::string::npos) << what;
  }
}

TEST(C10dStore, EveryKindOfStoreKeepsTheContract) {
  const auto path = std::filesystem::temp_directory_path() / ("wirewise_store_test_" + std::to_string(getpid()));
  C10dStore hash(c10::make_intrusive<c10d::HashStore>());
  check_contract(hash);
  C10dStore tcp(serve());
  check_contract(tcp);
  C10dStore prefixed(c10::make_intrusive<c10d::PrefixStore>("group/1", tcp.underlying()));
  check_contract(prefixed);
  {
    C10dStore file(c10::make_intrusive<c10d::FileStore>(path.string(), 1), "the run's store");
    EXPECT_EQ(file.where(), "the run's store at " + path.string());
    check_contract(file);
  }
  std::filesystem::remove(path);
}

// A get that waits must let another thread's set through, also where both share one connection.
TEST(C10dStore, AWaitingGetLetsOtherThreadsSet) {
  C10dStore store(serve());
  std::string got;
  std::thread waiter([&] { got = store.get("b", milliseconds(20000)); });
  std::thread second([&] { store.set("b", store.get("a", milliseconds(20000)) + "!"); });
  store.set("a", "value");
  waiter.join();
  second.join();
  EXPECT_EQ(got, "value!");
}

TEST(C10dStore, ADeadServerIsAStoreErrorForEveryCall) {
  auto server = serve();
  const std::string where = "the store at 127.0.0.1:" + std::to_string(server->getPort());
  C10dStore client(c10::make_intrusive<c10d::PrefixStore>("group/1", connect(*server)));
  EXPECT_EQ(client.where(), where);
  client.set("a", "1");
  server.reset();
  for (const auto& call :
       std::vector<std::function<void()>>{[&] { (void)client.get("b", milliseconds(20000)); }, [&] { (void)client.add("n", 1); },
                                          [&] { (void)client.get("a", milliseconds(0)); }}) {
    std::string what;
    EXPECT_EQ(kind_of(call, &what), ErrorKind::kStore);
    EXPECT_NE(what.find(where), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

}  // namespace
}  // namespace wirewise
