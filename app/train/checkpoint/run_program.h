// The exported program that a run has trained.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
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

// Throws WeightsError, with the digest, if the run with this plan has trained a program and there is no such
// file.
void check_program_there(const nlohmann::ordered_json& plan, const std::string& path);

// Throws WeightsError, with both digests, if the run with this plan has trained another program.
void check_same_program(const nlohmann::ordered_json& plan, const Program& program);

// Reads the program of the checkpoint's run. path: where it is now; empty: where it was then. Throws
// WeightsError if the file cannot be read, and, with both digests, if it is another program; UsageError for a
// path beside a run of one of lockstep's models.
RunProgram run_program(const FoundCheckpoint& found, const std::optional<std::string>& path);

}  // namespace lockstep
