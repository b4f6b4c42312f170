// Looks at the numbers of rows: which classes they have, and what a loss may refuse.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/data/training_data.h>
#include <lockstep/support/types.h>

namespace lockstep {

// As TrainingData::classes and no_classes.
struct RowClasses {
  std::optional<int64_t> count = {};
  std::string why_none = {};
};

// Both batches have one spec: inputs, then targets.
RowClasses classes_of(const Batch& train, const Batch& test);

// Looks at each number of floats. part: how messages call the rows, "train" or "test".
RowFaults faults_in(const Batch& rows, const char* part);

}  // namespace lockstep
