// The variables that `lockstep launch` gives its processes beside torchrun's.
#pragma once

namespace lockstep {

inline constexpr const char* kLauncherVariable = "LOCKSTEP_RUN_LAUNCHER";  // "lockstep"
inline constexpr const char* kTokenVariable = "LOCKSTEP_RUN_TOKEN";        // 32 hex digits: the run's secret

}  // namespace lockstep
