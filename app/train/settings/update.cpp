// How gradients change the parameters: the optimizer and its learning rate.
#include <CLI/CLI.hpp>

#include <lockstep/app/cli/add_choice.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/train/settings/setting.h>
#include <lockstep/parallel/optimizer/lr_schedule.h>
#include <lockstep/parallel/optimizer/optimizer_options.h>

namespace lockstep {
namespace {

CLI::Option* add_lr(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_option(flag, flags.lr, "Learning rate (default: the recipe's for this optimizer)")
      ->check(positive_number());
}

CLI::Option* add_optimizer(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_choice(command, flag, flags.trainer.replica.optimizer.kind, kOptimizerNames, "Update rule");
}

CLI::Option* add_momentum(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_option(flag, flags.momentum, "Momentum of SGD (default: the recipe's)")
      ->check(fraction());
}

CLI::Option* add_nesterov(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_flag(flag, flags.trainer.replica.optimizer.nesterov, "Use Nesterov momentum");
}

CLI::Option* add_weight_decay(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.weight_decay,
                  "L2 for sgd and adam, decoupled for adamw (default: the recipe's)")
      ->check(non_negative_number());
}

CLI::Option* add_clip_norm(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.trainer.replica.clip_norm,
                  "Scale gradients down so that their norm over all parameters is at most X")
      ->check(positive_number())
      ->default_str("");  // 0 is none, and no value for the flag
}

CLI::Option* add_ema(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(
          flag, flags.trainer.ema,
          "Also keep a moving average of the weights with this decay, such as 0.999; test it, and save "
          "it with --save (default: none)")
      ->check(open_fraction())
      ->type_name("DECAY")
      ->default_str("");  // 0 is none, and no value for the flag
}

CLI::Option* add_schedule(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_choice(command, flag, flags.schedule, kScheduleNames,
                    "How the learning rate changes (default: the recipe's)");
}

CLI::Option* add_warmup_epochs(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.warmup_epochs,
                  "Epochs in which the learning rate rises to its value (default: the recipe's)")
      ->check(non_negative_int(kMaxEpochs));
}

CLI::Option* add_gamma(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.gamma,
                  "Factor on the rate after each epoch of --schedule exponential (default: 0.9), and at each "
                  "fall of plateau (default: 0.1)")
      ->check(open_fraction());
}

CLI::Option* add_plateau_patience(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.plateau_patience,
                  "Epochs without a lower test loss that --schedule plateau lets pass before the rate falls "
                  "(default: 10)")
      ->check(non_negative_int(kMaxEpochs));
}

CLI::Option* add_label_smoothing(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.label_smoothing,
                  "Share of each row's target that all classes get alike, such as 0.1 (default: none)")
      ->check(fraction())
      ->default_str("");
}

CLI::Option* add_class_weights(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_choice(command, flag, flags.class_weights, kClassWeightsNames,
                    "Weights of the classes in the loss. balanced: of classes with few training rows more");
}

CLI::Option* add_freeze(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.freeze,
                  "Leave parameters as they are whose names match, such as 'conv*'; several patterns: "
                  "'conv1.*,bn*'")
      ->type_name("PATTERN");
}

const OptimizerOptions& optimizer_of(const TrainPlan& plan) { return plan.trainer.replica.optimizer; }

// Null for a value of SGD where that is not the optimizer.
template <class T>
Json if_sgd(const TrainPlan& plan, T value) {
  return optimizer_of(plan).kind == OptimizerKind::kSgd ? Json(value) : Json();
}

// These are null where the schedule has no such value.
Json planned_gamma(const LrSchedule& lr) {
  if (lr.schedule == Schedule::kExponential) return lr.exponential.gamma;
  return lr.schedule == Schedule::kPlateau ? Json(lr.plateau.factor) : Json();
}

Json planned_patience(const LrSchedule& lr) {
  return lr.schedule == Schedule::kPlateau ? Json(lr.plateau.patience) : Json();
}

Json given_clip_norm(const TrainFlags& flags) {
  const double norm = flags.trainer.replica.clip_norm;
  return norm > 0 ? Json(norm) : Json();
}

// These are null where nothing was given, as in the plans of earlier versions.
Json smoothing_or_null(double share) { return share > 0 ? Json(share) : Json(); }

Json list_or_null(const std::vector<double>& values) { return values.empty() ? Json() : Json(values); }

Json balanced_or_null(const TrainFlags& flags) {
  return flags.class_weights == ClassWeights::kNone ? Json() : named(kClassWeightsNames, flags.class_weights);
}

// Null without an average, as in the plans of earlier versions.
Json decay_or_null(const TrainerOptions& trainer) { return trainer.ema > 0 ? Json(trainer.ema) : Json(); }

constexpr Setting kUpdateSettings[] = {
    {.name = "optimizer",
     .commands = kAllCommands,
     .group = HelpGroup::kOptimizer,
     .add = add_optimizer,
     .in = kInPlan | kInBench | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) { return named(kOptimizerNames, optimizer_of(plan).kind); },
     .on_resume = OnResume::kRefused},
    {.name = "lr",
     .commands = kTrain | kBench,
     .group = HelpGroup::kOptimizer,
     .add = add_lr,
     .in = kInPlan | kInBench | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.trainer.lr.lr; },
     .given = [](const auto& flags, const auto& recipe) -> Json {
       return flags.lr.value_or(rate_of(recipe, flags.trainer.replica.optimizer.kind));
     },
     .on_resume = OnResume::kRefusedUnnamed},
    {.name = "momentum",
     .commands = kAllCommands,
     .group = HelpGroup::kOptimizer,
     .add = add_momentum,
     .in = kInPlan | kInBench | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return optimizer_of(plan).momentum; },
     .config = [](const auto&, const auto& plan) { return if_sgd(plan, optimizer_of(plan).momentum); },
     .on_resume = OnResume::kRefusedUnnamed},
    {.name = "nesterov",
     .commands = kAllCommands,
     .group = HelpGroup::kOptimizer,
     .add = add_nesterov,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return optimizer_of(plan).nesterov; },
     .config = [](const auto&, const auto& plan) { return if_sgd(plan, optimizer_of(plan).nesterov); },
     .on_resume = OnResume::kRefusedUnnamed},
    {.name = "weight-decay",
     .commands = kAllCommands,
     .group = HelpGroup::kOptimizer,
     .add = add_weight_decay,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return optimizer_of(plan).weight_decay; },
     .on_resume = OnResume::kRefusedUnnamed},
    {.name = "clip-norm",
     .commands = kAllCommands,
     .group = HelpGroup::kOptimizer,
     .add = add_clip_norm,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.trainer.replica.clip_norm; },
     .given = [](const auto& flags, const auto&) { return given_clip_norm(flags); },
     .config = [](const auto& flags, const auto&) { return given_clip_norm(flags); },
     .on_resume = OnResume::kRefusedUnnamed},
    {.name = "ema",
     .commands = kAllCommands,
     .group = HelpGroup::kOptimizer,
     .add = add_ema,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) { return decay_or_null(plan.trainer); },
     .on_resume = OnResume::kRefusedUnnamed},
    {.name = "label-smoothing",
     .commands = kTrain | kSweep,
     .group = HelpGroup::kOptimizer,
     .add = add_label_smoothing,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) { return smoothing_or_null(plan.label_smoothing); },
     .on_resume = OnResume::kRefusedUnnamed},
    {.name = "class-weights",
     .commands = kTrain | kSweep,
     .group = HelpGroup::kOptimizer,
     .add = add_class_weights,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) { return list_or_null(plan.class_weights); },
     .given = [](const auto& flags, const auto&) { return balanced_or_null(flags); },
     .config = [](const auto& flags, const auto&) { return balanced_or_null(flags); },
     .on_resume = OnResume::kRefusedUnnamed},
    {.name = "freeze",
     .commands = kTrain | kSweep,
     .group = HelpGroup::kOptimizer,
     .add = add_freeze,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) { return plan.frozen.empty() ? Json() : Json(plan.frozen); },
     .given = [](const auto& flags, const auto&) { return or_null(flags.freeze); },
     .config = [](const auto& flags, const auto&) { return or_null(flags.freeze); },
     .on_resume = OnResume::kRefused},
    {.name = "schedule",
     .commands = kAllCommands,
     .group = HelpGroup::kOptimizer,
     .add = add_schedule,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) { return named(kScheduleNames, plan.trainer.lr.schedule); },
     .on_resume = OnResume::kRefusedUnnamed},
    {.name = "warmup-epochs",
     .commands = kAllCommands,
     .group = HelpGroup::kOptimizer,
     .add = add_warmup_epochs,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.warmup_epochs; },
     .given = [](const auto& flags, const auto& recipe) -> Json {
       return flags.warmup_epochs.value_or(recipe.warmup_epochs);
     },
     .on_resume = OnResume::kRefusedUnnamed},
    {.name = "gamma",
     .commands = kAllCommands,
     .group = HelpGroup::kOptimizer,
     .add = add_gamma,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) { return planned_gamma(plan.trainer.lr); },
     .on_resume = OnResume::kRefusedUnnamed,
     .of_schedule = true},
    {.name = "plateau-patience",
     .commands = kAllCommands,
     .group = HelpGroup::kOptimizer,
     .add = add_plateau_patience,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) { return planned_patience(plan.trainer.lr); },
     .on_resume = OnResume::kRefusedUnnamed,
     .of_schedule = true},
};

}  // namespace

std::span<const Setting> update_settings() { return kUpdateSettings; }

}  // namespace lockstep
