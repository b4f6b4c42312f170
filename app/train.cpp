#include <lockstep/app/train.h>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <memory>
#include <optional>

#include <lockstep/app/cli.h>
#include <lockstep/app/combinations.h>
#include <lockstep/app/interrupt.h>
#include <lockstep/app/logging.h>
#include <lockstep/app/memory_usage.h>
#include <lockstep/app/out_of_memory.h>
#include <lockstep/app/output_file.h>
#include <lockstep/app/recipe.h>
#include <lockstep/app/terminal.h>
#include <lockstep/app/trace_file.h>
#include <lockstep/app/train_plan.h>
#include <lockstep/app/train_report.h>
#include <lockstep/app/train_run.h>
#include <lockstep/app/validators.h>
#include <lockstep/app/weights_file.h>
#include <lockstep/data/safetensors.h>
#include <lockstep/models/factory.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/trainer.h>

namespace lockstep {
namespace {

constexpr int64_t kMaxEpochs = 1'000'000;
constexpr int64_t kMaxRows = int64_t{1} << 31;
constexpr int64_t kMaxMicroBatches = 1 << 16;
constexpr int64_t kMaxBucketMb = 1 << 20;

void add_what(CLI::App& train, TrainOptions& options) {
  train.add_option("--recipe", options.recipe, "Named set of values; a flag given beside it wins")
      ->check(one_of(recipe_names()));
  train.add_option("--model", options.model, "Another model than the recipe's")->check(one_of(model_names()));
  train
      .add_option("--data", options.data,
                  "Folder with Fashion-MNIST's four files, or 'synthetic' (default: LOCKSTEP_DATA, else "
                  "Debian's folder)")
      ->type_name("DIR");
  train.add_option("--limit-train", options.limit_train, "Use only the first N training images")
      ->check(positive_int(kMaxRows));
  train.add_option("--epochs", options.epochs, "Passes over the training images (default: the recipe's)")
      ->check(positive_int(kMaxEpochs));
  train
      .add_option("--batch-size", options.batch_size,
                  "Images a step over all replicas (default: the recipe's)")
      ->check(positive_int(kMaxRows));
  train
      .add_option("--seed", options.seed,
                  "For the initial weights, the order of the images and synthetic data")
      ->check(non_negative_int());
  train
      .add_option("--limit-steps", options.limit_steps,
                  "Stop after N steps of the whole run, then evaluate and close as usual")
      ->check(positive_int());
}

void add_where(CLI::App& train, TrainOptions& options) {
  train
      .add_option("--devices", options.devices,
                  "One replica a device: auto, cpu, cpux2, cuda, cuda:0,cuda:1, cuda:0x2")
      ->type_name("LIST");
  train.add_option("--threads", options.threads, "Threads of each replica (default: cores / replicas)")
      ->check(positive_int(kMaxThreads));
  train
      .add_option("--split", options.split,
                  "Shares of the batch: even, 3:1 (one number a replica), or auto (found by timing)")
      ->type_name("SHARES");
}

void add_optimizer(CLI::App& train, TrainOptions& options) {
  train.add_option("--lr", options.lr, "Learning rate (default: the recipe's)")->check(positive_number());
  train.add_option("--optimizer", options.optimizer, "Update rule")->check(one_of(names_of(kOptimizerNames)));
  train.add_option("--momentum", options.momentum, "Of SGD (default: the recipe's)")->check(fraction());
  train.add_flag("--nesterov", options.nesterov, "Nesterov's form of momentum");
  train
      .add_option("--weight-decay", options.weight_decay,
                  "L2 for sgd, decoupled for adamw (default: the recipe's)")
      ->check(non_negative_number());
  train
      .add_option("--clip-norm", options.clip_norm,
                  "Scale the gradient down to this norm, over all parameters, where it is larger")
      ->check(positive_number());
  train.add_option("--schedule", options.schedule, "How the learning rate falls (default: the recipe's)")
      ->check(one_of(names_of(kScheduleNames)));
  train
      .add_option("--warmup-epochs", options.warmup_epochs,
                  "Epochs in which the learning rate rises to its value (default: the recipe's)")
      ->check(non_negative_int(kMaxEpochs));
}

void add_how(CLI::App& train, TrainOptions& options) {
  train.add_option("--precision", options.precision, "Arithmetic of the layers")
      ->check(one_of(names_of(kPrecisionNames)));
  train
      .add_option("--accumulate", options.accumulate,
                  "Micro-batches that each replica's share of a step is cut into; gradients are summed once")
      ->check(positive_int(kMaxMicroBatches));
  train.add_option("--bn", options.bn, "Whose batch-norm statistics evaluation uses")
      ->check(one_of(names_of(kBnPolicyNames)));
  train
      .add_option("--sync", options.sync,
                  "When gradients are summed over the replicas (default: overlapped with backward)")
      ->check(one_of(names_of(kSyncModeNames)));
  train.add_option("--bucket-mb", options.bucket_mb, "Gradients that are summed at a time (default: 25 MB)")
      ->check(positive_int(kMaxBucketMb));
  train
      .add_option("--allreduce", options.allreduce,
                  "How they are summed (default: auto: nccl between distinct GPUs, elsewhere two_shot)")
      ->check(one_of(names_of(kAllreduceNames)));
  train
      .add_option(
          "--kernels", options.kernels,
          "Whose kernels compute the layers: auto (ours on GPUs, where there are any) or stock (torch's)")
      ->check(one_of(names_of(kKernelsNames)));
  train
      .add_option("--cuda-graph", options.cuda_graph,
                  "On GPUs, record a step once and replay it (auto: where it can be done)")
      ->check(one_of(names_of(kCudaGraphNames)));
  train.add_flag("--deterministic", options.deterministic,
                 "The same command gives the same bits, on GPUs too (slower there)");
  train.add_flag("--invariant", options.invariant,
                 "1, 2, 4 and 8 replicas give the same bits (slower; README says how)");
}

void add_watch(CLI::App& train, TrainOptions& options) {
  train.add_option("--log-every", options.log_every, "Steps between two step lines")->check(positive_int());
  train
      .add_option("--metrics", options.metrics,
                  "Also write the plan, step lines and epoch lines to this file, as JSON lines")
      ->type_name("FILE");
  train
      .add_option("--trace", options.trace,
                  "Write what each replica did when to this file, for chrome://tracing or ui.perfetto.dev")
      ->type_name("FILE");
  train.add_option("--save", options.save, "Write the weights to this safetensors file at the end")
      ->type_name("FILE");
  train.add_flag("--overwrite", options.overwrite, "Replace an output file that exists");
  train.add_flag("--print-weights-hash", options.print_weights_hash,
                 "Print the SHA-256 of all weights after the last step");
  train.add_flag("--quiet", options.quiet, "Only warnings and the last line");
  train.add_flag("--dry-run", options.dry_run, "Check everything, print the plan, write and train nothing");
}

void warn_if_it_may_not_fit(const TrainPlan& plan) {
  const auto available = available_bytes();
  if (plan.memory_estimate - resident_bytes() <= available) return;
  warn(
      fmt::format("about {:.1f} GB of memory will be needed, {:.1f} GB are free: a smaller --batch-size or "
                  "fewer replicas need less",
                  static_cast<double>(plan.memory_estimate) / 1e9, static_cast<double>(available) / 1e9));
}

// Writes what was to be kept of the run, as far as it got.
void keep(TrainRun& run, const TrainPlan& plan, const TrainOptions& options,
          std::optional<OutputFile>& trace) {
  const auto say = [&](const std::string& line) {
    if (!options.quiet) write_stdout(line);
  };
  if (options.save) {
    save_weights(run.weights(), plan.model, *options.save, options.overwrite);
    say(fmt::format("weights saved to {}\n", *options.save));
  }
  if (trace) {
    write_chrome_trace(run.trace(), *trace);
    say(fmt::format("trace written to {}\n", *options.trace));
  }
}

void print_end(const RunReport& report, const TrainPlan& plan, const TrainOptions& options) {
  if (!options.quiet) {
    if (report.steps % plan.steps_per_epoch != 0) {
      write_stdout(
          fmt::format("stopped after {} steps (--limit-steps): sec/epoch is scaled to an epoch of {} steps\n",
                      report.steps, plan.steps_per_epoch));
    }
    write_stdout(fmt::format("peak memory: {:.0f} MB resident ({:.0f} MB estimated)\n",
                             static_cast<double>(report.peak_bytes) / 1e6,
                             static_cast<double>(plan.memory_estimate) / 1e6));
  }
  if (report.weights_sha256) write_stdout(fmt::format("weights sha256: {}\n", *report.weights_sha256));
  write_stdout(closing_line(report, plan) + "\n");
}

}  // namespace

void setup_train(CLI::App& app) {
  auto* train = app.add_subcommand("train", "Train a recipe on one device or several");
  auto options = std::make_shared<TrainOptions>();
  add_what(*train, *options);
  add_where(*train, *options);
  add_optimizer(*train, *options);
  add_how(*train, *options);
  add_watch(*train, *options);
  train->callback([options, train] { run_train(*options, color_mode(*train)); });
}

void run_train(const TrainOptions& options, ColorMode color) {
  check_combinations(options, find_recipe(options.recipe));
  // Before any work, so that a path that cannot be written stops the run at once. A dry run tells that too:
  // it opens the files and leaves nothing behind.
  std::optional<OutputFile> metrics, trace;
  if (options.metrics) metrics.emplace(*options.metrics, options.overwrite);
  if (options.trace) trace.emplace(*options.trace, options.overwrite);
  if (options.save) check_can_save(*options.save, options.overwrite);

  const auto plan = make_train_plan(options);
  const Terminal terminal(STDOUT_FILENO, color);
  if (!options.quiet) write_stdout(fmt::format("{}\n{}\n", version_text(), describe(plan)));
  warn_if_it_may_not_fit(plan);
  if (const auto notice = peer_notice(plan.trainer.devices)) warn(*notice);
  if (options.dry_run) return;
  TrainRun run(plan, options, terminal, metrics ? &*metrics : nullptr);
  RunReport report;
  try {
    report = run.run();
  } catch (const InterruptedError&) {
    keep(run, plan, options, trace);
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw out_of_memory(error.what_without_backtrace(), plan);
  }
  keep(run, plan, options, trace);
  print_end(report, plan, options);
}

}  // namespace lockstep
