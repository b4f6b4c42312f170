// Questions about the arguments of an operation.
#pragma once

#include <algorithm>
#include <string_view>

#include <lockstep/models/program/resolve.h>

namespace lockstep::program {

// A tensor or a number that the graph computes or is given.
inline bool is_value(const ReadyArgument& argument) {
  return argument.kind == ReadyArgument::Kind::kValue || argument.kind == ReadyArgument::Kind::kWrapped;
}

inline bool is_constant(const ReadyArgument& argument, bool value) {
  return argument.kind == ReadyArgument::Kind::kConstant && argument.constant.isBool() &&
         argument.constant.toBool() == value;
}

inline bool is_none(const ReadyArgument& argument) {
  return argument.kind == ReadyArgument::Kind::kConstant && argument.constant.isNone();
}

inline bool is_zero(const ReadyArgument& argument) {
  if (argument.kind != ReadyArgument::Kind::kConstant) return false;
  const auto& number = argument.constant;
  return (number.isDouble() && number.toDouble() == 0) || (number.isInt() && number.toInt() == 0);
}

// Returns the argument of this name of the node's operation, or null.
inline const ReadyArgument* find_argument(const ReadyNode& node, std::string_view name) {
  const auto& wanted = node.operation->schema().arguments();
  const auto found = std::ranges::find_if(wanted, [&](const auto& one) { return one.name() == name; });
  return found == wanted.end() ? nullptr : &node.arguments[static_cast<size_t>(found - wanted.begin())];
}

}  // namespace lockstep::program
