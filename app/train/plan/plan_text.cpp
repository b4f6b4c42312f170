#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <ranges>
#include <vector>

#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/plan/combinations.h>
#include <lockstep/app/train/plan/pixels.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/plan/program.h>
#include <lockstep/app/train/plan/recipe.h>
#include <lockstep/app/train/plan/sums_text.h>
#include <lockstep/models/costs.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/batches.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

std::string data_text(const LoadedData& data) {
  const auto& set = data.set;
  const auto held_out =
      set.validation ? fmt::format(", {} validation", with_commas(set.validation->rows)) : "";
  auto text = fmt::format("{}, {} training{} and {} test {}s ({})", set.name, with_commas(set.train.rows),
                          held_out, data.test_count(), set.row_noun, data.origin);
  if (!data.set.content.empty()) text += ": " + data.set.content;
  return text;
}

// "10 classes: coat, dress, shirt, shoe and 6 more"; without names that are only numbers.
std::string classes_text(const TrainingData& set) {
  constexpr size_t kShown = 4;
  auto text = *set.classes == 1 ? std::string("1 class") : with_commas(*set.classes) + " classes";
  const auto& names = set.class_names;
  const bool numbers = std::ranges::all_of(
      names, [&](const auto& name) { return name == std::to_string(&name - names.data()); });
  if (numbers) return text;
  std::vector<std::string> shown;
  for (const auto& name : names | std::views::take(kShown)) shown.push_back(printable(name));
  text += fmt::format(": {}", fmt::join(shown, ", "));
  return names.size() > kShown ? text + fmt::format(" and {} more", names.size() - kShown) : text;
}

// Empty for rows that are no images of bytes. The network may get floats of them.
std::string images_text(const TrainPlan& plan) {
  const auto& data = plan.data;
  std::string text;
  if (data.set.row_noun == "image") {
    text = fmt::format("{}, {}, {}", data.kind, fmt::join(data.set.spec.front().row_shape, " x "),
                       classes_text(data.set));
  }
  const auto left_out =
      data.unreadable.empty() ? "" : counted(std::ssize(data.unreadable), "unreadable image") + " left out";
  const auto digest = data.digest.empty() ? std::string() : "files " + data.digest.substr(0, 16);
  for (const auto& more : {data.held, left_out, pixels_text(plan), digest}) {
    if (!more.empty()) text += (text.empty() ? "" : "; ") + more;
  }
  return text;
}

// "512:1,536"
std::string shares_text(const std::vector<int64_t>& sizes) {
  std::vector<std::string> texts;
  std::transform(sizes.begin(), sizes.end(), std::back_inserter(texts), with_commas);
  return fmt::format("{}", fmt::join(texts, ":"));
}

std::string batch_text(const TrainPlan& plan) {
  const auto sizes = shard_sizes(plan.batch_size, plan.world_size(), plan.trainer.split);
  std::string shard;
  if (plan.trainer.auto_split && plan.world_size() > 1) {
    shard = "shares found by timing the first steps";
  } else if (!plan.trainer.split.empty()) {
    shard = fmt::format("split {}", shares_text(sizes));
  } else {
    const auto largest = with_commas(sizes.front());
    shard = sizes.front() == sizes.back()
                ? fmt::format("{} per replica", largest)
                : fmt::format("{} or {} per replica", largest, with_commas(sizes.back()));
  }
  const int64_t last = rows_of_last_batch(plan.data.set.train.rows, plan.batch_size);
  auto text = fmt::format("{} per step, {}; {} per epoch", counted(plan.batch_size, plan.data.set.row_noun),
                          shard, counted(plan.steps_per_epoch, "step"));
  if (plan.steps_per_epoch > 1) text += fmt::format(", the last with {}", with_commas(last));
  if (plan.steps_per_epoch == 1 && last < plan.batch_size) {
    text += fmt::format(", with only {}", counted(last, plan.data.set.row_noun));
  }
  if (plan.trainer.accumulate > 1) {
    text += fmt::format("; each shard in {} micro-batches", with_commas(plan.trainer.accumulate));
  }
  return text;
}

// Empty for a constant rate.
std::string schedule_text(const LrSchedule& lr) {
  if (lr.schedule == Schedule::kConstant) return "";
  std::string text(name_of(kScheduleNames, lr.schedule));
  text += " schedule";
  if (lr.schedule == Schedule::kExponential) {
    text += fmt::format(": times {} after each epoch", lr.exponential.gamma);
  }
  if (lr.schedule == Schedule::kPlateau) {
    text += fmt::format(": times {} where the test loss has not fallen for more than {}", lr.plateau.factor,
                        counted(lr.plateau.patience, "epoch"));
  }
  return fmt::format(" ({})", text);
}

const char* words_of(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::kSgd:
      return "SGD";
    case OptimizerKind::kAdam:
      return "Adam";
    case OptimizerKind::kAdamW:
      return "AdamW";
  }
  return "an optimizer";
}

std::string training_text(const TrainPlan& plan) {
  const auto& optimizer = plan.trainer.replica.optimizer;
  auto text = fmt::format("{} ({} in all), {}, lr {:.6g}", counted(plan.epochs, "epoch"),
                          counted(plan.total_steps, "step"), words_of(optimizer.kind), plan.trainer.lr.lr);
  text += schedule_text(plan.trainer.lr);
  if (plan.warmup_epochs > 0)
    text += fmt::format(" after {} of warm-up", counted(plan.warmup_epochs, "epoch"));
  if (optimizer.momentum > 0) {
    text += fmt::format(", {}momentum {}", optimizer.nesterov ? "Nesterov " : "", optimizer.momentum);
  }
  if (optimizer.weight_decay > 0) text += fmt::format(", weight decay {}", optimizer.weight_decay);
  if (plan.trainer.replica.clip_norm > 0) {
    text += fmt::format(", gradient norm at most {}", plan.trainer.replica.clip_norm);
  }
  if (plan.trainer.ema > 0) {
    text += fmt::format(", tested with an average of the weights (decay {})", plan.trainer.ema);
  }
  if (plan.label_smoothing > 0) text += fmt::format(", label smoothing {}", plan.label_smoothing);
  if (!plan.class_weights.empty()) {
    const auto [least, most] = std::ranges::minmax(plan.class_weights);
    text += fmt::format(", classes weighted by their rows ({:.3g} to {:.3g})", least, most);
  }
  if (plan.patience) {
    text += fmt::format(", ended by {} without a better validation", counted(*plan.patience, "epoch"));
  }
  return text + fmt::format(", seed {}", plan.trainer.seed);
}

std::string arithmetic_text(const TrainPlan& plan) {
  const auto precision = plan.trainer.replica.precision;
  std::string text(name_of(kPrecisionNames, precision));
  const bool halves = type_of_layers(precision) != dtype_of(precision);
  if (halves) text += " in layers that gain by it, weights and sums in fp32";
  if (precision == Precision::kFp16) {
    text += fmt::format(", the loss scaled by {} at first",
                        with_commas(std::llround(plan.trainer.replica.loss_scale.initial)));
  }
  if (halves && any_cpu(plan.trainer.devices) && plan.stays_in_fp32(torch::kCPU)) {
    text += fmt::format("; {} in fp32 on CPUs, which is faster", plan.model);
  }
  if (plan.program) {
    text += "; " + program_kernels_text(plan);
  } else {
    if (plan.kernels == Kernels::kTorch) text += "; torch's kernels only";
    if (plan.kernels == Kernels::kDirect) text += "; lockstep's kernels without Winograd tiles";
    if (const auto note = kernels_note(plan.spec()); !note.empty()) text += "; " + note;
  }
  if (plan.deterministic) text += "; deterministic";
  if (plan.trainer.replica.invariant) {
    text += fmt::format("; the same bits for 1, 2, 4 and 8 replicas of {}",
                        counted(replica_threads(plan.trainer), "thread"));
  }
  return text;
}

std::string devices_text(const TrainPlan& plan) {
  const auto& devices = plan.trainer.devices;
  auto text = fmt::format("{}: {}", to_string(devices), counted(plan.local_size(), "replica"));
  if (any_cpu(plan.trainer.devices)) {
    const auto* each = plan.local_size() > 1 ? " each" : "";
    text += fmt::format(" with {}{}", counted(replica_threads(plan.trainer), "thread"), each);
  }
  return plan.world.single_process() ? text : text + fmt::format(", in process {}", plan.world.place.process);
}

// How a step is sent to a GPU.
std::string queued_text(const TrainPlan& plan) {
  if (plan.trainer.replica.cuda_graph == CudaGraph::kOff) return "queued kernel by kernel";
  if (plan.world_size() == 1) return "captured once, then replayed as one CUDA graph";
  const bool fetches = plan.trainer.shard != Shard::kNone;
  return fmt::format("captured once, then replayed as two CUDA graphs with the sums between them{}",
                     fetches ? " and the fetches behind them" : "");
}

std::string steps_text(const TrainPlan& plan) {
  const bool two = steps_in_flight(plan.trainer) == 2;
  const std::string waits = two ? "the host waits for the previous step" : "the host waits for each step";
  return any_gpu(plan.trainer.devices) ? queued_text(plan) + "; " + waits : waits;
}

std::string checks_text(const TrainPlan& plan) {
  if (plan.world_size() == 1) return "one replica: nothing to compare";
  const auto interval = plan.trainer.check_sync;
  return interval == 1 ? "replicas are compared after every step"
                       : fmt::format("replicas are compared every {}", counted(interval, "step"));
}

std::string model_text(const TrainPlan& plan) {
  const auto start =
      plan.initialization ? initialization_text(*plan.initialization) : "the model's own initial weights";
  return fmt::format("{}, {} parameters; {}", plan.model, with_commas(plan.parameter_count), start);
}

std::string frozen_text(const TrainPlan& plan) {
  const auto more = plan.frozen.size() > 4 ? fmt::format(" and {} more", plan.frozen.size() - 4) : "";
  return fmt::format("{}{}", fmt::join(plan.frozen | std::views::take(4), ", "), more);
}

// Whose statistics batch norms use, where replicas may have different ones.
template <class Row>
void add_batch_norm_row(const TrainPlan& plan, const Row& row) {
  switch (plan.trainer.bn) {
    case BnPolicy::kRoot:
      return row("evaluation", "with the first replica's batch-norm statistics");
    case BnPolicy::kAverage:
      return row("evaluation", "with the mean of the replicas' batch-norm statistics");
    case BnPolicy::kSync:
      return row("batch norm", "with the statistics of the whole batch, on all replicas");
  }
}

}  // namespace

std::string describe(const TrainPlan& plan, size_t width) {
  constexpr size_t kValues = 13;  // the column where they begin
  std::string text;
  const auto row = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<11}{}\n", name, wrapped(value, kValues, width));
  };
  row("recipe", plan.recipe);
  if (plan.program) {
    for (const auto& [name, value] : program_rows(*plan.program)) row(name, value);
    row("model", fmt::format("{} parameters, as the program has them; loss {}",
                             with_commas(plan.parameter_count), loss_text(*plan.loss)));
  } else {
    row("model", model_text(plan));
  }
  if (plan.start) row("start", start_text(*plan.start));
  if (!plan.frozen.empty()) row("frozen", frozen_text(plan));
  row("data", data_text(plan.data));
  if (const auto images = images_text(plan); !images.empty()) row("images", images);
  if (!plan.world.single_process()) row("processes", plan.world.text());
  row("devices", devices_text(plan));
  row("batch", batch_text(plan));
  row("training", training_text(plan));
  row("arithmetic", arithmetic_text(plan));
  row("gradients", gradients_text(plan));
  if (plan.trainer.shard != Shard::kNone) row("each holds", held_text(plan));
  if (any_gpu(plan.trainer.devices) || plan.trainer.in_flight) row("steps", steps_text(plan));
  if (plan.has_batch_norm && plan.world_size() > 1) add_batch_norm_row(plan, row);
  if (plan.trainer.check_sync > 0) row("checks", checks_text(plan));
  row("memory", fmt::format("about {} resident at the peak (estimate)", memory_text(plan.memory_estimate)));
  return text;
}

}  // namespace lockstep
