// Values of a Trainer's options, each for itself (parallel/trainer_options.h).
#pragma once

#include <lockstep/parallel/trainer_options.h>
#include <lockstep/support/error.h>

namespace lockstep {

// Throws UsageError with these texts if `wrong`.
void refuse_if(bool wrong, const ErrorText& what, const ErrorText& hint);

// The option of this name, for a text.
ErrorText named(const char* key);

// Throws UsageError for a value that is out of range, with the value and what it must be.
void check_values(const TrainerOptions& options);

}  // namespace lockstep
