// The index as JSON, and the proofs that it describes whole tensors in this folder.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/train/checkpoint_format.h"

namespace wirewise::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "wirewise-checkpoint";

Error refuse(const std::string& origin, const std::string& reason) {
  return bad_input(fmt::format("{}: {}.", printable(origin), reason), "Use another checkpoint.");
}

Json to_json(const Entry& entry) {
  return {{"offset", entry.offset}, {"length", entry.length}, {"file", entry.file}, {"position", entry.position}, {"checksums", entry.checksums}};
}

std::uint64_t whole(const Json& json) {
  if (!json.is_number_unsigned()) throw Json::type_error::create(302, "not a whole number of at least 0", &json);
  return json.get<std::uint64_t>();
}

std::vector<std::int64_t> shape_of(const Json& json) {
  std::vector<std::int64_t> shape;
  for (const auto& extent : json) {
    const std::uint64_t value = whole(extent);
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      throw Json::type_error::create(302, "an extent that is too large", &json);
    }
    shape.push_back(static_cast<std::int64_t>(value));
  }
  return shape;
}

void check_files(const Index& index, const std::string& origin) {
  if (index.files.empty()) throw refuse(origin, "lists no ranks");
  std::vector<std::string> names;
  for (const auto& file : index.files) {
    if (!is_own_file(file.name) || !file.name.ends_with(".safetensors")) {
      throw refuse(origin, fmt::format("names the file {}, which is no plain rank-N.safetensors", printable(file.name)));
    }
    names.push_back(file.name);
  }
  std::sort(names.begin(), names.end());
  if (std::adjacent_find(names.begin(), names.end()) != names.end()) throw refuse(origin, "names a file twice");
  if (index.chunk < 4 * kKiB || index.chunk > 64 * kMiB) throw refuse(origin, fmt::format("has chunks of {} bytes", index.chunk));
}

/// One entry by itself.
void check_entry(const Entry& entry, const Index& index, const std::string& origin) {
  const auto numel = numel_of(entry.shape, entry.dtype);
  const auto name = printable(entry.tensor);
  if (!numel) throw refuse(origin, fmt::format("gives {} the impossible shape {}", name, shape_text(entry.shape)));
  if (entry.offset > *numel || entry.length > *numel - entry.offset) {
    throw refuse(origin, fmt::format("places elements {} + {} of {} outside its {}", entry.offset, entry.length, name, *numel));
  }
  if (entry.file >= index.files.size()) throw refuse(origin, fmt::format("places {} in file {}, which isn't listed", name, entry.file));
  const std::uint64_t bytes = entry.length * size_of(entry.dtype);
  const Bytes held = index.files[entry.file].bytes;
  if (entry.position > held || bytes > held - entry.position) {
    throw refuse(origin, fmt::format("places {} beyond the end of {}", name, index.files[entry.file].name));
  }
  if (entry.checksums.size() != (bytes + index.chunk - 1) / index.chunk) {
    throw refuse(origin, fmt::format("has {} checksums for {} bytes of {}", entry.checksums.size(), bytes, name));
  }
}

/// Entries sorted by tensor and offset: each tensor alike in all, and whole.
void check_cover(const Index& index, const std::string& origin) {
  const auto& entries = index.entries;
  for (std::size_t i = 0; i < entries.size();) {
    const Entry& first = entries[i];
    const std::string name = printable(first.tensor);
    std::uint64_t next = 0;
    for (; i < entries.size() && entries[i].tensor == first.tensor; ++i) {
      const Entry& entry = entries[i];
      if (entry.shape != first.shape || entry.dtype != first.dtype) {
        throw refuse(origin, fmt::format("{} is {} {} in one fragment and {} {} in another", name, name_of(first.dtype),
                                         shape_text(first.shape), name_of(entry.dtype), shape_text(entry.shape)));
      }
      if (entry.length == 0) continue;
      if (entry.offset < next) {
        throw refuse(origin, fmt::format("elements {} to {} of {} are held twice", entry.offset, std::min(next, entry.offset + entry.length), name));
      }
      if (entry.offset > next) throw refuse(origin, fmt::format("elements {} to {} of {} are missing", next, entry.offset, name));
      next = entry.offset + entry.length;
    }
    const std::uint64_t numel = *numel_of(first.shape, first.dtype);
    if (next < numel) throw refuse(origin, fmt::format("elements {} to {} of {} are missing", next, numel, name));
  }
}

void check_disjoint(const Index& index, const std::string& origin) {
  std::vector<std::tuple<std::size_t, std::uint64_t, std::uint64_t, const Entry*>> places;
  for (const auto& entry : index.entries) {
    if (entry.length > 0) places.emplace_back(entry.file, entry.position, entry.position + entry.length * size_of(entry.dtype), &entry);
  }
  std::sort(places.begin(), places.end());
  for (std::size_t i = 1; i < places.size(); ++i) {
    const auto& [file_before, begin_before, end_before, before] = places[i - 1];
    const auto& [file, begin, end, entry] = places[i];
    if (file == file_before && begin < end_before) {
      throw refuse(origin, fmt::format("{} and {} overlap in {}", printable(before->tensor), printable(entry->tensor), index.files[file].name));
    }
  }
}

}  // namespace

std::string write_index(const Index& index) {
  Json tensors = Json::object();
  for (const auto& entry : index.entries) {
    Json& tensor = tensors[entry.tensor];
    if (tensor.is_null()) tensor = {{"dtype", name_of(entry.dtype)}, {"shape", entry.shape}, {"fragments", Json::array()}};
    tensor["fragments"].push_back(to_json(entry));
  }
  Json files = Json::array();
  for (const auto& file : index.files) files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"header", file.header_checksum}});
  const Json root = {{"format", kFormat}, {"version", 1}, {"step", index.step}, {"ranks", index.files.size()},
                     {"chunk", index.chunk}, {"state", index.state}, {"files", files}, {"tensors", tensors}};
  try {
    return root.dump(1) + "\n";
  } catch (const Json::exception&) {
    throw Error(ErrorKind::kFailed, "a tensor's name or a value of the state is no valid UTF-8.", "Encode binary values as text.");
  }
}

Index read_index(std::string_view text, const std::string& origin) {
  Index index;
  try {
    const Json root = Json::parse(text);
    if (root.at("format") != kFormat) throw refuse(origin, "is no checkpoint's index");
    if (root.at("version") != 1) throw refuse(origin, fmt::format("has version {}, this build reads 1", root.at("version").dump()));
    index.step = whole(root.at("step"));
    index.chunk = whole(root.at("chunk"));
    index.state = root.at("state").get<TrainState>();
    for (const auto& file : root.at("files")) {
      index.files.push_back({file.at("name").get<std::string>(), whole(file.at("bytes")), file.at("header").get<std::string>()});
    }
    if (whole(root.at("ranks")) != index.files.size()) throw refuse(origin, "lists another number of files than ranks");
    for (const auto& [name, tensor] : root.at("tensors").items()) {
      const auto dtype = parse_dtype(tensor.at("dtype").get<std::string>());
      if (!dtype) throw refuse(origin, fmt::format("gives {} an unknown dtype", printable(name)));
      if (tensor.at("fragments").empty()) throw refuse(origin, fmt::format("lists no fragments of {}", printable(name)));
      for (const auto& piece : tensor.at("fragments")) {
        index.entries.push_back({name, shape_of(tensor.at("shape")), *dtype, whole(piece.at("offset")), whole(piece.at("length")),
                                 static_cast<std::size_t>(whole(piece.at("file"))), whole(piece.at("position")),
                                 piece.at("checksums").get<std::vector<std::string>>()});
      }
    }
  } catch (const Json::exception& failure) {
    throw refuse(origin, fmt::format("can't be read ({})", printable(failure.what())));
  }
  return index;
}

void check_index(Index& index, const std::string& origin) {
  check_files(index, origin);
  for (const auto& entry : index.entries) check_entry(entry, index, origin);
  std::sort(index.entries.begin(), index.entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.tensor, a.offset, a.length) < std::tie(b.tensor, b.offset, b.length);
  });
  check_cover(index, origin);
  check_disjoint(index, origin);
}

}  // namespace wirewise::checkpoint
