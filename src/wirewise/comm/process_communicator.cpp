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

/// What a rank knows once all have shown their cards.
struct Introduced {
  std::shared_ptr<PrefixStore> store;
  int rank = 0;
  int size = 1;
  CommunicatorOptions options;
  comm::Cards cards;
  comm::HostMap hosts;
  std::shared_ptr<comm::MeetingWatch> watch;
  comm::FlightTicket flight;

  [[nodiscard]] const std::vector<int>& neighbours() const { return hosts.members(hosts.host_of(rank)); }

  /// Runs a step of the meeting; where it fails, other hosts hear of it.
  template <typename Step>
  auto tell(Step step) const -> decltype(step()) {
    try {
      return step();
    } catch (const Error& error) {
      if (hosts.count() == 1) throw;
      const Error cause = watch->first_cause(error);
      watch->leave(cause);
      throw cause;
    }
  }
};

void say_one_host(const Introduced& met) {
  if (met.rank != 0) return;
  if (log_enabled(LogLevel::kInfo)) {
    log_info(met.options.name + ": " + std::to_string(met.size) + " ranks on one host (" + printable(met.cards.own().host) +
             "), shared memory (memfd), no network; " + std::to_string(usable_cores()) + " cores.");
  }
  if (const char* const wishes = std::getenv("WIREWISE_ALGO"); wishes != nullptr && !comm::parse_algorithms(wishes).empty()) {
    log_warn(met.options.name + ": WIREWISE_ALGO says how to go between hosts, and all ranks are on one: it changes nothing.");
  }
}

std::unique_ptr<Communicator> on_one_host(Introduced met, comm::Link link) {
  say_one_host(met);
  link.job_ranks = std::move(met.flight.job_ranks);
  link.flight = std::move(met.flight.recorder);
  return std::make_unique<comm::LocalCommunicator>(std::move(link), met.options);
}

std::unique_ptr<Communicator> over_hosts(Introduced met, comm::Link link) {
  std::vector<comm::RankIdentity> identities;
  comm::Acquaintance known;
  for (int r = 0; r < met.size; ++r) {
    identities.push_back({met.cards.of(r).host, met.cards.of(r).pid, r});
    known.names.push_back(met.cards.who(r));
  }
  known.look_after = [&] { met.watch->look_after(); };
  met.watch->watch(link, met.cards, met.neighbours());
  link.inner = true;
  auto local = std::make_unique<comm::LocalCommunicator>(std::move(link), met.options);
  const std::shared_ptr<comm::Group> group = local->group();
  const comm::WhileOverseen overseen(group->overseen(), met.watch);
  const auto make_end = [](int) { return comm::make_host_end(); };
  std::unique_ptr<comm::WireEnd> end;  // until all have connected
  comm::Wires wires = met.tell([&] {
    end = make_end(met.size);
    const std::vector<std::string> ends = comm::exchange_texts(*met.store, met.cards, "wires", end->card(), known.look_after);
    comm::phase("connecting");
    return end->connect(met.rank, met.hosts, ends, met.cards.deadline, known);
  });
  met.watch->connected();
  // Others may still be connecting: they look into the store for why that fails.
  return met.tell([&] {
    return std::make_unique<comm::SpanningCommunicator>(met.hosts, met.rank, std::move(identities), std::move(local), std::move(wires), make_end,
                                                        std::move(met.flight), met.options, met.options.timeout, std::nullopt, met.watch);
  });
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
  comm::Cards cards = comm::exchange_cards(*prefixed, rank, std::move(own), options.timeout, options.name);
  comm::phase("introduced");
  comm::HostMap hosts = hosts_of(cards);
  std::vector<int> job_ranks = comm::job_ranks(flight.get(), rank, size, options);
  const auto watch = std::make_shared<comm::MeetingWatch>(prefixed, cards);
  Introduced met{prefixed, rank, size, std::move(options), std::move(cards), std::move(hosts), watch, {std::move(flight), std::move(job_ranks)}};
  comm::Link link = met.tell([&] { return comm::join_host(met.cards, met.neighbours(), std::move(listener)); });
  comm::phase("joined");
  return met.hosts.count() == 1 ? on_one_host(std::move(met), std::move(link)) : over_hosts(std::move(met), std::move(link));
}

}  // namespace wirewise
