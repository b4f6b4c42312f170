// What a run does about a loss that is not finite, and about a checkpoint that cannot be written.
#pragma once

#include <lockstep/support/choices.h>

namespace lockstep {

enum class OnNan {
  kStop,
  kRollback,  // goes on from the newest checkpoint with the batches behind the bad one
  kSkip,      // takes the steps since the newest checkpoint again, but for the bad one
};

inline constexpr Choice<OnNan> kOnNanNames[] = {
    {"stop", OnNan::kStop}, {"rollback", OnNan::kRollback}, {"skip", OnNan::kSkip}};

enum class OnSaveError { kStop, kContinue };

inline constexpr Choice<OnSaveError> kOnSaveErrorNames[] = {{"stop", OnSaveError::kStop},
                                                            {"continue", OnSaveError::kContinue}};

}  // namespace lockstep
