// The reactions of a run to a loss that is not finite, and to a checkpoint that cannot be written.
#pragma once

#include <lockstep/support/choices.h>

namespace lockstep {

enum class OnNan {
  kStop,
  kRollback,  // goes back to the newest checkpoint and leaves out the steps up to the bad one
  kSkip,      // goes back to the newest checkpoint and leaves out the bad step
};

inline constexpr Choice<OnNan> kOnNanNames[] = {
    {"stop", OnNan::kStop}, {"rollback", OnNan::kRollback}, {"skip", OnNan::kSkip}};

enum class OnSaveError { kStop, kContinue };

inline constexpr Choice<OnSaveError> kOnSaveErrorNames[] = {{"stop", OnSaveError::kStop},
                                                            {"continue", OnSaveError::kContinue}};

}  // namespace lockstep
