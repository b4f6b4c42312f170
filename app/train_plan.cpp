#include <lockstep/app/train_plan.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <locale>

#include <lockstep/app/data_folder.h>
#include <lockstep/app/memory_usage.h>
#include <lockstep/app/recipe.h>
#include <lockstep/data/fashion_mnist.h>
#include <lockstep/data/synthetic.h>
#include <lockstep/models/lenet.h>
#include <lockstep/parallel/cpu_cores.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/evaluate.h>
#include <lockstep/parallel/get_params.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/parallel/train_batch.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr int64_t kSyntheticTrain = 60'000;
constexpr int64_t kSyntheticTest = 10'000;

void load_data(const TrainOptions& options, TrainPlan& plan) {
  const auto folder = data_folder(options.data);
  if (folder == kSyntheticData) {
    plan.data = make_synthetic(plan.seed, options.limit_train.value_or(kSyntheticTrain), kSyntheticTest);
    plan.data_origin = fmt::format("made from seed {}", plan.seed);
    return;
  }
  plan.data = load_fashion_mnist(folder);
  plan.data_origin = folder;
  if (options.limit_train) plan.data.train = first_rows(plan.data.train, *options.limit_train);
}

void build_model(TrainPlan& plan) {
  const LeNet module(plan.seed);
  for (const auto& item : module->named_parameters()) {
    plan.parameter_names.push_back(item.key());
    plan.initial.push_back(item.value().detach());
    plan.parameter_count += item.value().numel();
  }
  plan.network = lenet;
}

// A step of one row: what torch's kernels and libraries take at their first use is resident from then on. In
// a thread of its own, since torch's number of threads stays with the thread that computed first.
void touch_kernels(const TrainPlan& plan) {
  ReplicaWorkers worker({torch::kCPU}, plan.threads);
  std::vector<Params> params{get_params(plan.initial, torch::kCPU)};
  train_batch(torch::zeros({1, 1, 28, 28}), torch::zeros({1}, torch::kInt64), params, plan.network, plan.lr,
              worker);
}

// What is resident now (the program, its libraries, the data) and what the replicas on the host will add. On
// GPUs the host keeps little.
int64_t estimate_memory(const TrainPlan& plan) {
  touch_kernels(plan);
  int64_t bytes = resident_bytes();
  const auto sizes = shard_sizes(std::min(plan.batch_size, plan.data.train.size()), plan.world_size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!plan.devices[i].is_cpu()) continue;
    const int64_t parameters_and_gradients = 2 * plan.parameter_count;
    const int64_t rows = std::max(sizes[i], std::min(kEvaluationBlock, plan.data.test.size()));
    bytes +=
        static_cast<int64_t>(sizeof(float)) * (parameters_and_gradients + rows * lenet_activations_per_row());
  }
  return bytes;
}

int default_threads(const TrainPlan& plan) {
  return std::max(1, static_cast<int>(allowed_cores().size()) / plan.world_size());
}

std::string counted(int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// "60,000", whatever the machine's locale.
std::locale thousands() {
  struct Commas : std::numpunct<char> {
    char do_thousands_sep() const override { return ','; }
    std::string do_grouping() const override { return "\3"; }
  };
  return {std::locale::classic(), new Commas};  // the locale owns it
}

}  // namespace

TrainPlan make_train_plan(const TrainOptions& options) {
  const auto& recipe = find_recipe(options.recipe);
  TrainPlan plan;
  plan.recipe = recipe.name;
  plan.model = recipe.model;
  plan.devices = parse_devices(options.devices);
  plan.threads = options.threads.value_or(default_threads(plan));
  plan.epochs = options.epochs.value_or(recipe.epochs);
  plan.batch_size = options.batch_size.value_or(recipe.batch_size);
  plan.lr = options.lr.value_or(recipe.lr);
  plan.seed = options.seed;
  load_data(options, plan);
  plan.steps_per_epoch = (plan.data.train.size() + plan.batch_size - 1) / plan.batch_size;
  plan.total_steps = plan.steps_per_epoch * plan.epochs;
  if (options.limit_steps) plan.total_steps = std::min(plan.total_steps, *options.limit_steps);
  build_model(plan);
  plan.memory_estimate = estimate_memory(plan);
  return plan;
}

std::string describe(const TrainPlan& plan) {
  std::string text;
  const auto row = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<11}{}\n", name, value);
  };
  const auto sizes = shard_sizes(plan.batch_size, plan.world_size());
  const auto shard = sizes.front() == sizes.back() ? fmt::format("{}", sizes.front())
                                                   : fmt::format("{} or {}", sizes.front(), sizes.back());
  const int64_t last = plan.data.train.size() - (plan.steps_per_epoch - 1) * plan.batch_size;

  row("recipe", plan.recipe);
  row("model", fmt::format(thousands(), "{}, {:L} parameters", plan.model, plan.parameter_count));
  row("data", fmt::format(thousands(), "{}, {:L} training and {:L} test images ({})", plan.data.name,
                          plan.data.train.size(), plan.data.test.size(), plan.data_origin));
  row("devices", fmt::format("{}: {} with {} each", to_string(plan.devices),
                             counted(plan.world_size(), "replica"), counted(plan.threads, "thread")));
  row("batch",
      fmt::format("{} a step, {} a replica; {} an epoch, the last with {}", counted(plan.batch_size, "image"),
                  shard, counted(plan.steps_per_epoch, "step"), last));
  row("training", fmt::format("{} ({} in all), SGD, lr {}, seed {}", counted(plan.epochs, "epoch"),
                              counted(plan.total_steps, "step"), plan.lr, plan.seed));
  row("gradients", plan.world_size() == 1
                       ? "one replica: nothing to sum"
                       : "summed parameter by parameter: added into the first replica, copied back to all");
  row("memory", fmt::format("about {:.0f} MB resident at the peak (estimate)",
                            static_cast<double>(plan.memory_estimate) / 1e6));
  return text;
}

}  // namespace lockstep
