#include <lockstep/app/train/flags.h>

#include <CLI/CLI.hpp>

#include <vector>

#include <lockstep/app/cli/add_choice.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/train/recipe.h>
#include <lockstep/models/factory.h>

namespace lockstep {
namespace {

constexpr int64_t kMaxMicroBatches = 1 << 16;
constexpr int64_t kMaxBucketMb = 1 << 20;

// A heading of the help, and the flags below it.
struct FlagGroup {
  const char* name;
  std::vector<const char*> flags;
};

std::vector<FlagGroup> flag_groups() {
  return {{"What to train",
           {"--config", "--recipe", "--model", "--data", "--limit-train", "--limit-test", "--limit-steps",
            "--epochs", "--seed"}},
          {"Devices and batch", {"--devices", "--threads", "--batch-size", "--split", "--scale-batch"}},
          {"Optimizer",
           {"--lr", "--optimizer", "--momentum", "--nesterov", "--weight-decay", "--clip-norm", "--schedule",
            "--warmup-epochs"}},
          {"Gradients and arithmetic",
           {"--precision", "--accumulate", "--bn", "--sync", "--bucket-mb", "--allreduce", "--compress",
            "--kernels", "--cuda-graph", "--in-flight", "--deterministic", "--invariant"}},
          {"Measuring", {"--repeat", "--iterations", "--scaling", "--predict", "--link"}},
          {"Watching and keeping",
           {"--log-every", "--metrics", "--trace", "--save", "--output", "--checkpoint-every", "--keep",
            "--resume", "--resume-anyway", "--json", "--overwrite", "--print-weights-hash", "--quiet",
            "--progress", "--dry-run", "--print-config"}},
          {"Processes", {"--rank", "--world-size", "--master", "--timeout", "--check-sync", "--listen"}}};
}

// The hint names `lockstep recipes`, whatever the word.
CLI::Validator known_recipe() {
  const auto known = one_of(recipe_names());
  return CLI::Validator(
      [known](const std::string& name) {
        auto problem = known(name);
        if (problem.empty()) return problem;
        problem += problem.find('\n') == std::string::npos ? '\n' : ' ';
        return problem + "'lockstep recipes' describes all of them,";
      },
      known.get_description());
}

}  // namespace

void add_limit_test_flag(CLI::App& command, std::optional<int64_t>& rows) {
  command.add_option("--limit-test", rows, "Evaluate on the first N test images only")
      ->check(positive_int(kMaxRows));
}

void add_data_flags(CLI::App& command, TrainFlags& options) {
  command
      .add_option("--recipe", options.recipe,
                  "Named set of values, see 'lockstep recipes'; other flags take precedence")
      ->check(known_recipe())
      ->type_name("NAME");
  command.add_option("--model", options.model, "Model to train instead of the recipe's")
      ->check(one_of(model_names()));
  command
      .add_option("--data", options.data,
                  "Folder with the four files of Fashion-MNIST, or 'synthetic' (default: LOCKSTEP_DATA, else "
                  "Debian's folder)")
      ->type_name("DIR");
  command.add_option("--limit-train", options.limit_train, "Use only the first N training images")
      ->check(positive_int(kMaxRows));
}

void add_recipe_flags(CLI::App& command, TrainFlags& options) {
  add_data_flags(command, options);
  command
      .add_option("--batch-size", options.batch_size,
                  "Images per step over all replicas (default: the recipe's)")
      ->check(positive_int(kMaxRows));
}

void add_epochs_flag(CLI::App& command, TrainFlags& options) {
  command.add_option("--epochs", options.epochs, "Passes over the training images (default: the recipe's)")
      ->check(positive_int(kMaxEpochs));
}

void add_run_flags(CLI::App& command, TrainFlags& options) {
  add_limit_test_flag(command, options.limit_test);
  command
      .add_option("--seed", options.seed,
                  "Seed of the initial weights, the order of the images and synthetic data")
      ->check(non_negative_int());
  command
      .add_option("--limit-steps", options.limit_steps,
                  "Stop after N steps of the whole run, then evaluate as usual")
      ->check(positive_int());
}

void add_devices_flag(CLI::App& command, TrainFlags& options) {
  command
      .add_option("--devices", options.devices,
                  "One replica per entry: auto, cpu, cpux2, cuda, cuda:0,cuda:1, cuda:0x2")
      ->type_name("LIST");
}

void add_replica_flags(CLI::App& command, TrainFlags& options) {
  command.add_option("--threads", options.threads, "Threads of each replica (default: cores / replicas)")
      ->check(positive_int(kMaxThreads));
  command
      .add_option(
          "--split", options.split,
          "Shares of the batch: even, 3:1 (one number per replica, over all processes), or auto (found "
          "by timing)")
      ->type_name("SHARES");
}

void add_optimizer_flags(CLI::App& command, TrainFlags& options) {
  command.add_option("--lr", options.lr, "Learning rate (default: the recipe's for this optimizer)")
      ->check(positive_number());
  add_update_flags(command, options);
}

void add_update_flags(CLI::App& command, TrainFlags& options) {
  add_choice(command, "--optimizer", options.optimizer, kOptimizerNames, "Update rule");
  command.add_option("--momentum", options.momentum, "Momentum of SGD (default: the recipe's)")
      ->check(fraction());
  command.add_flag("--nesterov", options.nesterov, "Use Nesterov momentum");
  command
      .add_option("--weight-decay", options.weight_decay,
                  "L2 for sgd, decoupled for adamw (default: the recipe's)")
      ->check(non_negative_number());
  command
      .add_option("--clip-norm", options.clip_norm,
                  "Scale gradients down so that their norm over all parameters is at most X")
      ->check(positive_number());
  add_choice(command, "--schedule", options.schedule, kScheduleNames,
             "How the learning rate falls (default: the recipe's)");
  command
      .add_option("--warmup-epochs", options.warmup_epochs,
                  "Epochs in which the learning rate rises to its value (default: the recipe's)")
      ->check(non_negative_int(kMaxEpochs));
}

void add_engine_flags(CLI::App& command, TrainFlags& options) {
  add_choice(command, "--precision", options.precision, kPrecisionNames, "Arithmetic of the layers");
  command
      .add_option("--accumulate", options.accumulate,
                  "Micro-batches per step and replica; gradients are summed over the replicas once per step")
      ->check(positive_int(kMaxMicroBatches));
  add_choice(command, "--bn", options.bn, kBnPolicyNames,
             "Batch-norm statistics: each replica trains with its own rows', and evaluation uses the first "
             "replica's (root) or the mean (average); or all use those of the whole batch (sync)");
  add_choice(command, "--sync", options.sync, kSyncModeNames,
             "When gradients are summed over the replicas (default: overlapped with backward)");
  command.add_option("--bucket-mb", options.bucket_mb, "Largest bucket of gradients, in MB (default: 25)")
      ->check(positive_int(kMaxBucketMb));
  add_choice(
      command, "--allreduce", options.allreduce, kAllreduceNames,
      "How gradients are summed (default: auto: nccl between distinct GPUs, else two_shot; gloo between "
      "processes)");
  add_choice(command, "--kernels", options.kernels, kKernelsNames,
             "Kernels of the layers: auto (lockstep's, where it has them), direct (the same without "
             "Winograd's tiles, which round more), torch (torch's alone). LOCKSTEP_CPU_CAPABILITY="
             "avx512|avx2|portable chooses the instructions of lockstep's kernels on CPUs");
  add_choice(command, "--cuda-graph", options.cuda_graph, kCudaGraphNames,
             "On GPUs, capture a step once and replay it (auto: where possible)");
  command
      .add_option("--in-flight", options.in_flight,
                  "Steps in flight, 1 or 2: how many are queued before the host waits for one (default: 1 on "
                  "CPUs, 2 on GPUs)")
      ->check(positive_int(2))
      ->type_name("1|2");
  command.add_flag("--deterministic", options.deterministic,
                   "The same command gives the same bits, on GPUs too (slower there)");
  command.add_flag("--invariant", options.invariant, "1, 2, 4 and 8 replicas give the same bits (slower)");
}

void add_compress_flag(CLI::App& command, TrainFlags& options) {
  add_choice(command, "--compress", options.compress, kCompressNames,
             "Round gradients to 16 bits on their way between processes");
}

void add_check_sync_flag(CLI::App& command, TrainFlags& options) {
  command
      .add_option("--check-sync", options.check_sync,
                  "Compare the weights of all replicas every K steps, and stop if they differ (0: never)")
      ->check(non_negative_int())
      ->type_name("K");
}

void group_flags(CLI::App& command) {
  for (const auto& [group, flags] : flag_groups()) {
    for (const auto* flag : flags) {
      if (auto* option = command.get_option_no_throw(flag)) option->group(group);
    }
  }
}

}  // namespace lockstep
