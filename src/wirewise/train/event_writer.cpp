// TensorBoard event files. A file is a run of records, each: uint64 length, masked CRC-32C of the length, the data, masked CRC-32C of the
// data. The data is an Event message: 1 wall_time (double), 2 step (int64), and 3 file_version (string; in the first) or 5 summary, which
// holds values of 1 tag (string) and 2 simple_value (float). Written by hand: these five fields are all there is.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "wirewise/base/error.h"
#include "wirewise/base/text.h"
#include "wirewise/train/metrics.h"

namespace wirewise {
namespace {

constexpr std::array<std::uint32_t, 256> kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1U) != 0 ? 0x82f63b78U ^ (crc >> 1) : crc >> 1;
    table[byte] = crc;
  }
  return table;
}();

std::uint32_t masked(const std::string& data) {
  const std::uint32_t crc = crc32c(data.data(), data.size());
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

// Protobuf wire types.
constexpr int kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;
std::string key(int field, int wire_type) { return varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(wire_type)); }
std::string bytes_field(int field, const std::string& bytes) { return key(field, kLengthDelimited) + varint(bytes.size()) + bytes; }

double wall_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t bytes) noexcept {
  const auto* next = static_cast<const unsigned char*>(data);
  std::uint32_t crc = 0xffffffffU;
  for (std::size_t i = 0; i < bytes; ++i) crc = kCrcTable[(crc ^ next[i]) & 0xffU] ^ (crc >> 8);
  return ~crc;
}

struct EventWriter::Impl {
  std::filesystem::path path;
  std::FILE* file = nullptr;

  ~Impl() {
    if (file != nullptr) std::fclose(file);
  }
  [[nodiscard]] Error failed(const char* what) const {
    return Error(ErrorKind::kFailed, fmt::format("can't {} {}: {}.", what, printable(path.string()), std::strerror(errno)),
                 "Check the disk, or set log.tensorboard = false.");
  }
  void record(const std::string& event) const {
    const std::string length = raw(static_cast<std::uint64_t>(event.size()));
    const std::string bytes = length + raw(masked(length)) + event + raw(masked(event));
    if (std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) throw failed("write");
  }
};

EventWriter::EventWriter(const std::filesystem::path& folder) : impl_(std::make_unique<Impl>()) {
  char host[256] = "host";
  ::gethostname(host, sizeof host - 1);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const auto seconds = static_cast<std::int64_t>(wall_time());
  // "x": never over a file that is there; a second writer within the second gets the next number.
  for (int number = 0; impl_->file == nullptr; ++number) {
    impl_->path = folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", seconds, host, ::getpid(), number);
    impl_->file = std::fopen(impl_->path.c_str(), "wbxe");
    if (impl_->file == nullptr && errno != EEXIST) throw impl_->failed("create");
  }
  impl_->record(key(1, kFixed64) + raw(wall_time()) + bytes_field(3, "brain.Event:2"));
}

EventWriter::~EventWriter() = default;

const std::filesystem::path& EventWriter::file() const noexcept { return impl_->path; }

void EventWriter::scalar(const std::string& tag, std::int64_t step, double value) {
  const std::string entry = bytes_field(1, tag) + key(2, kFixed32) + raw(static_cast<float>(value));
  impl_->record(key(1, kFixed64) + raw(wall_time()) + key(2, kVarint) + varint(static_cast<std::uint64_t>(step)) +
                bytes_field(5, bytes_field(1, entry)));
}

void EventWriter::step(const StepMetrics& metrics) {
  scalar("loss_metrics/global_avg_loss", metrics.step, metrics.loss);
  scalar("grad_norm", metrics.step, metrics.grad_norm);
  scalar("lr", metrics.step, metrics.lr);
  scalar("throughput(tps)", metrics.step, metrics.tokens_per_s_per_rank);
  scalar("mfu(%)", metrics.step, 100 * metrics.mfu);
  scalar("time_metrics/end_to_end(s)", metrics.step, metrics.step_s);
  scalar("memory/max_active(GiB)", metrics.step, static_cast<double>(metrics.memory_measured) / static_cast<double>(kGiB));
}

void EventWriter::validation(std::int64_t step, double loss) { scalar("validation_metrics/loss", step, loss); }

void EventWriter::flush() {
  if (std::fflush(impl_->file) != 0) throw impl_->failed("write");
}

}  // namespace wirewise
