#include <lockstep/app/train/plan/combinations.h>

#include <lockstep/app/files/weights_name.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/data/data_folder.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

struct Combination {
  bool given;
  const char* what;
  const char* hint;
};

bool has_gamma(Schedule schedule) {
  return schedule == Schedule::kExponential || schedule == Schedule::kPlateau;
}

}  // namespace

// A flag that has no effect is refused, also with the value that it has by default.
void check_combinations(const TrainFlags& flags, const Recipe& recipe) {
  const auto& replica = flags.trainer.replica;
  const auto schedule = flags.schedule.value_or(recipe.schedule);
  const bool program = flags.program.has_value();
  const bool synthetic = is_known_data(data_folder(flags.data.path));
  const bool classes = !program || flags.loss.value_or(LossChoice()).loss == ProgramLoss::kClassification;
  const Combination combinations[] = {
      {!classes && flags.label_smoothing > 0, "--label-smoothing is a setting of --loss classification",
       "leave it out"},
      {!classes && flags.class_weights != ClassWeights::kNone,
       "--class-weights is a setting of --loss classification", "leave it out"},
      {program && flags.recipe,
       "--program cannot be combined with --recipe: a recipe is of a model of its own", "leave --recipe out"},
      {program && flags.model, "--program cannot be combined with --model: it is the model",
       "leave one of them out"},
      {!program && flags.loss, "--loss is a setting of --program: lockstep's models have one loss",
       "leave --loss out, or name the program: --program FILE"},
      {flags.data.synthetic_shape && !synthetic, "--synthetic-shape is a setting of --data synthetic",
       "leave it out"},
      {flags.patience && !flags.validation_share,
       "--patience waits for a better validation, and without --validation-share no rows are held out for "
       "one",
       "hold some out: --validation-share 0.1"},
      {flags.deterministic && flags.split == "auto",
       "--deterministic cannot be combined with --split auto: shares found by timing vary between runs",
       "name the shares: --split 3:1"},
      {replica.invariant && (flags.sync || flags.bucket_mb),
       "--invariant cannot be combined with --sync or --bucket-mb: it sums gradients in an order of its own",
       "leave them out"},
      {replica.invariant && flags.allreduce,
       "--invariant cannot be combined with --allreduce: it sums gradients in an order of its own",
       "leave it out"},
      {flags.sync == SyncMode::kParameterwise && flags.bucket_mb,
       "--sync parameterwise cannot be combined with --bucket-mb: it uses no buckets",
       "use --sync bucketed or --sync overlapped"},
      {replica.optimizer.kind == OptimizerKind::kAdam && flags.momentum,
       "--optimizer adam cannot be combined with --momentum: it is a setting of sgd",
       "leave it out, or use --optimizer sgd"},
      {replica.optimizer.kind == OptimizerKind::kAdamW && flags.momentum,
       "--optimizer adamw cannot be combined with --momentum: it is a setting of sgd",
       "leave it out, or use --optimizer sgd"},
      {flags.gamma && !has_gamma(schedule),
       "--gamma is a setting of --schedule exponential and of --schedule plateau",
       "leave it out, or use one of them"},
      {flags.plateau_patience && schedule != Schedule::kPlateau,
       "--plateau-patience is a setting of --schedule plateau", "leave it out, or use --schedule plateau"},
      {schedule == Schedule::kOneCycle && flags.warmup_epochs.value_or(0) > 0,
       "--schedule onecycle cannot be combined with --warmup-epochs: it rises by itself",
       "leave --warmup-epochs out"},
      {flags.quiet && (flags.progress == ProgressDisplay::kBar || flags.progress == ProgressDisplay::kPlain),
       "--quiet cannot be combined with --progress bar or plain: it shows no progress",
       "leave one of them out"},
      {flags.print_config && (flags.dry_run || flags.json),
       "--print-config cannot be combined with --dry-run or --json: it prints a configuration, and trains "
       "nothing",
       "leave them out"},
  };
  for (const auto& combination : combinations) {
    if (combination.given) throw UsageError(combination.what, combination.hint);
  }
  if (flags.save) check_weights_name("--save", *flags.save, program);
  auto trainer = trainer_options_of(flags, recipe);
  Trace trace;  // --trace makes one when the run begins
  if (flags.trace) trainer.replica.trace = &trace;
  trainer.check_combination();
}

}  // namespace lockstep
