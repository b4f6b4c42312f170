// The labels of a data set, and weights of its classes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/data/training_data.h>
#include <lockstep/support/choices.h>

namespace lockstep {

enum class ClassWeights { kNone, kBalanced };

inline constexpr Choice<ClassWeights> kClassWeightsNames[] = {{"none", ClassWeights::kNone},
                                                              {"balanced", ClassWeights::kBalanced}};

// The one target of each row, in order. Where the data do not know them, inputs are read with them, some rows
// at a time.
std::vector<int64_t> class_labels(const DataRows& rows);

// Returns how a target that is no class per row becomes one, for hints.
std::string label_hint(const TensorSpec& target);

// rows / (classes * rows of the class) for each class, so that all classes weigh alike in the training rows:
// scikit-learn's "balanced". Throws DataError for data without classes, for a label that is none, and for a
// class without training rows.
std::vector<double> balanced_weights(const TrainingData& data);

}  // namespace lockstep
