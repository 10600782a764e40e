// Reading the small files in which the kernel shows a machine. What is missing is an empty text or no number: never an error.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace wirewise::sysfs {

/// The first line without blanks at its ends, at most 4 KiB of it.
[[nodiscard]] std::string line_of(const std::filesystem::path& file);
/// At most `most` bytes.
[[nodiscard]] std::string text_of(const std::filesystem::path& file, std::size_t most = 65536);
[[nodiscard]] std::optional<long long> number_of(const std::filesystem::path& file);
/// The names in a folder, sorted.
[[nodiscard]] std::vector<std::string> names_in(const std::filesystem::path& folder);
[[nodiscard]] bool exists(const std::filesystem::path& path);
/// The parts of the real path, links followed; empty where it leads nowhere.
[[nodiscard]] std::vector<std::string> real_parts(const std::filesystem::path& path);
/// Whether a name has the form of a PCI address, "0000:3b:00.0".
[[nodiscard]] bool is_pci_address(std::string_view name) noexcept;
/// The PCI device that a real path runs through last; empty: none.
[[nodiscard]] std::string pci_of(const std::filesystem::path& path);

}  // namespace wirewise::sysfs
