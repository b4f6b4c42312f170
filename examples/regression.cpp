// Your own loss, with a metric and named tensors: a regression on two replicas, or on those of several
// processes:
//   regression [DEVICES [EPOCHS]]              default: cpux2 20
//   lockstep launch -n 2 -- ./regression cpu   in two processes
#include <torch/torch.h>

#include <cmath>
#include <cstdio>

#include <lockstep/data/batch_order.h>
#include <lockstep/data/resident_rows.h>
#include <lockstep/parallel/check_split.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/main_thread.h>
#include <lockstep/parallel/train_epochs.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/error.h>
#include <lockstep/support/model_factory.h>

struct Net : torch::nn::Module {
  torch::Tensor forward(torch::Tensor X) { return second(torch::tanh(first(X))).squeeze(1); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(8, 64));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(64, 1));
};

// Any tensors by any names. Targets keep their type in every precision.
lockstep::SourceFactory houses(int64_t rows) {
  const auto X = torch::rand({rows, 8}) * 2 - 1;
  const auto price = torch::sin(3 * X.select(1, 0)) + X.select(1, 1) * X.select(1, 2);
  return lockstep::resident_rows({{"features", X}, {"price", price, lockstep::Role::kTarget}});
}

int main(int argc, char** argv) try {
  lockstep::leave_cores_to_replicas();
  torch::manual_seed(0);
  const auto train = houses(4096), test = houses(1024);
  // Sums over the rows: so any split of a batch gives the same step. lockstep::mse() is this loss,
  // ready-made.
  const auto factory = lockstep::model_factory<Net>()
                           .loss([](Net& net, const lockstep::Batch& in) {
                             const auto error = net.forward(in["features"]) - in["price"];
                             const auto squares = error.square().sum();
                             return lockstep::Outcome{squares, {error.abs().sum(), squares}};
                           })
                           .metric("mae")
                           .metric("rmse", {.finish = [](double mean) { return std::sqrt(mean); }});
  lockstep::check_split(factory, train,
                        lockstep::batch_order(/*seed=*/0, /*epoch=*/0, 64));  // are they sums?
  lockstep::TrainerOptions options;
  options.devices = lockstep::parse_devices(argc > 1 ? argv[1] : "cpux2");
  options.process_group = lockstep::join_process_group(lockstep::find_world());  // null: no other process
  options.lr.lr = .1;
  options.replica.optimizer.momentum = .9;
  lockstep::Trainer trainer(factory, train, test, options);
  const bool first = trainer.first_rank() == 0;  // one process prints
  lockstep::EpochOptions epochs{.epochs = argc > 2 ? std::atoi(argv[2]) : 20, .batch_size = 256};
  epochs.order = [](int64_t epoch) { return lockstep::batch_order(/*seed=*/0, epoch, 4096); };
  epochs.after_epoch = [&](lockstep::EpochRun& run) {  // its run.stop() would end the training
    const auto sums = trainer.take_sums();
    if (!first) return;
    std::printf("epoch %d: loss %.9f, mae %.9f\n", int(run.epoch() + 1), sums.mean_loss(), sums["mae"]);
  };
  lockstep::train_epochs(trainer, epochs);
  const auto result = trainer.evaluate();
  if (first) std::printf("rmse %.6f on %d replicas\n", result["rmse"], trainer.world_size());
  return result["rmse"] < .2 ? 0 : 1;
} catch (const lockstep::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.exit_code());
} catch (const std::exception& error) {  // of the model, such as c10::Error
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
