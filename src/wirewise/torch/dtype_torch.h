// Element types between the project and ATen.
#pragma once

#include <c10/core/ScalarType.h>

#include "wirewise/base/dtype.h"

namespace wirewise {

/// The ATen type of a DType.
[[nodiscard]] c10::ScalarType to_scalar_type(DType dtype);
/// The DType of an ATen type. Throws bad input that names types which collectives and checkpoints don't know (complex, float8 …).
[[nodiscard]] DType to_dtype(c10::ScalarType type);

}  // namespace wirewise
