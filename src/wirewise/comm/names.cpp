#include "wirewise/comm/names.h"

namespace wirewise::comm {

const char* name_of(Operation operation) noexcept {
  switch (operation) {
    case Operation::kAllReduce: return "all_reduce";
    case Operation::kAllGather: return "all_gather";
    case Operation::kReduceScatter: return "reduce_scatter";
    case Operation::kBroadcast: return "broadcast";
    case Operation::kReduce: return "reduce";
    case Operation::kGather: return "gather";
    case Operation::kScatter: return "scatter";
    case Operation::kAllToAll: return "all_to_all";
    case Operation::kBarrier: return "barrier";
    case Operation::kSend: return "send";
    case Operation::kRecv: return "recv";
  }
  return "unknown operation";
}

const char* name_of(Reduction reduction) noexcept {
  switch (reduction) {
    case Reduction::kSum: return "sum";
    case Reduction::kAverage: return "average";
    case Reduction::kProduct: return "product";
    case Reduction::kMin: return "min";
    case Reduction::kMax: return "max";
    case Reduction::kBitAnd: return "bit and";
    case Reduction::kBitOr: return "bit or";
    case Reduction::kBitXor: return "bit xor";
  }
  return "unknown reduction";
}

bool reduces(Operation operation) noexcept {
  return operation == Operation::kAllReduce || operation == Operation::kReduceScatter || operation == Operation::kReduce;
}

bool is_message(Operation operation) noexcept { return operation == Operation::kSend || operation == Operation::kRecv; }

}  // namespace wirewise::comm
