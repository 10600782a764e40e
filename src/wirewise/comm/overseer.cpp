#include "wirewise/comm/overseer.h"

#include <utility>

namespace wirewise::comm {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{20};

}  // namespace

void Overseen::oversee(std::shared_ptr<Overseer> overseer) {
  const std::lock_guard lock(mutex_);
  any_ = overseer != nullptr;
  overseer_ = std::move(overseer);
}

std::optional<Error> Overseen::look() {
  if (!any_) return std::nullopt;
  std::shared_ptr<Overseer> overseer;
  {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now < next_look_) return std::nullopt;
    next_look_ = now + kBetweenLooks;
    overseer = overseer_;
  }
  if (!overseer) return std::nullopt;
  try {
    overseer->look_after();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

std::optional<Error> Overseen::judge(const Error& found) const {
  std::shared_ptr<Overseer> overseer;
  if (any_) {
    const std::lock_guard lock(mutex_);
    overseer = overseer_;
  }
  return overseer ? overseer->verdict(found) : found;
}

}  // namespace wirewise::comm
