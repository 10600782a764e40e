// WIREWISE_ALGO: what a person wants in place of the model's choice.

#include "wirewise/base/error.h"
#include "wirewise/base/nearest.h"
#include "wirewise/base/text.h"
#include "wirewise/comm/choice.h"
#include "wirewise/comm/names.h"

namespace wirewise::comm {
namespace {

Error unreadable(std::string_view part, const std::string& why, const std::string& remedy) {
  return bad_input("WIREWISE_ALGO: \"" + printable(part) + "\" " + why + ".", remedy);
}

const char* const kForm = "Write operation=algorithm[@from-to], separated by commas: all_reduce=doubling,all_gather=ring@1M-.";

Operation operation_of(std::string_view part, std::string_view word) {
  std::vector<std::string> known;
  for (const Operation operation : operations_with_choice()) {
    if (word == name_of(operation)) return operation;
    known.emplace_back(name_of(operation));
  }
  throw unreadable(part, "names no operation that has a choice", suggest(word, known));
}

Algorithm algorithm_of(std::string_view part, Operation operation, std::string_view word) {
  std::vector<std::string> known;
  for (const Algorithm algorithm : algorithms_of(operation)) {
    if (word == name_of(algorithm)) return algorithm;
    known.emplace_back(name_of(algorithm));
  }
  throw unreadable(part, "names no algorithm of " + std::string(name_of(operation)), suggest(word, known));
}

AlgorithmWish wish_of(std::string_view part) {
  const std::size_t equals = part.find('=');
  if (equals == part.npos) throw unreadable(part, "says no algorithm", kForm);
  const std::size_t at = part.find('@', equals);
  AlgorithmWish wish;
  wish.operation = operation_of(part, part.substr(0, equals));
  wish.algorithm = algorithm_of(part, wish.operation, part.substr(equals + 1, at == part.npos ? at : at - equals - 1));
  if (at == part.npos) return wish;
  const std::string_view range = part.substr(at + 1);
  const std::size_t dash = range.find('-');
  if (dash == range.npos) throw unreadable(part, "has no range of sizes after @", "Write @from-to, @from- or @-to: @64K-1M.");
  if (dash > 0) wish.from = parse_size(range.substr(0, dash));
  if (dash + 1 < range.size()) wish.to = parse_size(range.substr(dash + 1));
  if (wish.from > wish.to) throw unreadable(part, "has a range that ends before it begins", "Write the smaller size first.");
  return wish;
}

}  // namespace

std::vector<AlgorithmWish> parse_algorithms(std::string_view text) {
  std::vector<AlgorithmWish> wishes;
  for (const std::string& part : split(text, ',')) wishes.push_back(wish_of(part));
  return wishes;
}

}  // namespace wirewise::comm
