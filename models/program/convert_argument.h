// Arguments of the file as torch's schemas want them.
#pragma once

#include <ATen/core/function_schema.h>

#include <functional>
#include <string>

#include <lockstep/models/program/resolve.h>

namespace lockstep::program {

// The slot of a value. Throws FormatError for one that is not computed before.
using SlotOf = std::function<int(const std::string& name)>;

// Throws FormatError where the value does not have the schema's type. Dtypes, layouts and memory formats must
// be of their kind: schemas take them as integers, which torch does not check. float_type: of the program.
ReadyArgument convert_argument(const Argument& given, const c10::Argument& wanted,
                               torch::ScalarType float_type, const SlotOf& slot_of);

// The same of what has no schema: arithmetic, the values of a region, and results of a graph.
ReadyArgument convert_value(const Argument& given, const SlotOf& slot_of);

}  // namespace lockstep::program
