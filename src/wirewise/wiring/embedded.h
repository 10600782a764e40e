// Data files compiled into the program: figures of links, templates of hosts, described clusters.
#pragma once

#include <span>
#include <string_view>

namespace wirewise {

struct EmbeddedFile {
  std::string_view name;  // below data/: "links.toml"
  std::string_view text;
};
[[nodiscard]] std::span<const EmbeddedFile> embedded_files() noexcept;

/// Throws an Error of kind kFailed when there is no such file: a fault of the build.
[[nodiscard]] std::string_view embedded(std::string_view name);

}  // namespace wirewise
