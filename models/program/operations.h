// The operations that a program may call.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::program {

enum class OperationKind {
  kTorch,       // "torch.ops.aten.linear.default": a name of torch's dispatcher that is on the list
  kArithmetic,  // "_operator.mul", "torch.sym_float", "math.trunc": of sizes
  kRegion,      // with gradients switched on or off: (bool, Graph, values...)
  kAssertion,   // of dtypes and devices at the export: left out
};

// Throws FormatError, without the operation's place, for a target that is not allowed.
OperationKind operation_kind(std::string_view target);

struct TorchName {
  std::string_view base, overload;  // "linear", "default"
};

// The parts of a target of aten, or nothing.
std::optional<TorchName> torch_name(std::string_view target);

// True if the operation changes its first argument: "add_", not "__and__".
bool changes_self(std::string_view base);

// True if a result of the operation may share its memory with an argument.
bool may_be_view(std::string_view base);

}  // namespace lockstep::program
