#include <lockstep/parallel/check_split.h>

#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/batch_norm/norms.h>
#include <lockstep/parallel/replica_random.h>
#include <lockstep/parallel/training/model_errors.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/parallel/training/replica_models.h>
#include <lockstep/parallel/training/split_outcome.h>
#include <lockstep/parallel/training/training_modes.h>
#include <lockstep/support/batch_statistics.h>
#include <lockstep/support/error.h>
#include <lockstep/support/module_tensors.h>
#include <lockstep/support/row_numbers.h>

namespace lockstep {
namespace {

constexpr int64_t kFewestRows = 5;  // two parts of other sizes, with two rows or more for a batch norm

class SplitCheck {
 public:
  SplitCheck(const ModelFactory& factory, const SourceFactory& source, std::span<const int64_t> rows,
             BnPolicy bn);

  void run();

 private:
  // A batch norm that is in training mode when the model trains.
  struct Norm {
    std::string name;
    torch::nn::Module* module;
  };

  void take_modes(BnPolicy bn);
  void read(const BatchSource& source, std::span<const int64_t> rows);
  Batch gather(const BatchSource& source, std::span<const int64_t> rows, bool& drew) const;
  ShardOutcome compute(const Batch& rows, bool& drew) const;
  ShardOutcome outcome_of(const Batch& rows, const std::string& place) const;
  Params gradients_of(const torch::Tensor& loss) const;
  SplitOutcome split() const;
  void require_sums();
  void require_nothing_of_no_rows();
  void require_weight_of_the_batch();
  void require_no_norms();
  void require_the_same_in_training();
  void set_norms(bool training) const {
    for (const auto& norm : norms_) norm.module->train(training);
  }

  Model model_;
  std::vector<NamedTensor> trained_;  // the parameters
  std::vector<Norm> norms_;           // that count: none with BnPolicy::kSync
  TrainingModes training_;         // of the parts when the model trains; batch norms are in evaluation mode
  bool computes_no_rows_ = false;  // a replica without rows runs the model
  Batch whole_;
  std::vector<Batch> parts_;
};

// The action draws numbers that are not those of torch's default generator. drew: becomes true if it draws.
template <class Action>
auto with_own_numbers(bool& drew, const Action& action) {
  const auto generator = replica_generator(/*seed=*/0, /*step=*/0, /*rank=*/0);
  const auto before = generator.get_state();
  const ReplicaRandom random(generator);
  auto result = action();
  drew |= !generator.get_state().equal(before);
  return result;
}

SplitCheck::SplitCheck(const ModelFactory& factory, const SourceFactory& source,
                       std::span<const int64_t> rows, BnPolicy bn) {
  require_factories(factory, source);
  if (rows.size() < kFewestRows) {
    throw UsageError(fmt::format("a check of {} rows", rows.size()),
                     fmt::format("give at least {}: they are split into two parts", kFewestRows));
  }
  ThreadRandom::prepare();
  bool drew = false;
  model_ = with_own_numbers(drew, [&] { return new_model(factory); });
  move_module(*model_.module, torch::kCPU, torch::kFloat64);
  for (auto& param : distinct_parameters(*model_.module)) {
    if (param.tensor.requires_grad()) trained_.push_back(std::move(param));
  }
  take_modes(bn);
  const torch::Device host[] = {torch::kCPU};
  read(*sources_for(host, source).front(), rows);
}

void SplitCheck::take_modes(BnPolicy bn) {
  if (!model_.module->is_training()) model_.module->train();  // as Trainer does
  model_.module->apply([&](const std::string& name, torch::nn::Module& part) {
    if (!is_batch_norm(part) || !part.is_training()) return;
    norms_.push_back({.name = name.empty() ? "(the model itself)" : name, .module = &part});
    if (bn == BnPolicy::kSync && dynamic_cast<WholeBatchLayer*>(&part)) computes_no_rows_ = true;
  });
  set_norms(false);
  training_ = TrainingModes(*model_.module);
  if (bn == BnPolicy::kSync) norms_.clear();
}

// Each part is gathered on its own, as each replica does, unless that draws random numbers.
void SplitCheck::read(const BatchSource& source, std::span<const int64_t> rows) {
  bool drew = false;
  whole_ = gather(source, rows, drew);
  const auto first = std::max<size_t>(2, rows.size() / 3);
  for (const auto& [begin, size] : {std::pair(size_t{0}, first), std::pair(first, rows.size() - first)}) {
    parts_.push_back(drew ? whole_.narrow(static_cast<int64_t>(begin), static_cast<int64_t>(size))
                          : gather(source, rows.subspan(begin, size), drew));
  }
}

Batch SplitCheck::gather(const BatchSource& source, std::span<const int64_t> rows, bool& drew) const {
  const auto place = fmt::format("check_split: in the gather of {} rows", rows.size());
  const auto spec = std::make_shared<const BatchSpec>(source.spec());
  torch::Tensor numbers;
  upload_rows(rows, source.size(), torch::kCPU, numbers);
  return with_own_numbers(drew, [&] {
    Batch batch(spec);
    try {
      source.gather(numbers, /*epoch=*/0, batch);
    } catch (const std::exception&) {
      rethrow_at(place);
    }
    require_rows(batch, *spec, numbers.numel(), [&] { return place; });
    return batch;
  });
}

ShardOutcome SplitCheck::compute(const Batch& rows, bool& drew) const {
  const auto place = fmt::format("check_split: in the passes of {} rows", rows.rows());
  return with_own_numbers(drew, [&] {
    try {
      return outcome_of(rows, place);
    } catch (const std::exception&) {
      rethrow_at(place);
    }
  });
}

ShardOutcome SplitCheck::outcome_of(const Batch& rows, const std::string& place) const {
  using Kind = ShardSum::Kind;
  const auto where = [&] { return place; };
  const torch::AutoGradMode with_gradients(true);
  const auto outcome = model_.loss_sum(in_precision(rows, Precision::kFp64));
  require_usable(outcome, model_.metrics, torch::kCPU, /*trains=*/true, where);
  ShardOutcome result{.rows = rows.rows(), .sums = {}, .gradients = gradients_of(outcome.loss)};
  result.add(Kind::kLoss, "the loss", outcome.loss);
  for (size_t i = 0; i < model_.metrics.size(); ++i) {
    const auto& [sum, weight] = outcome.metrics[i];
    const auto name = "metric " + model_.metrics[i].name;
    result.add(Kind::kMetric, "the " + name, sum);
    if (weight.defined()) result.add(Kind::kMetric, "the weight of the " + name, weight);
  }
  if (model_.weight && rows.rows() > 0) {
    const auto weight = model_.weight(rows);
    require_usable_weight(weight, torch::kCPU, where);
    result.add(Kind::kWeight, "the weight of the loss", weight);
  }
  return result;
}

// Zeros for parameters that the loss does not reach.
Params SplitCheck::gradients_of(const torch::Tensor& loss) const {
  Params params;
  for (const auto& [name, tensor] : trained_) params.push_back(tensor);
  auto gradients = torch::autograd::grad({loss}, params, /*grad_outputs=*/{}, /*retain_graph=*/std::nullopt,
                                         /*create_graph=*/false, /*allow_unused=*/true);
  for (size_t i = 0; i < params.size(); ++i) {
    auto& gradient = gradients[i];
    gradient = gradient.defined() ? gradient.to_dense() : torch::zeros_like(params[i]);
    if (gradient.is_complex()) gradient = torch::view_as_real(gradient);
  }
  return gradients;
}

SplitOutcome SplitCheck::split() const {
  SplitOutcome split;
  split.whole = compute(whole_, split.drew);
  for (const auto& part : parts_) split.parts.push_back(compute(part, split.drew));
  return split;
}

void SplitCheck::run() {
  model_.module->eval();
  require_sums();
  if (computes_no_rows_) require_nothing_of_no_rows();
  if (!norms_.empty()) require_no_norms();
  require_the_same_in_training();
  if (model_.weight) require_weight_of_the_batch();
}

void SplitCheck::require_sums() {
  const auto both = split();
  if (both.drew) {
    throw UsageError(
        "the model draws random numbers in evaluation mode, too: what it computes for a batch cannot be "
        "compared with its parts",
        "let it draw where is_training() is true alone; dropout does so by itself");
  }
  if (const auto found = difference_of(both, trained_)) throw UsageError(found->text, found->hint);
}

void SplitCheck::require_nothing_of_no_rows() {
  bool drew = false;
  for (const auto& sum : compute(whole_.narrow(0, 0), drew).sums) {
    if (sum.value == 0) continue;
    throw UsageError(fmt::format("{} of 0 rows is {}", sum.name, number_text(sum.value)),
                     "with " + NamedOption{"bn", "sync", "BnPolicy::kSync"} +
                         " replicas without rows compute, too, and add 0: a mean of no rows is NaN");
  }
}

// Evaluation mode but for the batch norms: nothing else can be the reason.
void SplitCheck::require_no_norms() {
  set_norms(true);
  const auto found = difference_of(split(), trained_);
  set_norms(false);
  if (!found) return;
  throw UsageError(
      fmt::format("in training mode batch norm {} has the statistics of each replica's rows: {}",
                  norms_.front().name, found->text),
      "with " + NamedOption{"bn", "sync", "BnPolicy::kSync"} +
          " lockstep's batch norms have those of the whole batch. Pass it to check_split(), too, or to check "
          "all but the batch norms");
}

void SplitCheck::require_the_same_in_training() {
  training_.restore();
  const auto both = split();
  const auto found =
      both.drew ? std::nullopt : difference_of(both, trained_);  // each replica draws its own numbers
  if (!found) return;
  throw UsageError("in training mode, but not in evaluation mode, " + found->text,
                   "a layer computes with the other rows of its batch, but a replica has its own rows alone");
}

// Changes the parameters.
void SplitCheck::require_weight_of_the_batch() {
  const torch::NoGradGuard no_grad;
  const auto before = model_.weight(whole_).item<double>();
  for (auto& [name, param] : distinct_parameters(*model_.module)) param.mul_(1.5).add_(.1);
  const auto after = model_.weight(whole_).item<double>();
  if (before == after) return;
  throw UsageError(
      fmt::format("the weight of the loss of {} rows is {}, and {} with other parameters", whole_.rows(),
                  number_text(before), number_text(after)),
      "a weight is of the batch alone: all replicas sum it before they compute. Give what depends "
      "on the model as a part of the loss");
}

}  // namespace

void check_split(const ModelFactory& factory, const SourceFactory& source, std::span<const int64_t> rows,
                 BnPolicy bn) {
  SplitCheck(factory, source, rows, bn).run();
}

}  // namespace lockstep
