// The exported program that a run has trained.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <lockstep/app/train/checkpoint/run_folder.h>
#include <lockstep/app/train/plan/loss_choice.h>

namespace lockstep {

class Program;

struct RunProgram {
  std::shared_ptr<const Program> program;  // null: the run has trained a model of lockstep
  LossChoice loss = {};
};

// Reads the program of the checkpoint's run. path: where it is now; empty: where it was then. Throws
// WeightsError if the file cannot be read, and, with both digests, if it is another program; UsageError for a
// path beside a run of one of lockstep's models.
RunProgram run_program(const FoundCheckpoint& found, const std::optional<std::string>& path);

}  // namespace lockstep
