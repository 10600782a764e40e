// How two ranks prove themselves before a channel between them stands: each shows the cookie of whom it means. Private to the
// host_channels* files.
#pragma once

#include <string>

namespace wirewise::comm {

/// Magic, sender's rank, receiver's rank, the receiver's cookie.
[[nodiscard]] std::string greeting(int from, int to, const std::string& cookie);
/// The sender's rank when a whole greeting is one for `me`; -1 otherwise.
[[nodiscard]] int greeted_by(const std::string& text, int me, const std::string& cookie);
/// A cookie that nobody guesses.
[[nodiscard]] std::string new_cookie();

/// What moving a part of a greeting came to.
enum class Step { kWait, kDone, kClosed };
/// Reads on until `text` is a whole greeting. Never blocks.
[[nodiscard]] Step read_greeting(int socket, std::string& text);
/// Writes on until nothing is left of `rest`. Never blocks.
[[nodiscard]] Step write_rest(int socket, std::string& rest);

}  // namespace wirewise::comm
