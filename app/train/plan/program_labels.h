// The targets of data, as classes of a program's output.
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/app/train/plan/loss_choice.h>
#include <lockstep/data/training_data.h>
#include <lockstep/models/program.h>

namespace lockstep {

// The logits of a row for a classification, where the program has one fixed number of them.
std::optional<int64_t> logits_of(const Program& program, const LossChoice& choice);

// Throws DataError, with tensor, row and value, unless the targets are classes of the loss, which would
// refuse them only when a batch has them. test_only: the rows for training are not looked at.
void check_labels(const Program& program, const LossChoice& choice, const TrainingData& data,
                  bool test_only = false);

}  // namespace lockstep
