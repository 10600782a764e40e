// A matrix of connections, asked row by row: what tests of nvidia-smi topo -m expect of a reading.
#pragma once

#include <string>
#include <vector>

#include "wiring/field.h"

namespace wirewise::field {

/// Relations of a row with all columns, as the file prints them.
inline void expect_row(const Reading& reading, const std::string& row, const std::vector<std::string>& columns, const std::vector<std::string>& cells) {
  ASSERT_EQ(columns.size(), cells.size());
  for (std::size_t i = 0; i < columns.size(); ++i) EXPECT_EQ(relation(reading, row, columns[i]), cells[i]) << row << " " << columns[i];
}

inline std::vector<std::string> gpus(int from, int to) {
  std::vector<std::string> names;
  for (int i = from; i < to; ++i) names.push_back("GPU" + std::to_string(i));
  return names;
}

inline void expect_all(const Reading& reading, const std::vector<std::string>& names, const std::string& what) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_EQ(relation(reading, names[i], names[j]), what) << names[i] << " " << names[j];
  }
}

inline void expect_near(const Reading& reading, const std::vector<std::string>& names, int numa, const std::string& cpus) {
  for (const std::string& name : names) {
    EXPECT_EQ(device(reading, name).numa, numa) << name;
    EXPECT_EQ(device(reading, name).cpus, cpus) << name;
  }
}

inline void expect_clean(const Reading& reading) {
  EXPECT_FALSE(reading.partial);
  for (const Note& note : reading.notes) ADD_FAILURE() << note.line << ": " << note.text;
}

}  // namespace wirewise::field
