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
#include "wirewise/comm/meeting_watch.h"
#include "wirewise/comm/mesh.h"
#include "wirewise/comm/phase.h"
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
  const auto prefixed = std::make_shared<PrefixStore>(options.name + "/", std::move(store));
  auto flight = comm::FlightRecorder::of_process();
  comm::Card own = comm::make_card(size);
  own.device = options.device;
  comm::UniqueFd listener = comm::listen_for_peers(own);
  const comm::Cards cards = comm::exchange_cards(*prefixed, rank, std::move(own), options.timeout, options.name);
  comm::phase("introduced");
  const comm::HostMap hosts = hosts_of(cards);
  std::vector<int> job_ranks = comm::job_ranks(flight.get(), rank, size, options);
  const std::vector<int>& members = hosts.members(hosts.host_of(rank));
  const auto watch = std::make_shared<comm::MeetingWatch>(prefixed, cards);
  // Runs a step of the meeting; where it fails, other hosts hear of it.
  const auto tell = [&](auto step) {
    try {
      return step();
    } catch (const Error& error) {
      if (hosts.count() == 1) throw;
      const Error cause = watch->first_cause(error);
      watch->leave(cause);
      throw cause;
    }
  };
  comm::Link link = tell([&] { return comm::join_host(cards, members, std::move(listener)); });
  comm::phase("joined");
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
  known.look_after = [&] { watch->look_after(); };
  watch->watch(link, cards, members);
  link.inner = true;
  auto local = std::make_unique<comm::LocalCommunicator>(std::move(link), options);
  const std::shared_ptr<comm::Group> group = local->group();
  const comm::WhileOverseen overseen(group->overseen(), watch);
  const auto make_end = [](int) { return comm::make_host_end(); };
  std::unique_ptr<comm::WireEnd> end;  // until all have connected
  comm::Wires wires = tell([&] {
    end = make_end(size);
    const std::vector<std::string> ends = comm::exchange_texts(*prefixed, cards, "wires", end->card(), known.look_after);
    comm::phase("connecting");
    return end->connect(rank, hosts, ends, cards.deadline, known);
  });
  watch->connected();
  // Others may still be connecting: they look into the store for why that fails.
  return tell([&] {
    return std::make_unique<comm::SpanningCommunicator>(hosts, rank, std::move(identities), std::move(local), std::move(wires), make_end,
                                                        comm::FlightTicket{std::move(flight), std::move(job_ranks)}, options, options.timeout, nullptr, watch);
  });
}

}  // namespace wirewise
