// Your own model and data, trained on two replicas with lockstep's Trainer, or on those of several processes:
//   own_model [DEVICES [EPOCHS [FOLDER]]]     default: cpux2 10; a later run goes on from FOLDER
//   lockstep launch -n 2 -- ./own_model cpu   in two processes; so do torchrun --no-python, mpirun and srun
#include <torch/torch.h>

#include <cstdio>

#include <lockstep/data/batch_order.h>
#include <lockstep/data/resident_rows.h>
#include <lockstep/data/train_checkpoint.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/main_thread.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/error.h>
#include <lockstep/support/model_factory.h>

// Any LibTorch module that turns a batch into logits.
struct Net : torch::nn::Module {
  torch::Tensor forward(torch::Tensor X) { return second(torch::relu(first(X))); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(2, 64));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(64, 2));
};

int main(int argc, char** argv) try {
  lockstep::leave_cores_to_replicas();
  torch::manual_seed(0);
  const auto X = torch::rand({4096, 2}) * 2 - 1, y = (X.norm(2, 1) < .8).to(torch::kInt64);  // in a circle?
  const auto data = lockstep::resident_rows({X, y});
  lockstep::TrainerOptions options;
  options.devices = lockstep::parse_devices(argc > 1 ? argv[1] : "cpux2");
  options.process_group = lockstep::join_process_group(lockstep::find_world());  // null: no other process
  options.lr.lr = .5;
  options.seed = 0;  // of what layers such as Dropout draw
  options.replica.optimizer.momentum = .9;
  lockstep::Trainer trainer(lockstep::model_factory<Net>(), data, data, options);
  const std::filesystem::path folder = argc > 3 ? argv[3] : "";
  const bool first = trainer.first_rank() == 0;  // one process prints, saves, and looks for a checkpoint
  auto state = trainer.state();                  // complete in that process, whose state load() gives to all
  if (first && exists(folder)) state = lockstep::read_train_state(lockstep::read_checkpoint(folder));
  trainer.load(state);
  for (int64_t epoch = trainer.steps_taken() / 16; epoch < (argc > 2 ? std::atoi(argv[2]) : 10); ++epoch) {
    const auto order = lockstep::batch_order(/*seed=*/0, epoch, 4096);
    for (size_t step = 0; step < 16; ++step) trainer.step(std::span(order).subspan(step * 256, 256));
    const auto sums = trainer.take_sums();
    if (first) std::printf("epoch %d: loss %.9f\n", int(epoch + 1), sums.loss / double(sums.rows));
    state = trainer.state();
    if (first && !folder.empty()) lockstep::write_checkpoint(folder, lockstep::to_checkpoint(state));
  }
  const auto test = trainer.evaluate();
  if (first) std::printf("accuracy %.3f on %d replicas\n", test["top1"], trainer.world_size());
  return test["top1"] > .95 ? 0 : 1;
} catch (const lockstep::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.exit_code());
} catch (const std::exception& error) {  // of the model, such as c10::Error
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
