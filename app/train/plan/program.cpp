#include <lockstep/app/train/plan/program.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <system_error>
#include <tuple>
#include <utility>

#include <lockstep/app/train/plan/program_labels.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>
#include <lockstep/support/suggest.h>

namespace lockstep {
namespace {

constexpr size_t kShownOperations = 4;

OutputLoss output_loss(const Program& program, const LossChoice& choice, ClassificationOptions classes) {
  switch (choice.loss) {
    case ProgramLoss::kMse:
      return mse();
    case ProgramLoss::kSmoothL1:
      return smooth_l1();
    case ProgramLoss::kCrossEntropy:
      return token_cross_entropy();
    default:
      classes.classes = logits_of(program, choice);
      return classification(classes);
  }
}

void check_output(const Program& program, const LossChoice& choice) {
  const auto names = output_names(program);
  if (choice.output.empty() || std::ranges::find(names, choice.output) != names.end()) return;
  const auto near = nearest(choice.output, names);
  throw UsageError(
      fmt::format("--loss {}: {} has no output {}, its outputs are {}", loss_text(choice),
                  in_quotes(program.path().native()), in_quotes(choice.output), fmt::join(names, ", ")),
      near ? fmt::format("did you mean '{}:{}'?", name_of(kProgramLossNames, choice.loss), *near)
           : "name one of them");
}

// The program that was read last. A run that goes on asks for it before it has a plan, and a sweep in each
// cell.
class KeptProgram {
 public:
  std::shared_ptr<const Program> read(const std::string& path) {
    std::error_code no_path, no_size, no_time;
    const State state{std::filesystem::absolute(path, no_path), std::filesystem::file_size(path, no_size),
                      std::filesystem::last_write_time(path, no_time)};
    if (no_path || no_size || no_time) return read_program(path);  // which says why
    const std::lock_guard lock(mutex_);
    if (!program_ || state != state_) {
      program_ = read_program(path);
      state_ = state;
    }
    return program_;
  }

 private:
  using State = std::tuple<std::filesystem::path, std::uintmax_t, std::filesystem::file_time_type>;

  std::mutex mutex_;
  State state_;
  std::shared_ptr<const Program> program_;
};

}  // namespace

std::vector<std::string> output_names(const Program& program) {
  std::vector<std::string> names;
  for (const auto& output : program.outputs()) names.push_back(output.name);
  return names;
}

std::shared_ptr<const Program> open_program(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::status(path, ignored).type() == std::filesystem::file_type::not_found) {
    throw WeightsError(fmt::format("cannot read the program {}: there is no such file", in_quotes(path)),
                       "--program FILE names one that scripts/export_program.py or torch.export.save has "
                       "written");
  }
  static auto& kept = *new KeptProgram;  // until the process ends, as a plan's
  return kept.read(path);
}

ModelFactory program_model(const std::shared_ptr<const Program>& program, const LossChoice& choice,
                           const ClassificationOptions& classes, Kernels kernels) {
  check_output(*program, choice);
  if (choice.loss == ProgramLoss::kOwn) return program_factory_own_loss(program, choice.output, kernels);
  return program_factory(program, output_loss(*program, choice, classes), choice.output, kernels);
}

void check_has_evaluation(const Program& program) {
  if (program.has_eval_graph()) return;
  throw WeightsError(fmt::format("{} has no evaluation graph, and its training graph computes something else "
                                 "than the network in evaluation mode",
                                 in_quotes(program.path().native())),
                     "export it with scripts/export_program.py, which writes both graphs into one file");
}

void check_program(const TrainPlan& plan) {
  if (!plan.program) return;
  const auto& program = *plan.program;
  const auto& replica = plan.trainer.replica;
  const auto path = in_quotes(program.path().native());
  check_has_evaluation(program);
  // On CPUs each of the parts that --invariant computes has a generator of its own.
  if (replica.invariant && program.random() && any_gpu(plan.trainer.devices)) {
    throw UsageError(
        fmt::format("--invariant on GPUs cannot be combined with {}: it draws random numbers, such "
                    "as for dropout, from the generator of a GPU",
                    path),
        "leave --invariant out, or export the network without dropout");
  }
  if (replica.invariant && (program.writes_buffers() || !program.unmatched_norms().empty())) {
    throw UsageError(fmt::format("--invariant cannot be combined with {}: training changes buffers of its "
                                 "own, whose values would depend on the number of replicas",
                                 path),
                     "leave --invariant out");
  }
  if (const auto norms = program.unmatched_norms(); plan.trainer.bn == BnPolicy::kAverage && !norms.empty()) {
    throw UsageError(
        fmt::format("--bn average cannot be combined with {}: the averages of a batch norm belong "
                    "to no module ({})",
                    path, norms.front()),
        "use --bn root or --bn sync");
  }
  if (replica.cuda_graph == CudaGraph::kOn && !program.captures()) {
    throw UsageError(fmt::format("--cuda-graph on cannot be combined with {}: the size of an operation's "
                                 "result depends on the data",
                                 path),
                     "use --cuda-graph off");
  }
}

std::string tensor_text(const Program::Tensor& tensor) {
  std::vector<std::string> sizes;
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    sizes.push_back(tensor.sizes[i] >= 0 ? std::to_string(tensor.sizes[i]) : i == 0 ? "n" : "*");
  }
  return fmt::format("{} {} [{}]", tensor.name, torch::toString(tensor.dtype), fmt::join(sizes, ", "));
}

std::string operations_text(const Program& program) {
  std::vector<std::pair<int64_t, std::string>> counts;
  int64_t all = 0;
  for (const auto& [name, count] : program.operations()) {
    const auto colon = name.rfind("::");
    counts.emplace_back(count, colon == std::string::npos ? name : name.substr(colon + 2));
    all += count;
  }
  std::ranges::stable_sort(counts, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> shown;
  for (const auto& [count, name] : std::span(counts).first(std::min(counts.size(), kShownOperations))) {
    shown.push_back(fmt::format("{} {}", name, with_commas(count)));
  }
  return fmt::format("{} of {}: {}{}", counted(all, "operation"),
                     counted(static_cast<int64_t>(counts.size()), "kind"), fmt::join(shown, ", "),
                     counts.size() > shown.size() ? ", ..." : "");
}

std::string program_kernels_text(const TrainPlan& plan) {
  const auto fused = plan.program->fused_batch_norms();
  const auto type = type_of_layers(plan.trainer.replica.precision);
  const bool fits = type == torch::kFloat32 || type == torch::kBFloat16;
  if (plan.kernels == Kernels::kTorch || fused == 0 || !fits || !any_cpu(plan.trainer.devices)) {
    return "torch's kernels only";
  }
  return fmt::format(
      "in training lockstep's kernels{} for {}, with the convolutions before and ReLU after {}",
      plan.kernels == Kernels::kDirect ? " without Winograd tiles" : "", counted(fused, "batch norm"),
      fused == 1 ? "it" : "them");
}

std::string eval_form_text(const Program::EvalForm& form) {
  std::vector<std::string> parts;
  if (form.batch_norms > 0) parts.push_back(counted(form.batch_norms, "batch norm"));
  if (form.dropouts > 0) parts.push_back(counted(form.dropouts, "dropout"));
  if (parts.empty()) return "";
  return fmt::format("{} compute{} as after eval(), also in training", fmt::join(parts, " and "),
                     form.batch_norms + form.dropouts == 1 ? "s" : "");
}

std::optional<std::string> eval_form_notice(const Program& program) {
  const auto form = program.eval_form();
  if (!form.whole) return std::nullopt;
  return fmt::format(
      "{} was exported after eval(): {}; to train them, export it after train(), or with "
      "scripts/export_program.py",
      in_quotes(program.path().native()), eval_form_text(form));
}

std::vector<std::pair<std::string, std::string>> program_rows(const Program& program) {
  const auto list = [](const std::vector<Program::Tensor>& tensors) {
    std::vector<std::string> texts;
    for (const auto& tensor : tensors) texts.push_back(tensor_text(tensor));
    return fmt::format("{}", fmt::join(texts, ", "));
  };
  std::vector<std::pair<std::string, std::string>> rows{
      {"program", fmt::format("{}, exported by torch {}, SHA-256 {}", printable(program.path().native()),
                              program.torch_version(), program.digest().substr(0, 16))},
      {"inputs", list(program.inputs())},
      {"outputs", list(program.outputs())},
      {"graph", operations_text(program)}};
  if (auto text = eval_form_text(program.eval_form()); !text.empty()) rows.emplace_back("mode", text);
  const auto range = program.rows(/*training=*/true);
  if (range.least > 1 || range.most < INT64_MAX) rows.emplace_back("shards", row_range_text(range));
  return rows;
}

}  // namespace lockstep
