// An exported program in a plan: its loss, what of a run it excludes, and the words for it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/files/weights_file.h>
#include <lockstep/app/train/plan/loss_choice.h>
#include <lockstep/app/train/plan/train_plan.h>
#include <lockstep/models/program.h>
#include <lockstep/support/losses.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Reads the program, unless it was the last one and its file is as it was. Throws WeightsError, which names
// --program where there is no such file.
std::shared_ptr<const Program> open_program(const std::string& path);

// Replicas of the program with this loss. classes: of a classification, without their number. Throws
// UsageError, with the names that there are, for an output that the program does not have.
ModelFactory program_model(const std::shared_ptr<const Program>& program, const LossChoice& choice,
                           const ClassificationOptions& classes = {}, Kernels kernels = Kernels::kAuto);

// Throws WeightsError for a program that computes something else in training than in evaluation and has no
// graph for that.
void check_has_evaluation(const Program& program);

// Throws UsageError, with the numbers, if an evaluation of so many rows would give a replica more or fewer
// rows at once than the program allows.
void check_evaluation_rows(const Program& program, int64_t rows);

// Throws UsageError for settings of this run that its program cannot honour, and what
// check_has_evaluation() throws. Does nothing for other models.
void check_program(const TrainPlan& plan);

// Throws DataError for data whose tensors or labels do not fit the program and its loss, and UsageError, with
// the numbers, if a replica would get more or fewer rows at once than the program allows: in a step, in the
// last step of an epoch, in a micro-batch or in an evaluation. Does nothing for other models.
void check_program_rows(const TrainPlan& plan);

// One row of the plan each: a name and its value.
std::vector<std::pair<std::string, std::string>> program_rows(const Program& program);

// "image Float [n, 3, 32, 32]"
std::string tensor_text(const Program::Tensor& tensor);

// "conv2d 20, batch_norm 20, relu 17 and 30 more of 9 kinds"
std::string operations_text(const Program& program);

// "lockstep's kernels for 17 of 20 batch norms, ...", or that torch's compute all.
std::string program_kernels_text(const TrainPlan& plan);

// "2 to 8 rows at once, but not 0 (WHY)".
std::string row_range_text(const Program::Rows& rows);

// "2 batch norms and 1 dropout compute as after eval(), also in training"; empty for none.
std::string eval_form_text(const Program::EvalForm& form);

// A warning for a program that as a whole is as after eval(), which freezes it in silence.
std::optional<std::string> eval_form_notice(const Program& program);

// In order.
std::vector<std::string> output_names(const Program& program);

}  // namespace lockstep
