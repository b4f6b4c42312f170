#include <lockstep/app/train/plan/program_labels.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <string>
#include <vector>

#include <lockstep/app/train/plan/labels.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/losses.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

// Null for a program that does not say.
const Program::Tensor* output_of(const Program& program, const LossChoice& choice) {
  const auto& outputs = program.outputs();
  const auto found = choice.output.empty()
                         ? outputs.begin()
                         : std::ranges::find(outputs, choice.output, &Program::Tensor::name);
  return found == outputs.end() ? nullptr : &*found;
}

// The number of classes that the chosen loss takes, where it takes classes and the program says how many; and
// the class that does not count.
struct Labels {
  int64_t classes = 0;
  std::optional<int64_t> ignored = {};
  const char* hint = "";
};

std::optional<Labels> labels_of(const Program& program, const LossChoice& choice) {
  if (const auto classes = logits_of(program, choice)) {
    return Labels{*classes,
                  {},
                  "classes count from 0: number them anew, or name another output with --loss "
                  "classification:OUTPUT"};
  }
  const auto* output = output_of(program, choice);
  if (choice.loss != ProgramLoss::kCrossEntropy || !output || output->sizes.size() != 3 ||
      output->sizes.back() <= 0) {
    return std::nullopt;
  }
  return Labels{output->sizes.back(), kIgnoredToken, "tokens count from 0; -100 is not counted"};
}

// How targets that are no classes become some, or another loss takes them.
std::string class_hint(const TensorSpec& target) {
  if (torch::isFloatingType(target.dtype)) {
    return label_hint(target) + ", or choose a loss of numbers: --loss mse";
  }
  const bool one = target.row_shape.empty() || target.row_shape == std::vector<int64_t>{1};
  return one ? label_hint(target) : "for a class per token choose --loss cross_entropy";
}

// Is for rows whose targets were never looked at.
void check_count(const Program& program, int64_t logits, const TrainingData& data) {
  if (data.classes.value_or(0) <= logits) return;
  throw DataError(fmt::format("the data have the classes 0 to {}, but the output of {} has {}",
                              with_commas(*data.classes - 1), in_quotes(program.path().native()),
                              counted(logits, "logit")),
                  "name another output with --loss classification:OUTPUT, or other data");
}

// Only their values are in question.
bool has_one_integer_per_row(const TrainingData& data) {
  return data.test_faults.outside && data.spec.back().row_shape.empty();
}

}  // namespace

std::optional<int64_t> logits_of(const Program& program, const LossChoice& choice) {
  const auto* output = output_of(program, choice);
  if (choice.loss != ProgramLoss::kClassification || !output || output->sizes.size() != 2)
    return std::nullopt;
  const auto classes = output->sizes.back();
  return classes > 0 ? std::optional(classes) : std::nullopt;
}

void check_labels(const Program& program, const LossChoice& choice, const TrainingData& data,
                  bool test_only) {
  if (choice.loss == ProgramLoss::kClassification && !data.classes &&
      !(test_only && has_one_integer_per_row(data))) {
    throw DataError(fmt::format("--loss classification takes a class number per row, and {} has none: {}",
                                data.name, data.no_classes),
                    class_hint(data.spec.back()));
  }
  const auto labels = labels_of(program, choice);
  if (!labels) return;
  if (!data.test_faults.outside) return check_count(program, labels->classes, data);
  for (const auto* faults : {&data.train_faults, &data.test_faults}) {
    if (test_only && faults == &data.train_faults) continue;
    const auto found = faults->outside(labels->classes, labels->ignored);
    if (found.empty()) continue;
    throw DataError(fmt::format("{}, but the output of {} has {}: classes 0 to {}", found,
                                in_quotes(program.path().native()), counted(labels->classes, "logit"),
                                with_commas(labels->classes - 1)),
                    labels->hint);
  }
}

}  // namespace lockstep
