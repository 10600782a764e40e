// Readers against texts that no machine wrote: mutations of samples and of the field's own files, a round a seed. A reader must refuse a text with
// bad input or read it, in time and memory that the text is worth; what it reads must be a sound graph.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fuzz.h"
#include "wirewise/base/error.h"
#include "wirewise/base/sanitizers.h"
#include "wirewise/wiring/path.h"
#include "wirewise/wiring/write.h"
#include "wiring/field.h"

namespace wirewise::fuzz {

/// What means something to many formats, or to none.
inline const std::vector<std::string>& usual_words() {
  static const std::vector<std::string> words{"[", "]", "]]]]", "[0-999999999]", "9223372036854775807", "18446744073709551616", "-1", "0x", "=", "\"", "\n", "\\\n", "\t", ",,,", "#", ":", "::", "(", ")",
                                              "\x1b[31m", "\xff\xfe", std::string(1, '\0'), "1e999", "nan", "N/A", "{{{{", "[[[[[[[[", "- - - - ", "&a ", "*a "};
  return words;
}

class Mutator {
 public:
  Mutator(std::vector<std::string> samples, std::vector<std::string> words) : samples_(std::move(samples)), words_(std::move(words)) {}

  /// The text of a seed.
  std::string text(std::uint64_t seed) {
    random_.seed(seed);
    std::string text = samples_[below(samples_.size())];
    for (std::size_t times = 1 + below(6); times > 0; --times) mutate(text);
    if (text.size() > 200000) text.resize(200000);
    return text;
  }

 private:
  std::size_t below(std::size_t most) { return most == 0 ? 0 : std::uniform_int_distribution<std::size_t>(0, most - 1)(random_); }

  /// From the start of a line to that of a later one.
  std::pair<std::size_t, std::size_t> some_lines(const std::string& text) {
    std::size_t from = text.rfind('\n', below(text.size() + 1));
    from = from == std::string::npos ? 0 : from + 1;
    std::size_t to = from;
    for (std::size_t lines = 1 + below(4); lines > 0 && to != std::string::npos; --lines) to = text.find('\n', to + (to < text.size() ? 1 : 0));
    return {from, to == std::string::npos ? text.size() : to};
  }

  void mutate(std::string& text) {
    const std::size_t at = below(text.size() + 1);
    switch (below(13)) {
      case 0: text.resize(at); break;
      case 1: text.erase(0, at); break;
      case 2: text.erase(at, below(20)); break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 4: text.insert(at, words_[below(words_.size())]); break;
      case 5: {  // a word instead of another
        const std::size_t end = text.find_first_of(" \t\n\"<>=", at);
        if (at < text.size()) text.replace(at, end == std::string::npos ? std::string::npos : end - at, words_[below(words_.size())]);
        break;
      }
      case 6: {
        const auto [from, to] = some_lines(text);
        const std::string lines = text.substr(from, to - from);
        text.insert(from, lines);
        break;
      }
      case 7: {
        const auto [from, to] = some_lines(text);
        text.erase(from, to - from);
        break;
      }
      case 8: {  // swap two pieces
        const auto [from, to] = some_lines(text);
        const std::string lines = text.substr(from, to - from);
        text.erase(from, to - from);
        text.insert(below(text.size() + 1), lines);
        break;
      }
      case 9: {  // a number that is too large, negative or odd
        constexpr const char* kNumbers[] = {"99999999999999999999", "-1", "0", "4294967296", "2147483647", "1e308", "0x7fffffff", "1001", "65536", ""};
        const std::size_t digit = text.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        const std::size_t end = text.find_first_not_of("0123456789", digit);
        text.replace(digit, end == std::string::npos ? std::string::npos : end - digit, kNumbers[below(std::size(kNumbers))]);
        break;
      }
      case 10: {  // again and again
        const std::string piece = text.substr(at, 1 + below(40));
        std::string many;
        for (std::size_t times = below(200); times > 0; --times) many += piece;
        text.insert(at, many);
        break;
      }
      case 11: text.insert(at, samples_[below(samples_.size())]); break;
      case 12: {
        constexpr const char* kBytes[] = {"\t", "\r", " ", "\x1b[31m", "\xff", "\n", "\xc2\xa0", "\"", "<", "\\"};
        text.insert(at, kBytes[below(std::size(kBytes))]);
        break;
      }
    }
  }

  std::vector<std::string> samples_, words_;
  std::mt19937_64 random_;
};

/// Links between devices that there are, with figures that are numbers; names unique within their host.
inline void expect_sound(const Reading& reading) {
  const int devices = static_cast<int>(reading.wiring.devices.size());
  for (const Link& link : reading.wiring.links) {
    ASSERT_TRUE(link.from >= 0 && link.from < devices && link.to >= 0 && link.to < devices && link.from != link.to);
    ASSERT_TRUE(link.beta > 0 && link.beta < 1e18 && link.alpha >= 0 && link.spec >= 0);
  }
  std::vector<std::pair<int, std::string>> names;
  for (const Device& device : reading.wiring.devices) names.emplace_back(device.host, device.name);
  std::sort(names.begin(), names.end());
  ASSERT_EQ(std::adjacent_find(names.begin(), names.end()), names.end()) << "a name twice: " << std::adjacent_find(names.begin(), names.end())->second;
  ASSERT_TRUE(!reading.partial || !reading.notes.empty()) << "partial without a word";
}

/// Feeds mutations of `samples`, with `words` put in, to `read`, which throws or fails where it should not have accepted one.
inline void run(const std::vector<std::string>& samples, const std::vector<std::string>& words, const std::function<void(const std::string&)>& read, std::uint64_t rounds = 2000) {
  ASSERT_FALSE(samples.empty());
  Mutator mutator(samples, words);
  std::uint64_t accepted = 0;
  for (testing::FuzzRounds round(rounds); round.more();) {
    const std::string text = mutator.text(round.round());
    const auto keep = [&](const std::string& why) {
      const std::string place = std::string(::testing::TempDir()) + "wirewise_fuzz_failure.txt";
      std::ofstream(place, std::ios::binary) << text;
      FAIL() << why << "\nseed " << round.round() << ", kept as " << place << "\n" << text.substr(0, 2000);
    };
    const auto start = std::chrono::steady_clock::now();
    try {
      read(text);
      ++accepted;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBadInput) return keep("refused as no bad input: " + std::string(error.sentence()));
      if (error.sentence().empty()) return keep("refused without a word");
    } catch (const std::exception& error) {
      return keep(std::string("another exception: ") + error.what());
    }
    if (::testing::Test::HasFatalFailure()) return keep("not sound");
    // No limit of speed, but of hanging: half a million GPUs take 10 s, and a sanitizer ten times as long.
    constexpr std::chrono::seconds kMost{kAddressSanitizer || kThreadSanitizer ? 300 : 30};
    if (std::chrono::steady_clock::now() - start > kMost) return keep("took over " + std::to_string(kMost.count()) + " seconds");
  }
  EXPECT_GT(accepted, 0U) << "every mutation was refused";
}

/// The same for a reader of graphs: each is sound and can be written.
inline void run_reader(const std::vector<std::string>& samples, const std::function<Reading(const std::string&)>& read, std::uint64_t rounds = 2000) {
  run(
      samples, usual_words(),
      [&](const std::string& text) {
        const Reading reading = read(text);
        expect_sound(reading);
        if (reading.wiring.devices.size() >= 60) return;
        (void)write_tree(reading.wiring);
        (void)write_json(reading);
      },
      rounds);
}

/// The samples by hand, and the files of a folder of the field whose names hold `part`.
inline std::vector<std::string> with_field(std::vector<std::string> samples, const std::string& folder, const std::string& part = {}) {
  for (const std::string& file : field::files(folder)) {
    if (file.find(part, folder.size()) != std::string::npos) samples.push_back(*field::text(file));
  }
  return samples;
}

}  // namespace wirewise::fuzz
