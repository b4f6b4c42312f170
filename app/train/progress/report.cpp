#include <lockstep/app/train/progress/report.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include <lockstep/app/files/json.h>
#include <lockstep/app/machine/environment.h>
#include <lockstep/app/machine/memory_usage.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

double ms(double seconds) { return 1e3 * seconds; }

int digits(int64_t largest) { return static_cast<int>(std::to_string(largest).size()); }

constexpr size_t kStepLineColumns = 80;  // of a step line

// "step  50/235", or "step  50".
std::string place_in_run(std::string_view noun, int64_t number, int64_t all, bool with_total) {
  const auto text = fmt::format("{} {:>{}}", noun, number, digits(all));
  return with_total ? fmt::format("{}/{}", text, all) : text;
}

// "loss 2.3026 acc 0.100"
std::string epoch_text(const RowSums& sums) {
  const auto headline = headline_text(sums);
  return fmt::format("loss {:.4f}{}{}", sums.mean_loss(), headline.empty() ? "" : " ", headline);
}

// A line below that of these steps; empty where none was skipped.
std::string skipped_line(const StepInterval& steps) {
  if (steps.skipped == 0) return "";
  return fmt::format("\n    {} skipped, gradients not finite | loss scale {:.6g}",
                     counted(steps.skipped, "step"), steps.loss_scale.value_or(0));
}

void add_loss_scale(const StepInterval& steps, Json& json) {
  if (!steps.loss_scale) return;
  json["loss_scale"] = *steps.loss_scale;
  json["skipped"] = steps.skipped;
}

}  // namespace

std::string diverged_hint(const TrainPlan& plan, bool in_evaluation) {
  const auto& set = plan.data.set;
  for (const auto* faults : {&set.train_faults, &set.test_faults}) {
    if (faults->not_finite.empty() || (faults == &set.test_faults && !in_evaluation)) continue;
    return fmt::format("{}: leave such rows out of the data, or replace the number", faults->not_finite);
  }
  return fmt::format(
      "training has diverged; try a learning rate below {:.3g}{}", plan.trainer.lr.lr,
      plan.trainer.replica.precision == Precision::kFp16 ? ", or --precision bf16: fp16 ends at 65,504" : "");
}

double StepInterval::seconds_per_step() const {
  return (end - begin) / static_cast<double>(std::max<int64_t>(steps, 1));  // all may be left out
}

std::optional<StepTimes> StepInterval::mean_times() const {
  if (steps == 0 || !times) return std::nullopt;
  return *times / static_cast<double>(steps);
}

std::string step_line(const StepInterval& steps, const RunPosition& position, const TrainPlan& plan) {
  std::vector<std::string> means;
  for (const auto& metric : steps.sums.metrics) means.push_back(mean_text(steps.sums, metric));
  const auto* bar = means.empty() ? "" : " | ";
  const auto figures =
      fmt::format("loss {:.4f}{}{} | {} {}", steps.sums.mean_loss(), bar, fmt::join(means, " "),
                  with_commas(std::llround(steps.images_per_second())), speed_unit(plan.data.set));
  std::string line;
  for (int totals = 2; totals >= 0 && (line.empty() || line.size() > kStepLineColumns); --totals) {
    line = fmt::format("{} | {} | {}", place_in_run("epoch", position.epoch, plan.epochs, totals > 1),
                       place_in_run("step", position.step, plan.steps_per_epoch, totals > 0), figures);
  }
  return line + skipped_line(steps);
}

std::string epoch_lines(const EpochReport& report, const TrainPlan& plan) {
  const auto& sums = report.trained.sums;
  const auto trained = sums.rows == 0 ? "all steps left out" : "train " + epoch_text(sums);
  auto text =
      fmt::format("{} | {} | test {} | {:.1f} s", place_in_run("epoch", report.epoch, plan.epochs, true),
                  trained, epoch_text(report.test), report.seconds);
  if (report.validation) text += "\n    validation " + epoch_text(*report.validation);
  if (sums.rows == 0) return text;
  text += fmt::format("\n    lr {:.3g}", report.trained.lr);
  if (const auto phases = report.trained.mean_times()) {
    text += fmt::format(" | ms per step: data {:.1f}, compute {:.1f}, sync {:.1f}, update {:.1f}",
                        ms(phases->data), ms(phases->compute), ms(phases->sync), ms(phases->update));
  }
  return text + skipped_line(report.trained);
}

std::string closing_line(const RunReport& report, const TrainPlan& plan) {
  const auto& data = plan.data;
  const auto limited =
      data.test_limited() ? fmt::format(" ({} {}s)", data.test_count(), data.set.row_noun) : "";
  const auto result = report.test_accuracy ? fmt::format("acc: {:.2f}", *report.test_accuracy)
                                           : fmt::format("loss: {:.4f}", report.test_loss);
  return fmt::format("test {}{}, {:.1f} sec/epoch on {}", result, limited, report.seconds_per_epoch,
                     plan.device_lists());
}

Json plan_json(const TrainPlan& plan) {
  Json json{{"event", "plan"}, {"command", command_line()}, {"environment", environment_json()}};
  json.update(plan_fields(plan));
  return json;
}

Json split_json(int64_t step, const std::vector<double>& shares) {
  return Json{{"event", "split"}, {"step", step}, {"shares", shares}};
}

Json step_json(const StepInterval& steps, const RunPosition& position) {
  Json json{{"event", "step"},
            {"epoch", position.epoch},
            {"step", position.step},
            {"loss", steps.sums.mean_loss()}};
  for (const auto& metric : steps.sums.metrics) json[metric.kind.name] = steps.sums.value(metric);
  json["lr"] = steps.lr;
  add_loss_scale(steps, json);
  json["step_ms"] = ms(steps.seconds_per_step());
  json["images_per_second"] = steps.images_per_second();
  json["resident_bytes"] = resident_bytes();
  if (const auto phases = steps.mean_times()) {
    json["data_ms"] = ms(phases->data);
    json["compute_ms"] = ms(phases->compute);
    json["sync_ms"] = ms(phases->sync);
    json["update_ms"] = ms(phases->update);
  }
  return json;
}

Json epoch_json(const EpochReport& report) {
  const auto& trained = report.trained.sums;
  Json json{{"event", "epoch"}, {"epoch", report.epoch}, {"train_loss", trained.mean_loss()}};
  if (!trained.metrics.empty()) {
    const auto& first = trained.metrics.front();
    json[fmt::format("train_{}", epoch_name(first.kind))] = trained.value(first);
  }
  add_loss_scale(report.trained, json);
  json.update(test_means(report.test));
  if (report.validation) {
    const auto means = test_means(*report.validation);
    for (const auto& [key, value] : means.items()) {
      json["validation" + key.substr(std::string_view("test").size())] = value;
    }
  }
  json["train_seconds"] = report.seconds;
  json["test_seconds"] = report.test_seconds;
  return json;
}

Json done_json(const RunReport& report) {
  Json json{{"event", "end"}, {"status", "done"}, {"steps", report.steps}};
  if (report.stopped_early) json["stopped_early"] = true;
  if (report.measured) {
    if (report.test_accuracy) json["test_accuracy"] = *report.test_accuracy;
    if (!report.test_accuracy) json["test_loss"] = report.test_loss;
    json["seconds_per_epoch"] = report.seconds_per_epoch;
  }
  json["peak_resident_bytes"] = report.peak_bytes;
  if (report.weights_sha256) json["weights_sha256"] = *report.weights_sha256;
  return json;
}

Json resumed_json(int64_t steps, const Json& changed) {
  return Json{{"event", "resumed"}, {"steps", steps}, {"changed", changed}};
}

Json went_back_json(int64_t steps, const std::vector<StepRange>& left_out, std::string_view reason) {
  return Json{{"event", "went_back"}, {"steps", steps}, {"left_out", to_json(left_out)}, {"reason", reason}};
}

Json failed_json(std::string_view status, std::string_view reason, int64_t steps) {
  return Json{{"event", "end"}, {"status", status}, {"steps", steps}, {"reason", reason}};
}

}  // namespace lockstep
