// Ranks as threads of one process: the same groups over the process's own arena. Nothing is mapped twice, so thread sanitizers see
// every access by its one address.
#include <unistd.h>

#include <memory>
#include <string>

#include "wirewise/base/error.h"
#include "wirewise/comm/local_communicator.h"

namespace wirewise {

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size, CommunicatorOptions options) {
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

}  // namespace wirewise
