// The functions of Trainer that make sure that all replicas have the same metrics and batches.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/training/model_errors.h>
#include <lockstep/parallel/training/step_history.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// told: a CommonCall, or any number, where a transport has mixed up two collectives.
const char* name_of_call(double told) {
  constexpr std::pair<CommonCall, const char*> kNames[] = {
      {CommonCall::kTakeSums, "calls take_sums()"},
      {CommonCall::kState, "calls state()"},
      {CommonCall::kLoad, "calls load()"},
      {CommonCall::kCheckSync, "calls check_sync()"},
      {CommonCall::kEvaluate, "calls evaluate()"},
      {CommonCall::kPredict, "calls predict()"},
      {CommonCall::kEndEpoch, "is at the end of an epoch"}};
  for (const auto& [call, name] : kNames) {
    if (static_cast<double>(call) == told) return name;
  }
  return "does something else";
}

// own, first: what this rank and rank 0 have told.
[[noreturn]] void refuse_calls(int rank, double own, double first) {
  constexpr auto kLeaves = static_cast<double>(CommonCall::kLeaveEpoch);
  if (own == kLeaves || first == kLeaves) {
    throw PeerError(fmt::format("the process of rank {} left train_epochs() by an exception",
                                first == kLeaves ? 0 : rank),
                    "see the error of that process");
  }
  throw UsageError(fmt::format("the process of rank {} {} where that of rank 0 {}", rank, name_of_call(own),
                               name_of_call(first)),
                   "make the same calls in all processes, also in callbacks of train_epochs()");
}

}  // namespace

// The sums of all replicas are added by their place.
void Trainer::agree_on_metrics() const {
  std::vector<Lines> all;
  for (const auto& model : models_) {
    auto& lines = all.emplace_back();
    for (const auto& [name, type, own_weight, finish] : model.metrics) {
      if (std::ranges::count(model.metrics, name, &MetricKind::name) > 1) {
        throw UsageError(fmt::format("the model declares two metrics named {}", name),
                         "give each its own name");
      }
      lines.push_back(fmt::format("{}: a {}{}", name, type == MetricType::kCount ? "count" : "mean",
                                  own_weight ? " with its own weight" : ""));
    }
    if (model.weight) lines.emplace_back("a weight of the loss");
  }
  constexpr const char* kHint = "declare the same metrics, in the same order, for all replicas";
  require_same(all, "replica", "metrics", kHint);
  agree(options_.process_group.get(), "metrics", all.front(), kHint);
}

// One loss takes the rows of all sets, in every process.
void Trainer::agree_on_batches() const {
  const auto training = train_sources_.front()->spec();
  Lines lines;
  const auto add = [&](const BatchSource& source, const BatchSpec& spec) {
    for (const auto& tensor : spec) lines.push_back(to_string(tensor));
    lines.push_back(fmt::format("{} rows", source.size()));
    if (auto settings = source.settings(); !settings.empty()) lines.push_back(std::move(settings));
  };
  add(*train_sources_.front(), training);
  for (const auto& [name, sources] : test_sources_) {
    const auto test = sources.front()->spec();
    require_alike(training, test, fmt::format("the {} set", name));
    lines.push_back(fmt::format("a {} set", name));
    add(*sources.front(), test);
  }
  agree(options_.process_group.get(), "batches", lines, "give all processes the same data sets");
}

// A collective of replicas, not of processes, as steps are: processes that have taken other numbers of steps
// meet in it, or get the error of two collectives that differ.
void Trainer::require_same_history(CommonCall call) {
  calls_differ_ = false;
  if (world_size() == local_size()) return;  // one caller makes all calls
  wait_for_steps(0);
  const auto told = gather_over_ranks([&](size_t i) {
    return torch::tensor({static_cast<double>(call), static_cast<double>(steps_taken_), history_->rows(),
                          history_->rates()},
                         torch::kFloat64)
        .to(workers_.devices()[i]);
  });
  const auto of = [&](int rank, int i) { return told[rank][i].item<double>(); };
  constexpr const char* kGiven[] = {"", "numbers of steps", "rows", "learning rates"};
  // Steps that were taken do not count for a state that takes their place, or for who leaves.
  const bool compares_steps = call != CommonCall::kLoad && call != CommonCall::kLeaveEpoch;
  for (int rank = 1; rank < world_size(); ++rank) {
    if (of(rank, 0) != of(0, 0)) {
      calls_differ_ = true;
      refuse_calls(rank, of(rank, 0), of(0, 0));
    }
    for (int i = 1; compares_steps && i < 4; ++i) {
      if (of(rank, i) == of(0, i)) continue;
      calls_differ_ = true;
      throw UsageError(
          fmt::format("the process of rank {} has given other {} than that of rank 0", rank, kGiven[i]),
          "every process calls Trainer::step() with the same rows and epoch, and sets the same rate");
    }
  }
}

}  // namespace lockstep
