// A communicator that hands every call on to another: tests derive from it to change what one call does.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "wirewise/comm/communicator.h"

namespace wirewise::testing_support {

class PassingCommunicator : public Communicator {
 public:
  explicit PassingCommunicator(Communicator& inner) : inner_(inner) {}
  int rank() const noexcept override { return inner_.rank(); }
  int size() const noexcept override { return inner_.size(); }
  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;
  Work all_reduce(std::span<const ReducePart> parts, Reduction op, CallOptions options) override { return inner_.all_reduce(parts, op, std::move(options)); }
  Work all_gather(std::span<const AllGatherPart> parts, CallOptions options) override { return inner_.all_gather(parts, std::move(options)); }
  Work reduce_scatter(std::span<const ReducePart> parts, Reduction op, CallOptions options) override { return inner_.reduce_scatter(parts, op, std::move(options)); }
  Work broadcast(Buffer buffer, std::size_t count, int root, CallOptions options) override { return inner_.broadcast(buffer, count, root, std::move(options)); }
  Work reduce(ConstBuffer in, Buffer out, std::size_t count, int root, Reduction op, CallOptions options) override {
    return inner_.reduce(in, out, count, root, op, std::move(options));
  }
  Work gather(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) override { return inner_.gather(in, out, count, root, std::move(options)); }
  Work scatter(ConstBuffer in, Buffer out, std::size_t count, int root, CallOptions options) override { return inner_.scatter(in, out, count, root, std::move(options)); }
  Work all_to_all(ConstBuffer in, std::span<const std::size_t> sent, Buffer out, std::span<const std::size_t> received, CallOptions options) override {
    return inner_.all_to_all(in, sent, out, received, std::move(options));
  }
  Work send(ConstBuffer in, std::size_t count, int peer, int tag, CallOptions options) override { return inner_.send(in, count, peer, tag, std::move(options)); }
  Work recv(Buffer out, std::size_t count, int peer, int tag, CallOptions options) override { return inner_.recv(out, count, peer, tag, std::move(options)); }
  Work barrier(CallOptions options) override { return inner_.barrier(std::move(options)); }
  void progress() override { inner_.progress(); }
  std::unique_ptr<Communicator> split(int colour, int key, CommunicatorOptions options) override { return inner_.split(colour, key, std::move(options)); }
  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }
  void* allocate_shared(std::size_t bytes) override { return inner_.allocate_shared(bytes); }
  void free_shared(void* pointer) noexcept override { inner_.free_shared(pointer); }

 private:
  Communicator& inner_;
};

}  // namespace wirewise::testing_support
