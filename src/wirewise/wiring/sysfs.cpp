#include "wirewise/wiring/sysfs.h"

#include <algorithm>
#include <fstream>

#include "wirewise/base/text.h"
#include "wirewise/wiring/text_lines.h"

namespace wirewise::sysfs {
namespace fs = std::filesystem;

std::string text_of(const fs::path& file, std::size_t most) {
  std::error_code none;
  if (fs::is_directory(file, none)) return {};
  std::ifstream in(file, std::ios::binary);
  std::string text(most, '\0');
  in.read(text.data(), static_cast<std::streamsize>(most));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  return text;
}

std::string line_of(const fs::path& file) {
  const std::string text = text_of(file, 4096);
  return std::string(trimmed(std::string_view(text).substr(0, text.find_first_of(std::string_view("\n\0", 2)))));
}

std::optional<long long> number_of(const fs::path& file) { return parse_integer(line_of(file)); }

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (fs::directory_iterator at(folder, none), end; !none && at != end; at.increment(none)) names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

bool exists(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

std::vector<std::string> real_parts(const fs::path& path) {
  std::error_code failed;
  const fs::path real = fs::canonical(path, failed);
  std::vector<std::string> parts;
  if (failed) return parts;
  for (const fs::path& part : real) parts.push_back(part.string());
  return parts;
}

bool is_pci_address(std::string_view name) noexcept {
  const auto hex = [&](std::size_t from, std::size_t count) {
    return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(from), name.begin() + static_cast<std::ptrdiff_t>(from + count),
                       [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  };
  const std::size_t domain = name.find(':');
  if (domain == std::string_view::npos || domain < 4 || domain > 8 || name.size() != domain + 8) return false;
  return hex(0, domain) && hex(domain + 1, 2) && name[domain + 3] == ':' && hex(domain + 4, 2) && name[domain + 6] == '.' && name[domain + 7] >= '0' &&
         name[domain + 7] <= '7';
}

std::string pci_of(const fs::path& path) {
  std::string last;
  for (const std::string& part : real_parts(path)) {
    if (is_pci_address(part)) last = part;
  }
  return last;
}

}  // namespace wirewise::sysfs
