#include <lockstep/app/train/flags.h>

#include <CLI/CLI.hpp>

#include <lockstep/app/cli/validators.h>
#include <lockstep/app/train/recipe.h>
#include <lockstep/models/factory.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/kernels.h>

namespace lockstep {
namespace {

constexpr int64_t kMaxMicroBatches = 1 << 16;
constexpr int64_t kMaxBucketMb = 1 << 20;

void add_kernels_flag(CLI::App& command, TrainFlags& options) {
  command
      .add_option(
          "--kernels", options.kernels,
          "Whose kernels compute the layers: auto (ours where there are any: LeNet and ResNet-18's 3x3 "
          "convolutions and batch norms on processors, batch norms on GPUs), direct (the same without "
          "Winograd's tiles, which round a little more) or stock (torch's). On processors ours are for the "
          "best instructions there are, or LOCKSTEP_CPU_CAPABILITY=avx512|avx2|portable")
      ->check(one_of(names_of(kKernelsNames)));
}

}  // namespace

void add_limit_test_flag(CLI::App& command, std::optional<int64_t>& rows) {
  command.add_option("--limit-test", rows, "Evaluate on the first N test images only")
      ->check(positive_int(kMaxRows));
}

void add_data_flags(CLI::App& command, TrainFlags& options) {
  command.add_option("--recipe", options.recipe, "Named set of values; a flag given beside it wins")
      ->check(one_of(recipe_names()));
  command.add_option("--model", options.model, "Another model than the recipe's")
      ->check(one_of(model_names()));
  command
      .add_option("--data", options.data,
                  "Folder with Fashion-MNIST's four files, or 'synthetic' (default: LOCKSTEP_DATA, else "
                  "Debian's folder)")
      ->type_name("DIR");
  command.add_option("--limit-train", options.limit_train, "Use only the first N training images")
      ->check(positive_int(kMaxRows));
}

void add_recipe_flags(CLI::App& command, TrainFlags& options) {
  add_data_flags(command, options);
  command
      .add_option("--batch-size", options.batch_size,
                  "Images a step over all replicas (default: the recipe's)")
      ->check(positive_int(kMaxRows));
}

void add_run_flags(CLI::App& command, TrainFlags& options) {
  add_limit_test_flag(command, options.limit_test);
  command
      .add_option("--seed", options.seed,
                  "For the initial weights, the order of the images and synthetic data")
      ->check(non_negative_int());
  command
      .add_option("--limit-steps", options.limit_steps,
                  "Stop after N steps of the whole run, then evaluate and close as usual")
      ->check(positive_int());
}

void add_replica_flags(CLI::App& command, TrainFlags& options) {
  command.add_option("--threads", options.threads, "Threads of each replica (default: cores / replicas)")
      ->check(positive_int(kMaxThreads));
  command
      .add_option("--split", options.split,
                  "Shares of the batch: even, 3:1 (one number a replica), or auto (found by timing)")
      ->type_name("SHARES");
}

void add_optimizer_flags(CLI::App& command, TrainFlags& options) {
  command.add_option("--lr", options.lr, "Learning rate (default: the recipe's for this optimizer)")
      ->check(positive_number());
  add_update_flags(command, options);
}

void add_update_flags(CLI::App& command, TrainFlags& options) {
  command.add_option("--optimizer", options.optimizer, "Update rule")
      ->check(one_of(names_of(kOptimizerNames)));
  command.add_option("--momentum", options.momentum, "Of SGD (default: the recipe's)")->check(fraction());
  command.add_flag("--nesterov", options.nesterov, "Nesterov's form of momentum");
  command
      .add_option("--weight-decay", options.weight_decay,
                  "L2 for sgd, decoupled for adamw (default: the recipe's)")
      ->check(non_negative_number());
  command
      .add_option("--clip-norm", options.clip_norm,
                  "Scale the gradient down to this norm, over all parameters, where it is larger")
      ->check(positive_number());
  command.add_option("--schedule", options.schedule, "How the learning rate falls (default: the recipe's)")
      ->check(one_of(names_of(kScheduleNames)));
  command
      .add_option("--warmup-epochs", options.warmup_epochs,
                  "Epochs in which the learning rate rises to its value (default: the recipe's)")
      ->check(non_negative_int(kMaxEpochs));
}

void add_engine_flags(CLI::App& command, TrainFlags& options) {
  command.add_option("--precision", options.precision, "Arithmetic of the layers")
      ->check(one_of(names_of(kPrecisionNames)));
  command
      .add_option("--accumulate", options.accumulate,
                  "Micro-batches that each replica's share of a step is cut into; gradients are summed once")
      ->check(positive_int(kMaxMicroBatches));
  command.add_option("--bn", options.bn, "Whose batch-norm statistics evaluation uses")
      ->check(one_of(names_of(kBnPolicyNames)));
  command
      .add_option("--sync", options.sync,
                  "When gradients are summed over the replicas (default: overlapped with backward)")
      ->check(one_of(names_of(kSyncModeNames)));
  command
      .add_option("--bucket-mb", options.bucket_mb, "Gradients that are summed at a time (default: 25 MB)")
      ->check(positive_int(kMaxBucketMb));
  command
      .add_option("--allreduce", options.allreduce,
                  "How they are summed (default: auto: nccl between distinct GPUs, elsewhere two_shot)")
      ->check(one_of(names_of(kAllreduceNames)));
  add_kernels_flag(command, options);
  command
      .add_option("--cuda-graph", options.cuda_graph,
                  "On GPUs, record a step once and replay it (auto: where it can be done)")
      ->check(one_of(names_of(kCudaGraphNames)));
  command
      .add_option("--in-flight", options.in_flight,
                  "Steps that are queued before the host waits for one, 1 or 2 (default: 1 on processors, 2 "
                  "on GPUs)")
      ->check(positive_int(2))
      ->type_name("1|2");
  command.add_flag("--deterministic", options.deterministic,
                   "The same command gives the same bits, on GPUs too (slower there)");
  command.add_flag("--invariant", options.invariant,
                   "1, 2, 4 and 8 replicas give the same bits (slower; README says how)");
}

}  // namespace lockstep
