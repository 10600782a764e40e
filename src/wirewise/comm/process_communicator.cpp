// make_communicator: ranks as processes of one host.
#include <memory>
#include <string>

#include "wirewise/base/error.h"
#include "wirewise/comm/local_communicator.h"
#include "wirewise/comm/mesh.h"

namespace wirewise {

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Store> store, int rank, int size, CommunicatorOptions options) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw bad_input("communicator: rank " + std::to_string(rank) + " of " + std::to_string(size) + " ranks.",
                    "Ranks count from 0 to size - 1.");
  }
  if (store == nullptr) throw bad_input("communicator: there is no store.", "Pass the store that the ranks meet in.");
  PrefixStore prefixed(options.name + "/", std::move(store));
  return std::make_unique<comm::LocalCommunicator>(comm::meet_processes(prefixed, rank, size, options.timeout, options.name), options);
}

}  // namespace wirewise
