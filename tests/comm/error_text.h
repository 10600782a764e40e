// Errors as text that can leave the process of the rank that met them: the kind's number and the words.
#pragma once

#include <functional>
#include <string>

#include "wirewise/base/error.h"

namespace wirewise::testing {

[[nodiscard]] inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

[[nodiscard]] inline std::string kind_and_text(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.kind())) + " " + error.what();
  }
  return "no error";
}

/// What such a text begins with.
[[nodiscard]] inline std::string kind(ErrorKind kind) { return std::to_string(static_cast<int>(kind)) + " "; }

}  // namespace wirewise::testing
