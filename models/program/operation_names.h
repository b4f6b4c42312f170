// The names of torch's operations that programs may call.
#pragma once

#include <string_view>

namespace lockstep::program {

// True for the name of an operation without its overload, such as "linear", that is on the list.
bool is_known_operation(std::string_view base);

}  // namespace lockstep::program
