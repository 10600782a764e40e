#include "wirewise/comm/spanning_message.h"

#include <cstring>

namespace wirewise::comm {
namespace {

constexpr std::uint64_t kHeaderClass = std::uint64_t{2} << 38;
constexpr std::uint64_t kBodyClass = std::uint64_t{3} << 38;
constexpr std::size_t kInlineBytes = 8 * 1024;  // up to here the message is in its header

struct Header {
  std::uint64_t count = 0;
  DType dtype = DType::kUInt8;
};

std::uint64_t tag_of(std::uint64_t kind, const Fingerprint& print) noexcept { return kind | static_cast<std::uint32_t>(print.hash); }

}  // namespace

SpanningSend::SpanningSend(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options, const void* data)
    : SpanningMessage(std::move(owner), print, std::move(options)), data_(static_cast<const std::byte*>(data)) {}

void SpanningSend::begin() {
  const std::size_t bytes = fingerprint.count * size_of(fingerprint.in);
  const Header header{fingerprint.count, fingerprint.in};
  const bool inside = bytes <= kInlineBytes;
  header_.resize(sizeof header + (inside ? bytes : 0));
  std::memcpy(header_.data(), &header, sizeof header);
  if (inside && bytes > 0) std::memcpy(header_.data() + sizeof header, data_, bytes);
  send_raw(fingerprint.root, tag_of(kHeaderClass, fingerprint), header_.data(), header_.size());
  if (!inside) send_raw(fingerprint.root, tag_of(kBodyClass, fingerprint), data_, bytes);
}

SpanningRecv::SpanningRecv(std::shared_ptr<SpanningGroup> owner, const Fingerprint& print, CallOptions options, void* data)
    : SpanningMessage(std::move(owner), print, std::move(options)), data_(static_cast<std::byte*>(data)) {}

std::vector<Missing> SpanningMessage::missing() const {
  if (fingerprint.root != kAnySource) return {{fingerprint.root, false}};
  std::vector<Missing> all;
  for (int r = 0; r < size(); ++r) {
    if (r != rank()) all.push_back({r, false});
  }
  return all;
}

void SpanningRecv::begin() {
  if (fingerprint.root != kAnySource) return receive();
  until([this] { return find_source(); });
}

bool SpanningRecv::find_source() {
  if (const auto at_place = owner().local_group()->probe(static_cast<std::int32_t>(fingerprint.hash))) {
    fingerprint.root = member(*at_place);
    local(owner().local().recv({data_, fingerprint.in}, fingerprint.count, *at_place, static_cast<std::int32_t>(fingerprint.hash), inner_options()));
    return true;
  }
  const int peer = owner().network().probe(tag_of(kHeaderClass, fingerprint));
  if (peer == kAnyPeer) return false;
  fingerprint.root = peer;
  receive();
  return true;
}

void SpanningRecv::receive() {
  struct Incoming {
    std::vector<std::byte> header = std::vector<std::byte>(sizeof(Header) + kInlineBytes);
    std::unique_ptr<Transfer> transfer;  // after the header: it writes there
    bool body = false;
  };
  const auto incoming = std::make_shared<Incoming>();
  incoming->transfer = owner().network().recv(fingerprint.root, tag_of(kHeaderClass, fingerprint), incoming->header.data(), incoming->header.size());
  until([this, incoming] {
    if (!is_done(*incoming->transfer, fingerprint.root)) return false;
    if (incoming->body) return true;
    Header header;
    std::memcpy(&header, incoming->header.data(), sizeof header);
    if (header.count != fingerprint.count || header.dtype != fingerprint.in) {
      Fingerprint sent = fingerprint;
      sent.operation = Operation::kSend;
      sent.root = rank();
      sent.count = header.count;
      sent.in = sent.out = header.dtype;
      sent.label[0] = 0;
      throw owner().mismatch(rank(), fingerprint, fingerprint.root, sent);
    }
    const std::size_t bytes = fingerprint.count * size_of(fingerprint.in);
    if (bytes <= kInlineBytes) {
      if (bytes > 0) std::memcpy(data_, incoming->header.data() + sizeof header, bytes);
      return true;
    }
    incoming->body = true;
    incoming->transfer = owner().network().recv(fingerprint.root, tag_of(kBodyClass, fingerprint), data_, bytes);
    return is_done(*incoming->transfer, fingerprint.root);
  });
}

}  // namespace wirewise::comm
