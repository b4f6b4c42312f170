#include <lockstep/app/train.h>

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <memory>
#include <optional>

#include <lockstep/app/cli.h>
#include <lockstep/app/logging.h>
#include <lockstep/app/memory_usage.h>
#include <lockstep/app/output_file.h>
#include <lockstep/app/recipe.h>
#include <lockstep/app/terminal.h>
#include <lockstep/app/train_plan.h>
#include <lockstep/app/train_report.h>
#include <lockstep/app/train_run.h>
#include <lockstep/app/validators.h>

namespace lockstep {
namespace {

constexpr int64_t kMaxThreads = 1024;
constexpr int64_t kMaxEpochs = 1'000'000;
constexpr int64_t kMaxRows = int64_t{1} << 31;

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const auto& recipe : recipes()) names.emplace_back(recipe.name);
  return names;
}

void add_what(CLI::App& train, TrainOptions& options) {
  train.add_option("--recipe", options.recipe, "Named set of values; a flag given beside it wins")
      ->check(one_of(recipe_names()));
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
  train.add_option("--lr", options.lr, "Learning rate (default: the recipe's)")->check(positive_number());
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
}

void add_watch(CLI::App& train, TrainOptions& options) {
  train.add_option("--log-every", options.log_every, "Steps between two step lines")->check(positive_int());
  train
      .add_option("--metrics", options.metrics,
                  "Also write the plan, step lines and epoch lines to this file, as JSON lines")
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
  add_watch(*train, *options);
  train->callback([options, train] { run_train(*options, color_mode(*train)); });
}

void run_train(const TrainOptions& options, ColorMode color) {
  // First of all, so that a path that cannot be written stops the run before any work.
  std::optional<OutputFile> metrics;
  if (options.metrics && !options.dry_run) metrics.emplace(*options.metrics, options.overwrite);

  const auto plan = make_train_plan(options);
  const Terminal terminal(STDOUT_FILENO, color);
  if (!options.quiet) write_stdout(fmt::format("{}\n{}\n", version_text(), describe(plan)));
  warn_if_it_may_not_fit(plan);
  if (options.dry_run) return;
  TrainRun run(plan, options, terminal, metrics ? &*metrics : nullptr);
  print_end(run.run(), plan, options);
}

}  // namespace lockstep
