// Readers against texts that no machine wrote: samples and the field's own files, cut, doubled, swapped and overwritten.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz.h"
#include "wirewise/base/error.h"
#include "wirewise/wiring/reading.h"
#include "wirewise/wiring/write.h"

namespace wirewise::testing {

inline std::string field_folder(const std::string& folder) { return std::string(WIREWISE_SOURCE_DIR "/../shared/field/") + folder; }

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The texts of the files of a folder of ../shared/field whose names hold `part`; none where it is absent.
inline std::vector<std::string> field_texts(const std::string& folder, std::string_view part) {
  std::vector<std::string> texts;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(field_folder(folder), error)) {
    if (entry.path().filename().string().find(part) != std::string::npos) texts.push_back(text_of(entry.path()));
  }
  std::sort(texts.begin(), texts.end());
  return texts;
}

inline std::string mutated(std::string text, const std::vector<std::string>& samples, std::mt19937_64& random) {
  static const std::vector<std::string> hostile{"[",          "]",    "]]]]", "[0-999999999]", "9223372036854775807", "-1",   "0x", "=",  "\"", "\n",  "\\\n", "\t", ",,,",  "#",   ":",
                                                "18446744073709551616", "\x1b[31m", "\xff\xfe", std::string(1, '\0'), "1e999", "nan", "N/A", "{{{{", "[[[[[[[[", "- - - - ", "&a ", "*a ", "::", "(", ")"};
  const auto below = [&](std::size_t most) { return most == 0 ? std::size_t{0} : static_cast<std::size_t>(random() % most); };
  for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
    const std::size_t at = below(text.size() + 1), length = std::min(text.size() - at, below(60));
    switch (below(8)) {
      case 0: text.resize(at); break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(below(text.size() + 1), text.substr(at, length)); break;
      case 3: text.insert(at, hostile[below(hostile.size())]); break;
      case 4: if (at < text.size()) text[at] = static_cast<char>(random()); break;
      case 5: {
        const std::string& other = samples[below(samples.size())];
        const std::size_t from = below(other.size() + 1);
        text.insert(at, other.substr(from, below(200)));
        break;
      }
      case 6: {  // a line once more
        const std::size_t begin = text.rfind('\n', at == 0 ? 0 : at - 1) + 1, end = text.find('\n', at);
        if (begin <= at && end != std::string::npos && end > begin) text.insert(begin, text.substr(begin, end + 1 - begin));
        break;
      }
      default: text.replace(at, length, hostile[below(hostile.size())]); break;
    }
  }
  return text;
}

/// Reads mutations of the samples: each gives a sound graph or bad input, and nothing else.
inline void fuzz_reader(const std::vector<std::string>& samples, const std::function<Reading(std::string_view)>& read, std::uint64_t rounds = 2000) {
  ASSERT_FALSE(samples.empty());
  std::uint64_t accepted = 0;
  for (FuzzRounds round(rounds); round.more();) {
    std::mt19937_64 random(round.round());
    const std::string text = mutated(samples[random() % samples.size()], samples, random);
    SCOPED_TRACE("seed " + std::to_string(round.round()));
    try {
      const Reading reading = read(text);
      const int devices = static_cast<int>(reading.wiring.devices.size());
      for (const Link& link : reading.wiring.links) ASSERT_TRUE(link.from >= 0 && link.from < devices && link.to >= 0 && link.to < devices && link.beta > 0);
      for (const Device& device : reading.wiring.devices) ASSERT_FALSE(device.name.empty());
      if (devices < 60) {
        (void)write_tree(reading.wiring);
        (void)write_json(reading);
      }
      ++accepted;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kBadInput) << error.what();
      ASSERT_FALSE(error.sentence().empty());
    }
  }
  EXPECT_GT(accepted, 0U) << "every mutation was refused";
}

}  // namespace wirewise::testing
