// Your own training loop with a torch optimizer. The lines marked > make it data-parallel, in this process
// and in all those that a launcher has started.
//   own_loop [DEVICES]                       default: cpux2
//   lockstep launch -n 2 -- ./own_loop cpu   in two processes; so do torchrun --no-python, mpirun and srun
#include <torch/torch.h>

#include <cstdio>

#include <lockstep/data/batch_order.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/main_thread.h>
#include <lockstep/parallel/replicas.h>
#include <lockstep/support/error.h>

// One per replica.
struct Learner {
  torch::nn::Linear net = torch::nn::Linear(3, 1);
  torch::optim::Adam adam{net->parameters(), torch::optim::AdamOptions(.05)};
};

int main(int argc, char** argv) try {
  lockstep::leave_cores_to_replicas();
  torch::manual_seed(0);
  const auto X = torch::rand({500, 3}), y = X.matmul(torch::tensor({{1.f}, {-2.f}, {3.f}})) + .5f;
  lockstep::Replicas<Learner> replicas(
      {.devices = lockstep::parse_devices(argc > 1 ? argv[1] : "cpux2"),
       .process_group = lockstep::join_process_group(lockstep::find_world())});
  replicas.attach(&Learner::net);  // > all start with the same weights
  double loss = 1;
  for (int64_t epoch = 0; epoch < 60; ++epoch) {
    const auto order = torch::tensor(lockstep::batch_order(/*seed=*/0, epoch, 500));  // every row once
    for (const auto& rows : order.split(64)) {
      const lockstep::Batch batch(X.index_select(0, rows), y.index_select(0, rows));
      replicas.step(batch, [](Learner& own, const auto& shard, lockstep::Step& step) {  // > with its rows
        own.adam.zero_grad();
        const auto squares = (own.net(shard.input()) - shard.target()).square();
        (squares.sum() / step.rows()).backward();  // > rows of the whole batch
        step.wait(own.net);                        // > every .grad is now the sum over all replicas
        own.adam.step();
        step.add("loss", squares);
      });
    }
    loss = replicas.take_sums().mean("loss");
  }
  if (replicas.is_first()) std::printf("loss %.2e on %d replicas\n", loss, replicas.world_size());
  return loss < 1e-4 ? 0 : 1;
} catch (const lockstep::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.exit_code());
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
