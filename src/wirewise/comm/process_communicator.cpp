// make_communicator: ranks as processes, of one host or several.
#include <cstdlib>
#include <memory>
#include <string>

#include "wirewise/base/cgroup.h"
#include "wirewise/base/error.h"
#include "wirewise/base/log.h"
#include "wirewise/base/text.h"
#include "wirewise/comm/cards.h"
#include "wirewise/comm/choice.h"
#include "wirewise/comm/host_map.h"
#include "wirewise/comm/host_wires.h"
#include "wirewise/comm/local_communicator.h"
#include "wirewise/comm/mesh.h"
#include "wirewise/comm/spanning_communicator.h"

namespace wirewise {
namespace {

comm::HostMap hosts_of(const comm::Cards& cards) {
  std::vector<std::string> ids;
  for (const comm::Card& card : cards.all) ids.push_back(card.host_id);
  return comm::HostMap(ids);
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Store> store, int rank, int size, CommunicatorOptions options) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw bad_input("communicator: rank " + std::to_string(rank) + " of " + std::to_string(size) + " ranks.",
                    "Ranks count from 0 to size - 1.");
  }
  if (store == nullptr) throw bad_input("communicator: there is no store.", "Pass the store that the ranks meet in.");
  PrefixStore prefixed(options.name + "/", std::move(store));
  auto flight = comm::FlightRecorder::of_process();
  comm::Card own = comm::make_card(size);
  own.device = options.device;
  comm::UniqueFd listener = comm::listen_for_peers(own);
  const comm::Cards cards = comm::exchange_cards(prefixed, rank, std::move(own), options.timeout, options.name);
  const comm::HostMap hosts = hosts_of(cards);
  std::vector<int> job_ranks = comm::job_ranks(flight.get(), rank, size, options);
  comm::Link link = comm::join_host(cards, hosts.members(hosts.host_of(rank)), std::move(listener));
  if (hosts.count() == 1) {
    if (rank == 0 && log_enabled(LogLevel::kInfo)) {
      log_info(options.name + ": " + std::to_string(size) + " ranks on one host (" + printable(cards.own().host) +
               "), shared memory (memfd), no network; " + std::to_string(usable_cores()) + " cores.");
    }
    if (const char* const wishes = std::getenv("WIREWISE_ALGO"); wishes != nullptr && !comm::parse_algorithms(wishes).empty() && rank == 0) {
      log_warn(options.name + ": WIREWISE_ALGO says how to go between hosts, and all ranks are on one: it changes nothing.");
    }
    link.job_ranks = std::move(job_ranks);
    link.flight = std::move(flight);
    return std::make_unique<comm::LocalCommunicator>(std::move(link), options);
  }
  std::vector<comm::RankIdentity> identities;
  comm::Acquaintance known;
  for (int r = 0; r < size; ++r) {
    identities.push_back({cards.of(r).host, cards.of(r).pid, r});
    known.names.push_back(cards.who(r));
  }
  link.inner = true;
  auto local = std::make_unique<comm::LocalCommunicator>(std::move(link), options);
  const auto make_end = [](int) { return comm::make_host_end(); };
  const auto end = make_end(size);
  const std::vector<std::string> wires = comm::exchange_texts(prefixed, cards, "wires", end->card());
  return std::make_unique<comm::SpanningCommunicator>(hosts, rank, std::move(identities), std::move(local),
                                                      end->connect(rank, hosts, wires, cards.deadline, known), make_end,
                                                      comm::FlightTicket{std::move(flight), std::move(job_ranks)}, options, options.timeout);
}

}  // namespace wirewise
