// Reading a checkpoint on any number of ranks: ranges of global tensors, each chunk held against its checksum.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/train/checkpoint_files.h"
#include "wirewise/train/checkpoint_format.h"

namespace wirewise {
namespace {

Error refuse(const std::filesystem::path& folder, const std::string& reason) {
  return bad_input(fmt::format("checkpoint {} {}.", printable(folder.string()), reason), "Use another checkpoint.");
}

/// The safetensors header with its length, as it stands in a file.
std::string read_header(const checkpoint::Input& input, const std::filesystem::path& path) {
  std::uint64_t length = 0;
  if (input.size() < sizeof length) throw refuse(path, "is truncated");
  input.read(0, &length, sizeof length);
  if (length > checkpoint::kMostHeader || length > input.size() - sizeof length) {
    throw refuse(path, fmt::format("claims a header of {} bytes", length));
  }
  std::string header(sizeof length + static_cast<std::size_t>(length), '\0');
  input.read(0, header.data(), header.size());
  return header;
}

}  // namespace

CheckpointReader::CheckpointReader(std::filesystem::path folder) : folder_(std::move(folder)) {
  using namespace checkpoint;
  std::error_code error;
  if (!std::filesystem::is_directory(folder_, error)) throw refuse(folder_, "is no folder");
  for (const auto name : {kMarkerName, kIndexName}) {
    if (!std::filesystem::exists(folder_ / name, error)) throw refuse(folder_, fmt::format("is incomplete: it has no {}", name));
  }
  const std::string text = read_file(folder_ / kIndexName, kMostIndex);
  if (read_file(folder_ / kMarkerName, 4096) != marker_text(text)) throw refuse(folder_, "has an index that differs from its checksum");
  const std::string origin = (folder_ / kIndexName).string();
  Index index = read_index(text, origin);
  check_index(index, origin);
  step_ = index.step;
  chunk_ = index.chunk;
  state_ = std::move(index.state);
  for (auto& file : index.files) {
    const Input input(folder_ / file.name);
    if (input.size() != file.bytes) {
      throw refuse(folder_, fmt::format("is torn: {} holds {} bytes, its index says {}", file.name, input.size(), file.bytes));
    }
    files_.push_back({std::move(file.name), file.bytes, std::move(file.header_checksum)});
  }
  for (auto& entry : index.entries) {
    TensorInfo& info = tensors_[entry.tensor];
    auto& pieces = pieces_[entry.tensor];
    info.shape = entry.shape;
    info.dtype = entry.dtype;
    info.numel = numel_of(entry.shape, entry.dtype).value_or(0);
    if (entry.length > 0) pieces.push_back({entry.offset, entry.length, entry.file, entry.position, std::move(entry.checksums)});
  }
}

void CheckpointReader::read(const std::string& tensor, const std::vector<std::int64_t>& shape, std::uint64_t offset, std::uint64_t length,
                            void* out) const {
  const auto found = tensors_.find(tensor);
  if (found == tensors_.end()) throw refuse(folder_, fmt::format("holds no tensor {}", printable(tensor)));
  const TensorInfo& info = found->second;
  if (info.shape != shape) {
    throw refuse(folder_, fmt::format("holds {} of shape {}, this model needs {}", printable(tensor), checkpoint::shape_text(info.shape),
                                      checkpoint::shape_text(shape)));
  }
  if (offset > info.numel || length > info.numel - offset) {
    throw Error(ErrorKind::kFailed, fmt::format("elements {} + {} lie outside the {} of {}.", offset, length, info.numel, printable(tensor)));
  }
  const auto& pieces = pieces_.at(tensor);
  const std::size_t element = size_of(info.dtype);
  auto* next = static_cast<unsigned char*>(out);
  const std::uint64_t end = offset + length;
  auto piece = std::upper_bound(pieces.begin(), pieces.end(), offset,
                                [](std::uint64_t position, const Piece& item) { return position < item.offset + item.length; });
  for (; piece != pieces.end() && piece->offset < end; ++piece) {
    const std::uint64_t from = std::max(offset, piece->offset), to = std::min(end, piece->offset + piece->length);
    read_piece(tensor, *piece, element, from - piece->offset, to - from, next);
    next += (to - from) * element;
  }
}

void CheckpointReader::read_piece(const std::string& tensor, const Piece& piece, std::size_t element, std::uint64_t from,
                                  std::uint64_t count, unsigned char* out) const {
  const checkpoint::Input input(folder_ / files_[piece.file].name);
  const std::uint64_t total = piece.length * element, begin = from * element, end = (from + count) * element;
  std::vector<unsigned char> buffer;
  for (std::uint64_t chunk = begin / chunk_; chunk * chunk_ < end; ++chunk) {
    const std::uint64_t first = chunk * chunk_, last = std::min(total, first + chunk_);
    const auto size = static_cast<std::size_t>(last - first);
    const bool direct = first >= begin && last <= end;  // a chunk that is wanted whole needs no copy
    if (!direct) buffer.resize(size);
    unsigned char* target = direct ? out + (first - begin) : buffer.data();
    input.read(piece.position + first, target, size);
    bytes_read_ += size;
    if (checkpoint::checksum(target, size) != piece.checksums[static_cast<std::size_t>(chunk)]) {
      throw Error(ErrorKind::kFailed,
                  fmt::format("checkpoint {}: {} differs from its checksum in {}, bytes {} to {}.", printable(folder_.string()),
                              printable(tensor), files_[piece.file].name, piece.position + first, piece.position + last),
                  "Use another checkpoint.");
    }
    if (direct) continue;
    const std::uint64_t copy_from = std::max(first, begin), copy_to = std::min(last, end);
    std::memcpy(out + (copy_from - begin), buffer.data() + (copy_from - first), static_cast<std::size_t>(copy_to - copy_from));
  }
}

std::vector<std::string> CheckpointReader::verify() const {
  std::vector<std::string> different;
  for (const auto& file : files_) {
    bool equal = false;
    try {
      const checkpoint::Input input(folder_ / file.name);
      const std::string header = read_header(input, folder_ / file.name);
      bytes_read_ += header.size();
      equal = checkpoint::checksum(header.data(), header.size()) == file.header_checksum;
    } catch (const Error&) {
    }
    if (!equal) different.push_back(fmt::format("header ({})", file.name));
  }
  std::vector<unsigned char> buffer(static_cast<std::size_t>(chunk_));
  for (const auto& [tensor, pieces] : pieces_) {
    const std::size_t element = size_of(tensors_.at(tensor).dtype);
    const std::uint64_t step = std::max<std::uint64_t>(chunk_ / element, 1);
    for (const auto& piece : pieces) {
      try {
        for (std::uint64_t from = 0; from < piece.length; from += step) {
          read_piece(tensor, piece, element, from, std::min(step, piece.length - from), buffer.data());
        }
      } catch (const Error&) {
        different.push_back(fmt::format("{} ({})", printable(tensor), files_[piece.file].name));
      }
    }
  }
  return different;
}

Bytes CheckpointReader::bytes() const noexcept {
  Bytes total = 0;
  for (const auto& file : files_) total += file.bytes;
  return total;
}

}  // namespace wirewise
