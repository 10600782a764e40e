// The files of machines in the field that lie beside the repository, for tests; and asking of readings what a person sees in a file.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "wirewise/base/error.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/relation.h"

namespace wirewise::field {

/// ../shared/field/NAME.
inline std::string path(const std::string& name) {
  return std::string(WIREWISE_SOURCE_DIR) + "/../shared/field/" + name;
}

/// Whether the folder is there. Where it is, each file that a test names has to be in it.
inline bool present() { return std::filesystem::is_directory(path("")); }

inline std::optional<std::string> text(const std::string& name) {
  std::ifstream in(path(name), std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// What is read of a file there, which must be there.
inline Reading read(const std::string& name) { return read_wiring(text(name).value(), name); }

/// All files of a folder there, by name; empty where it isn't there.
inline std::vector<std::string> files(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path(folder), error)) names.push_back(folder + "/" + entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string relation(const Reading& reading, const std::string& a, const std::string& b) {
  const int first = find_device(reading.wiring, a), second = find_device(reading.wiring, b);
  if (first == -1 || second == -1) return "no such device";
  return name_of(Relations(reading.wiring).between(first, second));
}

inline const Device& device(const Reading& reading, const std::string& name) {
  static const Device none{"no such device"};
  const int index = find_device(reading.wiring, name);
  return index == -1 ? none : reading.wiring.devices[static_cast<std::size_t>(index)];
}

inline std::size_t count(const Reading& reading, DeviceKind kind) { return devices_of(reading.wiring, kind).size(); }

/// The value of a fact; "none" where there is none.
inline std::string fact(const Reading& reading, const std::string& subject, const std::string& name) {
  const auto found = std::find_if(reading.facts.begin(), reading.facts.end(), [&](const Fact& one) { return one.subject == subject && one.name == name; });
  return found == reading.facts.end() ? "none" : found->value;
}

inline bool noted(const Reading& reading, const std::string& words) {
  return std::any_of(reading.notes.begin(), reading.notes.end(), [&](const Note& note) { return note.text.find(words) != std::string::npos; });
}

/// Whether a note with these words says what to do.
inline bool remedied(const Reading& reading, const std::string& words) {
  return std::any_of(reading.notes.begin(), reading.notes.end(), [&](const Note& note) { return note.text.find(words) != std::string::npos && !note.remedy.empty(); });
}

/// The sentence with which a text is refused; empty when it is read.
inline std::string refusal(const std::string& text) {
  try {
    (void)read_wiring(text, "f");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.sentence();
    return std::string(error.sentence());
  }
  return {};
}

}  // namespace wirewise::field

/// Skips a test of the field's files where there are none.
#define WIREWISE_NEEDS_FIELD() \
  if (!wirewise::field::present()) GTEST_SKIP() << "../shared/field isn't there"

/// Declares `name` as the text of a file of the field, which must be in it.
#define WIREWISE_FIELD_TEXT(name, file)                                     \
  WIREWISE_NEEDS_FIELD();                                                   \
  const std::string name = wirewise::field::text(file).value_or("");        \
  ASSERT_NE(name, "") << "../shared/field/" << (file) << " isn't there"

/// The same of what is read of it.
#define WIREWISE_FIELD(name, file)         \
  WIREWISE_FIELD_TEXT(name##_text, file);  \
  const wirewise::Reading name = wirewise::read_wiring(name##_text, file)
