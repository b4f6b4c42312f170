// lockstep's side of compare_turns.py: the trainer of `lockstep train`, warmed up, kept alive, timed on
// request.
//
//   contender --model NAME --precision P --devices SPEC --threads N --batch-size N --lr X --seed N --data DIR
//             --warmup STEPS
//
// Prints `ready {...}` once warm; then, for each line `run N` on stdin, takes N steps and prints one line of
// JSON with the seconds they took. What app/main.cpp sets for the whole process belongs here too, or another
// program is measured.
#include <fmt/format.h>
#include <torch/version.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <string>

#include <lockstep/data/batch_order.h>
#include <lockstep/data/fashion_mnist.h>
#include <lockstep/models/factory.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/main_thread.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/allocator.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {
namespace {

using Flags = std::map<std::string, std::string>;

void answer(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void serve(const Flags& flags) {
  const auto data = load_fashion_mnist(flags.at("--data"));
  const auto seed = std::stoull(flags.at("--seed"));
  const auto order = batch_order(seed, 0, data.train.size());
  const auto batch_size = std::stoull(flags.at("--batch-size"));
  TrainerOptions options;
  options.devices = parse_devices(flags.at("--devices"));
  options.threads = std::stoi(flags.at("--threads"));
  options.replica.precision = value_of(kPrecisionNames, flags.at("--precision"));
  options.lr.lr = std::stod(flags.at("--lr"));
  const auto factory = make_model_factory({.name = flags.at("--model"), .seed = seed, .initialization = {}});
  set_arithmetic(options.replica.precision, /*deterministic=*/false);
  Trainer trainer(factory, resident_sources(data.train), resident_sources(data.test), options);

  size_t done = 0;  // steps so far; whole batches only, so that every turn is the same work
  const auto run = [&](int steps) {
    Stopwatch watch;
    StepTimes times;
    for (int i = 0; i < steps; ++i, ++done) {
      const auto batch = done % (order.size() / batch_size);
      times += trainer.step(std::span(order).subspan(batch * batch_size, batch_size));
    }
    const auto sums = trainer.take_sums();  // inside the clock, as for a step line
    return fmt::format(
        R"({{"seconds": {}, "data": {}, "compute": {}, "sync": {}, "update": {}, "loss": {}}})", watch.lap(),
        times.data, times.compute, times.sync, times.update, sums.loss / static_cast<double>(sums.rows));
  };

  run(std::stoi(flags.at("--warmup")));
  answer(fmt::format(R"(ready {{"torch": "{}"}})", TORCH_VERSION));
  std::string verb;
  for (int steps = 0; std::cin >> verb >> steps;) answer(run(steps));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::keep_freed_memory();
  lockstep::leave_cores_to_replicas();
  lockstep::Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  try {
    lockstep::serve(flags);
  } catch (const std::exception& error) {  // out of range: a flag is missing
    fmt::print(stderr, "contender: {}\n", error.what());
    return 1;
  }
}
