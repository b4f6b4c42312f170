// Callback for warnings.
#pragma once

#include <functional>
#include <string>

namespace lockstep {

// text: one sentence without a full stop at its end. The library may call it from several threads at once.
using Notice = std::function<void(const std::string& text)>;

}  // namespace lockstep
