// Records every kernel of a training step with torch's profiler, also the kernels of a replayed CUDA graph.
//
//   kernel_times --model NAME --precision P --devices SPEC --batch-size N --lr X --seed N --data DIR
//                --warmup STEPS --steps N --trace FILE
//
// Takes --warmup steps, as many again without the profiler for the time of a step, and --steps steps with it,
// all of whole batches. Writes them as a Chrome trace (chrome://tracing, perfetto.dev), which kernel_times.py
// sums up. On CPUs there are no kernels, and the trace is empty.
#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <cstdio>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/batch_order.h>
#include <lockstep/data/idx_folder.h>
#include <lockstep/models/factory.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/main_thread.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/kernels.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

using Flags = std::map<std::string, std::string>;

TrainerOptions options_from(const Flags& flags) {
  TrainerOptions options;
  options.devices = parse_devices(flags.at("--devices"));
  options.replica.precision = value_of(kPrecisionNames, flags.at("--precision"));
  options.lr.lr = std::stod(flags.at("--lr"));
  // A step that cannot be captured is an error.
  if (any_gpu(options.devices)) options.replica.cuda_graph = CudaGraph::kOn;
  return options;
}

// Takes whole batches of a data set, over and over.
class Steps {
 public:
  Steps(Trainer& trainer, std::vector<int64_t> order, size_t batch_size)
      : trainer_(trainer), order_(std::move(order)), batch_size_(batch_size) {}

  // Returns the microseconds per step.
  double take(int steps) {
    Stopwatch watch;
    for (int i = 0; i < steps; ++i) {
      const auto first = done_++ % (order_.size() / batch_size_) * batch_size_;
      trainer_.step(std::span(order_).subspan(first, batch_size_));
    }
    trainer_.synchronize();
    return 1e6 * watch.lap() / steps;
  }

 private:
  Trainer& trainer_;
  const std::vector<int64_t> order_;
  const size_t batch_size_;
  size_t done_ = 0;
};

// Takes the steps with the profiler on, and writes its trace. Returns the microseconds per step.
double record(Steps& steps, int count, const std::string& path) {
  const profiler::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  const std::set<ActivityType> activities{ActivityType::CUDA};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  const auto microseconds = steps.take(count);
  profiler::disableProfiler()->save(path);
  return microseconds;
}

void run(const Flags& flags) {
  const auto options = options_from(flags);
  const auto data = load_idx_folder(flags.at("--data"));
  const auto seed = std::stoull(flags.at("--seed"));
  const auto warmup = std::stoi(flags.at("--warmup"));
  set_arithmetic(options.replica.precision, /*deterministic=*/false);
  const auto factory = make_model_factory(
      {.name = flags.at("--model"), .seed = seed, .initialization = {}, .kernels = Kernels::kAuto});
  Trainer trainer(factory, resident_sources(data.train), resident_sources(data.test), options);
  Steps steps(trainer, batch_order(seed, 0, data.train.size()), std::stoull(flags.at("--batch-size")));
  steps.take(warmup);
  const auto plain = steps.take(warmup);
  const auto watched = record(steps, std::stoi(flags.at("--steps")), flags.at("--trace"));
  fmt::print("{} {} on {}: {:.1f} us per step, {:.1f} us with the profiler\n", flags.at("--model"),
             flags.at("--precision"), flags.at("--devices"), plain, watched);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::leave_cores_to_replicas();
  lockstep::Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  try {
    lockstep::run(flags);
  } catch (const std::exception& error) {  // out of range: a flag is missing
    fmt::print(stderr, "kernel_times: {}\n", error.what());
    return 1;
  }
}
