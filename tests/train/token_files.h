// Writers of token files in other programs' formats, for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "train/temporary_folder.h"

namespace wirewise::testing {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string out(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}
template <class T>
std::string bytes_of(T value) {
  return bytes_of(std::vector<T>{value});
}

/// T: uint16 (magic 20240520, version 1) or uint32 (magic 20240801, version 7).
template <class T>
std::string llmc_file(const std::vector<T>& tokens) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = sizeof(T) == 2 ? 20240520 : 20240801;
  header[1] = sizeof(T) == 2 ? 1 : 7;
  header[2] = static_cast<std::int32_t>(tokens.size());
  return bytes_of(header) + bytes_of(tokens);
}

struct MegatronFiles {
  std::string index, data;
};

/// A dataset of the given sequences, one document each. `code`: Megatron's element code of T.
template <class T>
MegatronFiles megatron_files(const std::vector<std::vector<T>>& sequences, std::uint8_t code, bool modes = false) {
  MegatronFiles out;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> offsets, documents{0};
  for (const auto& sequence : sequences) {
    lengths.push_back(static_cast<std::int32_t>(sequence.size()));
    offsets.push_back(static_cast<std::int64_t>(out.data.size()));
    documents.push_back(static_cast<std::int64_t>(lengths.size()));
    out.data += bytes_of(sequence);
  }
  out.index = std::string("MMIDIDX\0\0", 9) + bytes_of(std::uint64_t{1}) + bytes_of(code) + bytes_of(std::uint64_t{sequences.size()}) +
              bytes_of(std::uint64_t{documents.size()}) + bytes_of(lengths) + bytes_of(offsets) + bytes_of(documents);
  if (modes) out.index += std::string(sequences.size(), '\0');
  return out;
}

}  // namespace wirewise::testing
