// Python's arithmetic of sizes and of numbers that were taken from tensors.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <string>

namespace lockstep::program {

// Throws std::runtime_error for a division by zero, and where 64 bits are too few: Python's integers have no
// end.
using SizeOperation = c10::IValue (*)(c10::ArrayRef<c10::IValue> arguments);

// The function for "_operator.mul", or null. arguments: how many it is given.
SizeOperation size_operation(const std::string& target, size_t arguments);

}  // namespace lockstep::program
