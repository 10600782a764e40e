// Megatron's indexed datasets. The .idx: 9 bytes "MMIDIDX\0\0", uint64 version 1, uint8 element code, uint64 sequences, uint64 document
// boundaries, then int32 length and int64 byte offset of each sequence, int64 document boundaries, and optionally an int8 mode of each
// sequence. The .bin: tokens alone. Sequences are read one after the other, in the order of the index.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <optional>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/train/token_formats.h"

namespace wirewise::tokens {
namespace {

constexpr std::array<char, 9> kMagic{'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr std::size_t kHeader = 34;

std::optional<Element> element_of(std::uint8_t code) {
  switch (code) {
    case 1: return Element::kUInt8;
    case 2: return Element::kInt8;
    case 3: return Element::kInt16;
    case 4: return Element::kInt32;
    case 5: return Element::kInt64;
    case 6: return Element::kFloat64;
    case 7: return Element::kFloat32;
    case 8: return Element::kUInt16;
    default: return std::nullopt;
  }
}

/// The checked index. Its arrays lie unaligned in the file.
class Index {
 public:
  explicit Index(const std::filesystem::path& path) : file_(path) {
    const std::uint64_t bytes = file_.bytes().size();
    if (bytes < kHeader) throw refuse(fmt::format("holds {} bytes, fewer than a Megatron index's header of {}", bytes, kHeader));
    if (std::memcmp(file_.bytes().data(), kMagic.data(), kMagic.size()) != 0) {
      throw refuse("does not begin with a Megatron index's magic, MMIDIDX");
    }
    if (const auto version = at<std::uint64_t>(9); version != 1) throw refuse(fmt::format("has version {}, not 1", version));
    const auto code = at<std::uint8_t>(17);
    const auto found = element_of(code);
    if (!found) throw refuse(fmt::format("has element code {}, not 1 to 8", code));
    element = *found;
    sequences = at<std::uint64_t>(18);
    documents_ = at<std::uint64_t>(26);
    const std::uint64_t room = bytes - kHeader;
    if (sequences > room / 12 || documents_ > (room - 12 * sequences) / 8) {
      throw refuse(fmt::format("counts {} sequences and {} documents, more than its {} bytes can hold", sequences, documents_, bytes));
    }
    const std::uint64_t rest = room - 12 * sequences - 8 * documents_;
    if (rest != 0 && rest != sequences) {
      throw refuse(fmt::format("is torn: {} bytes follow its arrays, neither none nor a mode for each of {} sequences", rest, sequences));
    }
    check_documents();
  }

  [[nodiscard]] std::uint64_t length(std::uint64_t sequence) const {
    const auto value = at<std::int32_t>(kHeader + 4 * sequence);
    if (value < 0) throw refuse(fmt::format("gives sequence {} the length {}", sequence, value));
    return static_cast<std::uint64_t>(value);
  }
  [[nodiscard]] std::uint64_t offset(std::uint64_t sequence) const {
    const auto value = at<std::int64_t>(kHeader + 4 * sequences + 8 * sequence);
    if (value < 0) throw refuse(fmt::format("places sequence {} at byte {}", sequence, value));
    return static_cast<std::uint64_t>(value);
  }
  [[nodiscard]] Error refuse(const std::string& reason) const {
    return bad_input(fmt::format("{} {}.", printable(file_.path().string()), reason), "Copy or build the index again.");
  }

  std::uint64_t sequences = 0;
  Element element = Element::kUInt16;

 private:
  template <class T>
  [[nodiscard]] T at(std::uint64_t offset) const {
    T value;
    std::memcpy(&value, file_.bytes().data() + offset, sizeof value);
    return value;
  }

  void check_documents() const {
    std::int64_t before = 0;
    for (std::uint64_t i = 0; i < documents_; ++i) {
      const auto boundary = at<std::int64_t>(kHeader + 12 * sequences + 8 * i);
      if (boundary < before || static_cast<std::uint64_t>(boundary) > sequences) {
        throw refuse(fmt::format("ends document {} at sequence {}, not from {} to {}", i, boundary, before, sequences));
      }
      before = boundary;
    }
  }

  MappedFile file_;
  std::uint64_t documents_ = 0;
};

}  // namespace

void add_megatron(MappedTokens& out, const std::filesystem::path& path) {
  std::filesystem::path stem = path;
  if (stem.extension() == ".bin" || stem.extension() == ".idx") stem.replace_extension();
  const auto index_path = std::filesystem::path(stem.string() + ".idx");
  const auto data_path = std::filesystem::path(stem.string() + ".bin");
  const Index index(index_path);
  MappedFile data(data_path);
  const std::uint64_t bytes = data.bytes().size();
  const std::size_t width = size_of(index.element);
  const std::size_t file = out.files.size();

  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < index.sequences; ++i) {
    const std::uint64_t length = index.length(i), offset = index.offset(i);
    if (offset > bytes || length > (bytes - offset) / width) {
      throw index.refuse(fmt::format("places sequence {} of {} tokens at byte {}, beyond the {} bytes of {}", i, length, offset, bytes,
                                     printable(data_path.string())));
    }
    if (length == 0) continue;
    total += length;
    const bool follows = !out.runs.empty() && out.runs.back().file == file &&
                         out.runs.back().offset + out.runs.back().count * width == offset;
    if (follows) {
      out.runs.back().count += length;
    } else {
      out.runs.push_back({file, offset, length, index.element});
    }
  }
  if (total == 0) throw index.refuse("indexes no tokens");
  out.files.push_back(std::move(data));
}

}  // namespace wirewise::tokens
