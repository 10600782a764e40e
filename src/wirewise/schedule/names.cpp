// What a schedule's enumerations are called in reports, traces and errors, and which ops are collectives.
#include "wirewise/schedule/schedule.h"

namespace wirewise {

std::string_view name_of(Category category) noexcept {
  switch (category) {
    case Category::kParams:
      return "params";
    case Category::kGrads:
      return "grads";
    case Category::kOptimizer:
      return "optimizer";
    case Category::kGathered:
      return "gathered";
    case Category::kActivations:
      return "activations";
    case Category::kTemporaries:
      return "temporaries";
    case Category::kBuffers:
      return "buffers";
  }
  return "unknown";
}

std::string_view name_of(BufferRole role) noexcept {
  switch (role) {
    case BufferRole::kParam:
      return "param";
    case BufferRole::kFullParam:
      return "full_param";
    case BufferRole::kMaster:
      return "master";
    case BufferRole::kExpAvg:
      return "exp_avg";
    case BufferRole::kExpAvgSq:
      return "exp_avg_sq";
    case BufferRole::kGrad:
      return "grad";
    case BufferRole::kReducedGrad:
      return "reduced_grad";
    case BufferRole::kInput:
      return "input";
    case BufferRole::kBoundary:
      return "boundary";
    case BufferRole::kBoundaryGrad:
      return "boundary_grad";
    case BufferRole::kSaved:
      return "saved";
    case BufferRole::kLoss:
      return "loss";
  }
  return "unknown";
}

std::string_view name_of(OpKind kind) noexcept {
  switch (kind) {
    case OpKind::kTokenCount:
      return "token_count";
    case OpKind::kGather:
      return "gather";
    case OpKind::kForward:
      return "forward";
    case OpKind::kBackward:
      return "backward";
    case OpKind::kRecompute:
      return "recompute";
    case OpKind::kReduceScatter:
      return "reduce_scatter";
    case OpKind::kAllReduce:
      return "all_reduce";
    case OpKind::kFree:
      return "free";
    case OpKind::kClip:
      return "clip";
    case OpKind::kStep:
      return "step";
    case OpKind::kReport:
      return "report";
    case OpKind::kBarrier:
      return "barrier";
  }
  return "unknown";
}

bool is_collective(OpKind kind) noexcept {
  switch (kind) {
    case OpKind::kTokenCount:
    case OpKind::kGather:
    case OpKind::kReduceScatter:
    case OpKind::kAllReduce:
    case OpKind::kClip:
    case OpKind::kReport:
    case OpKind::kBarrier:
      return true;
    case OpKind::kForward:
    case OpKind::kBackward:
    case OpKind::kRecompute:
    case OpKind::kFree:
    case OpKind::kStep:
      return false;
  }
  return false;
}

std::string_view name_of(Lane lane) noexcept {
  switch (lane) {
    case Lane::kCompute:
      return "compute";
    case Lane::kGather:
      return "gather";
    case Lane::kReduce:
      return "reduce";
    case Lane::kP2p:
      return "p2p";
    case Lane::kCopy:
      return "copy";
  }
  return "unknown";
}

}  // namespace wirewise
