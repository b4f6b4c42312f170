#include <lockstep/app/train/plan/first_pass.h>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/machine/tensor_memory.h>
#include <lockstep/app/train/plan/loss_choice.h>
#include <lockstep/app/train/plan/program.h>
#include <lockstep/models/program.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/parallel/training/replica_models.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>
#include <lockstep/support/thread_random.h>

namespace lockstep {
namespace {

// Rows of these tensors in which all numbers are 0, for a model in fp32.
Batch rows_of_zeros(const BatchSpec& spec, int64_t rows) {
  Batch batch(std::make_shared<const BatchSpec>(spec));
  for (size_t i = 0; i < batch.size(); ++i) {
    auto sizes = spec[i].row_shape;
    sizes.insert(sizes.begin(), rows);
    const bool follows = spec[i].role == Role::kInput && torch::isFloatingType(spec[i].dtype);
    batch[i] = torch::zeros(sizes, follows ? torch::kFloat32 : spec[i].dtype);
  }
  return batch;
}

// The first rows of a data set.
Batch first_rows(const DataRows& data, int64_t rows, Precision precision) {
  const auto source = data.sources(torch::kCPU);
  Batch batch(std::make_shared<const BatchSpec>(source->spec()));
  source->gather(torch::arange(rows), 0, batch);
  return in_precision(batch, precision);
}

// Notes that a backward pass has reached a parameter, also one to which it gives no gradient: so do the hooks
// of the trainer.
class ReachedHook : public torch::autograd::PostAccumulateGradHook {
 public:
  ReachedHook(std::string name, std::set<std::string>& reached) : name_(std::move(name)), reached_(reached) {}
  void operator()(const torch::Tensor&) override { reached_.insert(name_); }

 private:
  const std::string name_;
  std::set<std::string>& reached_;
};

// Fills `reached` with the names of the parameters that a backward pass reaches. It must outlive the pass.
void note_reached(const Model& model, std::set<std::string>& reached) {
  for (const auto& param : model.module->named_parameters()) {
    if (!param->requires_grad()) continue;
    torch::autograd::impl::set_post_acc_grad_hooks(*param,
                                                   std::make_unique<ReachedHook>(param.key(), reached));
  }
}

// Throws UsageError if the loss does not depend on each parameter that trains, as each step requires.
void require_gradients(const TrainPlan& plan, const Model& model, const std::set<std::string>& reached) {
  constexpr size_t kShown = 4;
  std::vector<std::string> missing;
  size_t all = 0;
  for (const auto& param : model.module->named_parameters()) {
    if (!param->requires_grad()) continue;
    ++all;
    if (!reached.contains(param.key())) missing.push_back(param.key());
  }
  if (missing.empty()) return;
  const auto outputs = output_names(*plan.program);
  const auto unreached = missing.size();
  if (unreached > kShown) missing.resize(kShown);
  const auto choose =
      fmt::format("choose another output with --loss NAME:OUTPUT ({}), or ", fmt::join(outputs, ", "));
  throw UsageError(
      fmt::format("--loss {}: it depends on {} of the {} parameters of {}, and not on {}{}",
                  loss_text(*plan.loss), all - unreached, all, in_quotes(plan.program->path().native()),
                  fmt::join(missing, ", "), unreached > kShown ? ", ..." : ""),
      (outputs.size() > 1 ? choose : "") +
          "freeze the others in Python with requires_grad_(False) and export it again");
}

// The bytes that a step held at most, beside the weights and their gradients.
int64_t bytes_of_step(const Model& model, const Batch& rows) {
  int64_t gradients = 0;
  for (auto& param : model.module->parameters()) {
    if (param.requires_grad()) gradients += static_cast<int64_t>(param.nbytes());
    param.mutable_grad() = torch::Tensor();
  }
  const auto bytes = peak_tensor_bytes([&] {
    const auto loss = model.loss_sum(rows).loss;
    if (loss.requires_grad()) loss.backward();
  });
  return std::max<int64_t>(0, bytes - gradients);
}

// Lockstep's kernels hold more than torch's of the weights, whatever the number of rows.
bool holds_weights(const TrainPlan& plan) {
  return plan.kernels != Kernels::kTorch && plan.program->fused_batch_norms() > 0;
}

}  // namespace

// A program that takes no number of rows has a least one above its most.
int64_t rows_to_try(const Program::Rows& allowed) {
  return std::min(std::max<int64_t>(2, allowed.least), allowed.most);
}

// In a thread of its own, since torch ties its number of threads to the thread that computes first.
void touch_kernels(const TrainPlan& plan, const Model& model) {
  ReplicaWorkers worker({torch::kCPU}, plan.trainer.threads);
  worker.run([&](int) {
    const AutocastGuard autocast(plan.trainer.replica.precision, torch::kCPU);
    model.loss_sum(rows_of_zeros(plan.data.set.spec, 2)).loss.backward();
  });
}

StepBytes try_program(const TrainPlan& plan, const Model& model) {
  const auto precision = plan.trainer.replica.precision;
  move_module(*model.module, torch::kCPU, dtype_of(precision));
  const auto& set = plan.data.set;
  const auto allowed = plan.program->rows(/*training=*/true),
             evaluated = plan.program->rows(/*training=*/false);
  const auto count = std::min(rows_to_try(allowed), set.train.rows);
  StepBytes step;
  ReplicaWorkers worker({torch::kCPU}, plan.trainer.threads);
  worker.run([&](int) {
    // Torch's generator draws afterwards what it would have drawn.
    const ThreadRandom random(at::make_generator<at::CPUGeneratorImpl>(plan.trainer.seed));
    const AutocastGuard autocast(precision, torch::kCPU);
    std::set<std::string> reached;
    note_reached(model, reached);
    const auto bytes = bytes_of_step(model, first_rows(set.train, count, precision));
    require_gradients(plan, model, reached);
    step.per_row = std::max<int64_t>(1, bytes / count);
    if (holds_weights(plan) && 2 * count <= std::min(allowed.most, set.train.rows)) {
      const auto twice = bytes_of_step(model, first_rows(set.train, 2 * count, precision));
      step.per_row = std::max<int64_t>(1, (twice - bytes) / count);
      step.fixed = std::max<int64_t>(0, bytes - step.per_row * count);
    }
    const torch::NoGradGuard no_grad;
    model.module->eval();
    model.loss_sum(first_rows(set.test, std::min(rows_to_try(evaluated), set.test.rows), precision));
  });
  return step;
}

}  // namespace lockstep
