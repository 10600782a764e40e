#include "wirewise/torch/dtype_torch.h"

#include <string>

#include "wirewise/base/error.h"

namespace wirewise {

c10::ScalarType to_scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return c10::kFloat;
    case DType::kFloat64: return c10::kDouble;
    case DType::kFloat16: return c10::kHalf;
    case DType::kBFloat16: return c10::kBFloat16;
    case DType::kInt8: return c10::kChar;
    case DType::kUInt8: return c10::kByte;
    case DType::kInt16: return c10::kShort;
    case DType::kInt32: return c10::kInt;
    case DType::kInt64: return c10::kLong;
    case DType::kBool: return c10::kBool;
  }
  return c10::kFloat;
}

DType to_dtype(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat: return DType::kFloat32;
    case c10::kDouble: return DType::kFloat64;
    case c10::kHalf: return DType::kFloat16;
    case c10::kBFloat16: return DType::kBFloat16;
    case c10::kChar: return DType::kInt8;
    case c10::kByte: return DType::kUInt8;
    case c10::kShort: return DType::kInt16;
    case c10::kInt: return DType::kInt32;
    case c10::kLong: return DType::kInt64;
    case c10::kBool: return DType::kBool;
    default:
      throw bad_input(std::string("tensors of type ") + c10::toString(type) + " are not supported.",
                      "Convert to float32, float64, float16, bfloat16, bool or an integer of up to 64 bits first.");
  }
}

}  // namespace wirewise
