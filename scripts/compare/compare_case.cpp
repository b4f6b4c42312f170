// lockstep's case of compare_pytorch.py and compare_gpu.py: the trainer of `lockstep train`. It warms up,
// stays alive, and times steps on request.
//
//   compare_case --model NAME --precision P --devices SPEC --threads N --batch-size N --lr X --seed N
//                --data DIR --warmup STEPS --last-batch drop|keep [--kernels auto|direct|torch]
//                [--program FILE]    trains this program, which baseline_pytorch.py --export wrote
//                [--shard none|optimizer|gradients]
//                [--rank N --world-size N --master HOST:PORT]    one of several processes
//
// Prints `ready {...}` once warm, with the figures of the warm-up. Then answers each line on stdin with one
// line of JSON:
//   run N    takes N steps: their seconds
//   host N   takes N steps, each while the devices are idle: the median seconds until step() returned
//
//   compare_case ... --trace FILE --steps N    records every kernel instead, also of a replayed CUDA graph
//
// After the warm-up this takes as many steps again for the time of a step, and then N with torch's profiler.
// It writes them as a Chrome trace (chrome://tracing, perfetto.dev), which kernel_times.py sums up. On CPUs
// there are no kernels, and the trace is empty.
//
// Process-wide settings of app/main.cpp must be made here too: otherwise this measures another program.
#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/batch_order.h>
#include <lockstep/data/idx_folder.h>
#include <lockstep/models/factory.h>
#include <lockstep/models/program.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/main_thread.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/world/world.h>
#include <lockstep/support/kernels.h>
#include <lockstep/support/stopwatch.h>

#include "own_models.h"

namespace lockstep {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

using Flags = std::map<std::string, std::string>;

void answer(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

// Null without --rank: this process trains alone.
std::shared_ptr<ProcessGroup> group_from(const Flags& flags) {
  if (!flags.contains("--rank")) return nullptr;
  return join_process_group(find_world({.rank = std::stoi(flags.at("--rank")),
                                        .world_size = std::stoi(flags.at("--world-size")),
                                        .master = flags.at("--master")}));
}

TrainerOptions options_from(const Flags& flags) {
  TrainerOptions options;
  options.devices = parse_devices(flags.at("--devices"));
  options.threads = std::stoi(flags.at("--threads"));
  options.replica.precision = value_of(kPrecisionNames, flags.at("--precision"));
  options.lr.lr = std::stod(flags.at("--lr"));
  options.process_group = group_from(flags);
  // With CudaGraph::kAuto a step that cannot be captured would be queued kernel by kernel, and measured as if
  // captured.
  if (any_gpu(options.devices)) options.replica.cuda_graph = CudaGraph::kOn;
  own_models::set_options(flags.at("--model"), options.replica);
  if (flags.contains("--shard")) options.shard = value_of(kShardNames, flags.at("--shard"));
  return options;
}

// Returns the value of --kernels; default: as in `lockstep train`.
Kernels kernels_from(const Flags& flags) {
  const auto given = flags.find("--kernels");
  return given == flags.end() ? Kernels::kAuto : value_of(kKernelsNames, given->second);
}

ModelFactory factory_from(const Flags& flags) {
  if (flags.contains("--program")) {
    const bool text = flags.at("--model").ends_with("gpt");
    return program_factory(read_program(flags.at("--program")),
                           text ? token_cross_entropy() : classification(), {}, kernels_from(flags));
  }
  const auto seed = std::stoull(flags.at("--seed"));
  if (const auto own = own_models::factory(flags.at("--model"), seed)) return *own;
  return make_model_factory(
      {.name = flags.at("--model"), .seed = seed, .initialization = {}, .kernels = kernels_from(flags)});
}

struct TrainingRows {
  SourceFactory source;
  int64_t count = 0;
};

TrainingRows rows_from(const Flags& flags) {
  if (const auto own = own_models::rows(flags.at("--model"))) return {resident_rows(*own), own->rows()};
  const auto images = load_idx_folder(flags.at("--data")).train;
  return {resident_sources(images), images.size()};
}

class Steps {
 public:
  Steps(Trainer& trainer, std::vector<int64_t> order, size_t batch_size, bool keep_last)
      : trainer_(trainer), order_(std::move(order)), batch_size_(batch_size) {
    batches_ = (order_.size() + (keep_last ? batch_size - 1 : 0)) / batch_size;
  }

  std::string run(int steps) {
    Stopwatch watch;
    for (int i = 0; i < steps; ++i) step();
    const auto times = trainer_.take_times();
    const auto sums = trainer_.take_sums();  // inside the clock, as for a step line
    return fmt::format(
        R"({{"seconds": {}, "data": {}, "compute": {}, "sync": {}, "update": {}, "loss": {}}})", watch.lap(),
        times.data, times.compute, times.sync, times.update, sums.mean_loss());
  }

  double microseconds_per_step(int steps) {
    Stopwatch watch;
    for (int i = 0; i < steps; ++i) step();
    trainer_.synchronize();
    return 1e6 * watch.lap() / steps;
  }

  std::string host(int steps) {
    std::vector<double> seconds;
    for (int i = 0; i < steps; ++i) {
      trainer_.synchronize();
      Stopwatch watch;
      step();
      seconds.push_back(watch.lap());
    }
    trainer_.take_sums();  // forgets them
    std::sort(seconds.begin(), seconds.end());
    return fmt::format(R"({{"seconds": {}}})", seconds[seconds.size() / 2]);
  }

 private:
  void step() {
    const auto first = done_++ % batches_ * batch_size_;
    trainer_.step(std::span(order_).subspan(first, std::min(batch_size_, order_.size() - first)));
  }

  Trainer& trainer_;
  const std::vector<int64_t> order_;
  const size_t batch_size_;
  size_t batches_;   // of an epoch; without the last, smaller batch all steps are the same work
  size_t done_ = 0;  // steps so far
};

// Returns the microseconds per step with the profiler on, and writes its trace.
double record(Steps& steps, int count, const std::string& path) {
  const profiler::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  const std::set<ActivityType> activities{ActivityType::CUDA};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  const auto microseconds = steps.microseconds_per_step(count);
  profiler::disableProfiler()->save(path);
  return microseconds;
}

void trace(const Flags& flags, Steps& steps) {
  const auto plain = steps.microseconds_per_step(std::stoi(flags.at("--warmup")));
  const auto watched = record(steps, std::stoi(flags.at("--steps")), flags.at("--trace"));
  fmt::print("{} {} on {}: {:.1f} us per step, {:.1f} us with the profiler\n", flags.at("--model"),
             flags.at("--precision"), flags.at("--devices"), plain, watched);
}

void serve(Steps& steps, const std::string& warmup) {
  answer(fmt::format(R"(ready {{"torch": "{}", "warmup": {}}})", TORCH_VERSION, warmup));
  std::string verb;
  for (int count = 0; std::cin >> verb >> count;) {
    answer(verb == "host" ? steps.host(count) : steps.run(count));
  }
}

void run(const Flags& flags) {
  const auto options = options_from(flags);
  const auto rows = rows_from(flags);
  const auto seed = std::stoull(flags.at("--seed"));
  set_arithmetic(options.replica.precision, /*deterministic=*/false);
  Trainer trainer(factory_from(flags), rows.source, rows.source, options);  // which is not evaluated
  Steps steps(trainer, batch_order(seed, 0, rows.count), std::stoull(flags.at("--batch-size")),
              flags.at("--last-batch") == "keep");

  const auto warmup = steps.run(std::stoi(flags.at("--warmup")));
  if (flags.contains("--trace")) {
    trace(flags, steps);
  } else {
    serve(steps, warmup);
  }
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
    fmt::print(stderr, "compare_case: {}\n", error.what());
    return 1;
  }
}
