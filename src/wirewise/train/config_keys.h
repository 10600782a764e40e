// The one table of configuration keys: name, what it expects, how it is set and written. Private to train/.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "wirewise/train/config.h"
#include "wirewise/train/config_value.h"

namespace wirewise::config {

struct Key {
  std::string name;      // "train.lr"
  std::string expected;  // "a number of at least 0"
  bool resume = false;   // must be equal for an exact resume
  std::function<void(TrainConfig&, const Value&)> set;    // throws bad input naming key, value and what is expected
  std::function<std::string(TrainConfig&)> get;           // TOML text; empty: stands for other keys, isn't written
};

/// In the order in which keys are applied and written: what others start from (model.preset, strategy.name) comes first.
[[nodiscard]] const std::vector<Key>& keys();

/// The key called `name`, or null.
[[nodiscard]] const Key* find_key(const std::string& name);

/// The known key nearest to `name` by edit distance, its section or its own name alone counting too.
[[nodiscard]] std::string nearest_key(const std::string& name);

}  // namespace wirewise::config
