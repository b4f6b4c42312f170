// How a library says something that is no error.
#pragma once

#include <functional>
#include <string>

namespace lockstep {

// One sentence without a trailing full stop. May be called from several threads at once.
using Notice = std::function<void(const std::string& text)>;

}  // namespace lockstep
