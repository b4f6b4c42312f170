// What a library has to say while it works (a fallback taken, a setting that will be slow) goes to this
// callback; the program decides where it is shown. It may be called from any thread and must not throw.
#pragma once

#include <functional>
#include <string_view>

namespace lockstep {

using Notice = std::function<void(std::string_view message)>;

}  // namespace lockstep
