// Your own model and data, trained on two replicas with lockstep's Trainer, or on those of several processes.
//
//   own_model [DEVICES]                       default: cpux2
//   lockstep launch -n 2 -- ./own_model cpu   in two processes; so do torchrun --no-python, mpirun and srun
#include <torch/torch.h>

#include <cstdio>
#include <numeric>

#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/processes.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/world/world.h>
#include <lockstep/support/classification.h>

// Any LibTorch module that turns a batch into logits.
struct Net : torch::nn::Module {
  explicit Net(int64_t hidden)
      : first(register_module("first", torch::nn::Linear(2, hidden))),
        second(register_module("second", torch::nn::Linear(hidden, 2))) {}
  torch::Tensor forward(torch::Tensor X) { return second(torch::relu(first(X))); }
  torch::nn::Linear first, second;
};

// The data on one device. A batch is gathered by row numbers.
struct Rows : lockstep::BatchSource {
  Rows(torch::Tensor images, torch::Tensor labels) : X(images), y(labels) {}
  int64_t size() const override { return X.size(0); }
  void gather(const torch::Tensor& rows, lockstep::Inputs& into) const override {
    into = {X.index_select(0, rows), y.index_select(0, rows)};
  }
  torch::Tensor X, y;
};

int main(int argc, char** argv) {
  torch::manual_seed(0);
  const auto X = torch::rand({4096, 2}) * 2 - 1;  // points of the plane, inside or outside a circle
  const auto y = (X.norm(2, 1) < .8).to(torch::kInt64);
  const auto data = [&](torch::Device device) { return std::make_shared<Rows>(X.to(device), y.to(device)); };
  lockstep::TrainerOptions options;
  options.devices = lockstep::parse_devices(argc > 1 ? argv[1] : "cpux2");
  options.processes = lockstep::join_processes(lockstep::find_world());  // null if there are no others
  options.lr.lr = .5;
  options.replica.optimizer.momentum = .9;
  lockstep::Trainer trainer(lockstep::model_factory<Net>(int64_t{64}), data, data, options);
  const bool prints = trainer.first_rank() == 0;

  std::vector<int64_t> rows(4096);
  std::iota(rows.begin(), rows.end(), 0);
  for (int epoch = 1; epoch <= 10; ++epoch) {
    for (size_t begin = 0; begin < rows.size(); begin += 256)
      trainer.step(std::span(rows).subspan(begin, 256));
    const auto sums = trainer.take_sums();
    if (prints) std::printf("epoch %d: loss %.4f\n", epoch, sums.loss / static_cast<double>(sums.rows));
  }
  const auto test = trainer.evaluate();
  if (prints) std::printf("accuracy %.3f on %d replicas\n", test.accuracy(), trainer.world_size());
  return test.accuracy() > .95 ? 0 : 1;
}
