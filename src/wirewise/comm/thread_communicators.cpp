// Ranks as threads of one process: the same groups over the process's own arena. Nothing is mapped twice, so thread sanitizers see
// every access by its one address.
#include <unistd.h>

#include <exception>
#include <memory>
#include <string>
#include <thread>

#include "wirewise/base/cgroup.h"
#include "wirewise/base/error.h"
#include "wirewise/comm/local_communicator.h"
#include "wirewise/comm/spanning_communicator.h"
#include "wirewise/comm/thread_wires.h"

namespace wirewise {
namespace {

std::vector<std::unique_ptr<Communicator>> make_group(int size, const CommunicatorOptions& options, bool own_core) {
  if (size < 1) throw bad_input("communicator: " + std::to_string(size) + " ranks.", "Ask for at least one.");
  const auto context = comm::ProcessContext::get(size);
  void* const memory = context->arena.allocate(comm::Control::bytes(size));
  comm::Control(static_cast<std::byte*>(memory), size).construct();
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  const auto ranks = static_cast<std::size_t>(size);

  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int r = 0; r < size; ++r) {
    comm::Link link;
    link.rank = r;
    link.size = size;
    link.context = context;
    link.own_core = own_core;
    link.bases.assign(ranks, context->arena.base());
    for (int i = 0; i < size; ++i) {
      link.identities.push_back({host, static_cast<long>(::getpid()), i});
      link.liveness_ranks.push_back(i);
      link.job_ranks.push_back(i);
    }
    if (const std::size_t entries = comm::FlightRecorder::entries_wanted(); entries > 0) {
      link.flight = std::make_shared<comm::FlightRecorder>(entries);
      link.flight->set_rank(r, size);
    }
    link.control = static_cast<std::uint64_t>(static_cast<std::byte*>(memory) - context->arena.base());
    communicators.push_back(std::make_unique<comm::LocalCommunicator>(std::move(link), options));
  }
  return communicators;
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size, CommunicatorOptions options) {
  return make_group(size, options, size <= usable_cores());
}

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(const std::vector<int>& host_of_rank, CommunicatorOptions options) {
  std::vector<std::string> ids;
  for (const int host : host_of_rank) ids.push_back(std::to_string(host));
  const comm::HostMap hosts(ids);
  if (hosts.count() < 2) return make_thread_communicators(static_cast<int>(ids.size()), options);
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  std::vector<comm::RankIdentity> identities;
  std::vector<std::unique_ptr<comm::LocalCommunicator>> locals(ids.size());
  std::vector<std::unique_ptr<comm::WireEnd>> ends;
  std::vector<std::string> cards;
  for (int r = 0; r < hosts.ranks(); ++r) {
    identities.push_back({std::string(name) + "-" + ids[static_cast<std::size_t>(r)], static_cast<long>(::getpid()), r});
    ends.push_back(comm::make_thread_end(hosts.ranks()));
    cards.push_back(ends.back()->card());
  }
  for (int h = 0; h < hosts.count(); ++h) {
    auto members = make_group(hosts.members_count(h), options, hosts.ranks() <= usable_cores());
    for (int p = 0; p < hosts.members_count(h); ++p) {
      auto& local = locals[static_cast<std::size_t>(hosts.members(h)[static_cast<std::size_t>(p)])];
      local.reset(static_cast<comm::LocalCommunicator*>(members[static_cast<std::size_t>(p)].release()));
      local->group()->serve(identities, hosts.members(h));
    }
  }
  const auto make_end = [](int ranks) { return comm::make_thread_end(ranks); };
  std::vector<std::unique_ptr<Communicator>> communicators(ids.size());
  std::vector<std::exception_ptr> errors(ids.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ids.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        comm::Wires wires = ends[r]->connect(static_cast<int>(r), hosts, cards, std::chrono::steady_clock::now() + options.timeout, {});
        communicators[r] = std::make_unique<comm::SpanningCommunicator>(hosts, static_cast<int>(r), identities, std::move(locals[r]),
                                                                        std::move(wires), make_end, comm::FlightTicket{}, options, options.timeout);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return communicators;
}

}  // namespace wirewise
