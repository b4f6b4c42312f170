#include <lockstep/app/sweep/sweep.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include <lockstep/app/cli/validators.h>
#include <lockstep/app/files/distinct_files.h>
#include <lockstep/app/machine/environment.h>
#include <lockstep/app/processes/one_process.h>
#include <lockstep/app/report/bench_options.h>
#include <lockstep/app/run_files/row_sums.h>
#include <lockstep/app/sweep/findings.h>
#include <lockstep/app/sweep/grid.h>
#include <lockstep/app/sweep/record.h>
#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/plan/combinations.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/notices.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/plan/plan_memory.h>
#include <lockstep/app/train/plan/recipe.h>
#include <lockstep/app/train/run.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

struct PlannedCell {
  SweepCell cell;
  TrainFlags options;
  TrainPlan plan;
};

void add_axes(CLI::App& sweep, SweepOptions& options) {
  sweep
      .add_option("--devices", options.devices,
                  "Replicas that train; repeat the flag for several lists (default: auto)")
      ->type_name("LIST")
      ->allow_extra_args(false)
      ->default_str("");
  sweep
      .add_option("--batch-size", options.batch_size,
                  "Rows per step over all replicas (default: the recipe's)")
      ->check(list_of(positive_int(kMaxRows)))
      ->type_name("N,...");
  sweep.add_option("--lr", options.lr, "Learning rates (default: the recipe's for this optimizer)")
      ->check(list_of(positive_number()))
      ->type_name("X,...");
  sweep.add_option("--epochs", options.epochs, "Passes over the training rows (default: the recipe's)")
      ->check(list_of(positive_int(kMaxEpochs)))
      ->type_name("N,...");
  sweep.add_flag("--scale-batch", options.scale_batch,
                 "Multiply batch size and learning rate by the number of devices");
}

void add_files(CLI::App& sweep, SweepOptions& options) {
  sweep.add_option("--json", options.json, "Also write the results and the environment to this file")
      ->type_name("FILE");
  sweep
      .add_option("--resume", options.resume,
                  "Continue a sweep's JSON file: train its missing cells and add them")
      ->type_name("FILE");
  sweep.add_flag("--overwrite", options.overwrite, "Replace existing output files");
}

void check_files(const SweepOptions& options) {
  check_distinct_files(
      {options.resume ? FileFlag{"--resume", options.resume} : FileFlag{"--json", options.json}});
  if (!options.resume) return;
  if (options.json && !same_file(*options.json, *options.resume)) {
    throw UsageError(fmt::format("--resume {} adds to that file, --json names {}", in_quotes(*options.resume),
                                 in_quotes(*options.json)),
                     "leave --json out; to keep the old file, copy it first");
  }
  if (options.overwrite) {
    throw UsageError("--resume keeps what the file holds, --overwrite would replace it",
                     "leave one of them out");
  }
}

// Opens the sweep's file, if it has one.
SweepRecord open_record(const SweepOptions& options) {
  if (options.resume) return SweepRecord::resume(*options.resume);
  if (options.json) return SweepRecord::create(*options.json, options.overwrite);
  return {};
}

// Plans all cells before the first one trains. They share the data.
std::vector<PlannedCell> plan_cells(const SweepOptions& options, const std::vector<SweepCell>& cells) {
  std::vector<PlannedCell> planned;
  for (const auto& cell : cells) {
    const auto train = train_options(options, cell);
    const auto data = planned.empty() ? std::nullopt : std::optional(planned.front().plan.as_read);
    planned.push_back({.cell = cell, .options = train, .plan = make_train_plan(train, data)});
    need_memory_for(std::span(&planned.back().plan, 1));
  }
  return planned;
}

// Prints each notice once. There are none about learning rates: a sweep is there to try them.
void warn_of_cells(const std::vector<PlannedCell>& cells) {
  std::set<std::string> said;
  const auto say = [&](const std::string& notice) {
    if (said.insert(notice).second) warn(notice);
  };
  for (const auto& planned : cells) {
    for (const auto& notices :
         {task_notices(planned.plan), machine_notices(planned.plan), batch_notices(planned.plan)}) {
      for (const auto& notice : notices) say(notice);
    }
    if (const auto notice = shard_notice(planned.plan)) say(*notice);
  }
}

void print_preamble(const SweepOptions& options, const TrainPlan& plan, const SweepRecord& record,
                    const std::vector<SweepCell>& grid, const std::vector<Column>& columns) {
  const auto kept = static_cast<size_t>(
      std::ranges::count_if(grid, [&](const auto& cell) { return record.find(cell) != nullptr; }));
  auto text = environment_text();
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("# {:<10} {}\n", name, value);
  };
  line("recipe",
       fmt::format("{}: {} on {}, {} training and {} test {}s ({}), seed {}", plan.recipe, plan.model,
                   plan.data.set.name, with_commas(plan.data.set.train.rows), plan.data.test_count(),
                   plan.data.set.row_noun, plan.data.origin, plan.trainer.seed));
  line("sweep", grid_text(options));
  if (options.scale_batch) line("", "on k devices batch size and learning rate are k times the given values");
  if (options.resume) {
    const auto others = record.kept() - kept;
    line("resumed", fmt::format("{} holds {} of them{}", *options.resume, kept,
                                others ? fmt::format(", and {} more", others) : ""));
  }
  write_stdout(text + fmt::format("#\n{}\n", table_heading(columns)));
}

// Trains the cell. As in benchmarks, images of steps that were skipped in fp16 do not count in its speed.
void train_cell(const PlannedCell& planned, CellResult& result) {
  try {
    const auto run = run_silently(planned.plan, planned.options);
    result.figures = CellFigures{.accuracy = run.test_accuracy,
                                 .test_loss = run.test_loss,
                                 .train_loss = run.train_loss,
                                 .seconds_per_epoch = run.seconds_per_epoch,
                                 .images_per_second = static_cast<double>(planned.plan.data.set.train.rows) *
                                                      run.updates_per_step / run.seconds_per_epoch};
  } catch (const NumericError& error) {
    result.error = error;
  }
}

// Prints the cell's row. Trains the cell unless the record has its result.
CellResult run_cell(const PlannedCell& planned, const std::vector<Column>& columns, SweepRecord& record) {
  CellResult result{.cell = planned.cell, .threads = replica_threads(planned.plan.trainer)};
  const auto* kept = record.find(planned.cell);
  if (kept) {
    result.threads = kept->threads;
    result.figures = kept->figures;
  } else {
    train_cell(planned, result);
    record.add(result);  // before printing, so that every printed row is in the file
  }
  write_stdout(table_line(columns, sweep_row(result, kept != nullptr)) + "\n");
  return result;
}

void print_stopped(const SweepOptions& options, size_t done, size_t count) {
  const auto& file = options.resume ? options.resume : options.json;
  const auto go_on = file && done > 0 ? fmt::format("; continue with --resume {}", *file) : "";
  write_stdout(fmt::format("# sweep: stopped before the end, {} of {}{}\n", done,
                           counted(static_cast<int64_t>(count), "cell"), go_on));
}

std::vector<CellResult> run_cells(const SweepOptions& options, const std::vector<PlannedCell>& cells,
                                  const std::vector<Column>& columns, SweepRecord& record,
                                  const InterruptGuard& interrupt) {
  std::vector<CellResult> results;
  try {
    for (const auto& planned : cells) {
      interrupt.stop_if_signalled(fmt::format("after cell {} of {}", results.size(), cells.size()));
      results.push_back(run_cell(planned, columns, record));
    }
  } catch (const InterruptedError&) {
    print_stopped(options, results.size(), cells.size());
    throw;
  }
  return results;
}

// The error of a sweep whose cells have all diverged: that of the first one which it has trained itself.
NumericError divergence_of(const std::vector<CellResult>& results) {
  const std::string message = "training diverged in every cell of the sweep";
  const auto first =
      std::ranges::find_if(results, [](const auto& result) { return result.error.has_value(); });
  if (first == results.end()) return NumericError(message, "try smaller learning rates (--lr)");
  return NumericError(message + ": " + first->error->message_text(), first->error->hint_text());
}

void print_end(const std::vector<CellResult>& results, const std::vector<Finding>& findings) {
  if (const auto table = quality_table(results); !table.empty()) write_stdout("#\n" + table);
  std::string text;
  for (const auto& finding : findings) text += fmt::format("# {}\n", finding.sentence);
  write_stdout(text + fmt::format("# sweep: {}\n", counted(static_cast<int64_t>(results.size()), "cell")));
}

}  // namespace

void setup_sweep(CLI::App& app) {
  auto* sweep = app.add_subcommand("sweep", "Train over a grid of devices, batch sizes, rates and epochs");
  auto options = std::make_shared<SweepOptions>();
  add_setting_flags(*sweep, kSweep, options->train);
  add_axes(*sweep, *options);
  add_files(*sweep, *options);
  set_group(*sweep, HelpGroup::kTask, {"--epochs"});
  set_group(*sweep, HelpGroup::kReplicas, {"--devices", "--batch-size", "--scale-batch"});
  set_group(*sweep, HelpGroup::kOptimizer, {"--lr"});
  set_group(*sweep, HelpGroup::kOutput, {"--json", "--resume", "--overwrite"});
  sweep->callback([options] {
    refuse_several_processes("sweep");
    run_sweep(*options);
  });
}

void run_sweep(const SweepOptions& options) {
  const InterruptGuard interrupt("the current step");
  check_files(options);
  const auto grid = make_grid(options);
  for (const auto& cell : grid) {
    const auto train = train_options(options, cell);
    check_combinations(train, recipe_of(train));
    check_train_values(train);
  }
  auto record = open_record(options);
  const auto cells = plan_cells(options, grid);
  const auto& first = cells.front().plan;
  record.begin(shared_fields(kInSweep, options.train, first));
  if (const auto other = record.other_environment()) {
    warn(fmt::format(
        "{} was begun in another environment ({}): its times cannot be compared with those of this run",
        *options.resume, *other));
  }
  warn_of_cells(cells);
  const auto& noun = first.data.set.row_noun;
  const auto columns = sweep_columns(grid, noun, counts_classes(first.metrics));
  print_preamble(options, first, record, grid, columns);
  const auto results = run_cells(options, cells, columns, record, interrupt);
  const auto findings = findings_of(results, first.data.set.test.rows, noun);
  record.finish(findings);
  print_end(results, findings);
  if (std::none_of(results.begin(), results.end(), [](const auto& result) { return result.figures; })) {
    throw divergence_of(results);
  }
}

}  // namespace lockstep
