// What communicators do alike where they don't say otherwise.
#include "wirewise/comm/communicator.h"

#include "wirewise/base/error.h"

namespace wirewise {

std::filesystem::path Communicator::dump_flight(const std::filesystem::path& /*folder*/) {
  throw bad_input("this communicator's calls are not recorded.", "Leave WIREWISE_FLIGHT_ENTRIES unset, or set it above 0.");
}

void* Communicator::allocate_group_shared(std::size_t /*bytes*/, int /*owner*/) {
  throw bad_input("allocate_group_shared: the ranks are not all on one host, so they can't share a buffer.", "Give each rank a buffer of its own.");
}

}  // namespace wirewise
