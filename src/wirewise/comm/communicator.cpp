// What communicators do alike where they don't say otherwise.
#include "wirewise/comm/communicator.h"

#include "wirewise/base/error.h"

namespace wirewise {

std::filesystem::path Communicator::dump_flight(const std::filesystem::path& /*folder*/) {
  throw bad_input("this communicator's calls are not recorded.", "Leave WIREWISE_FLIGHT_ENTRIES unset, or set it above 0.");
}

}  // namespace wirewise
