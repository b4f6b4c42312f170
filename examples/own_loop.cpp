// Your own training loop with a torch optimizer. Six lines (marked >) make it data-parallel. One more (>>)
// finds the other processes, if a launcher has started several.
//
//   own_loop [DEVICES]                       default: cpux2
//   lockstep launch -n 2 -- ./own_loop cpu   in two processes; so do torchrun --no-python, mpirun and srun
#include <torch/torch.h>

#include <cstdio>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/world/world.h>
#include <lockstep/support/error.h>

int main(int argc, char** argv) try {
  constexpr int64_t kRows = 512;  // per step, over all replicas
  torch::manual_seed(0);
  const auto X = torch::rand({kRows, 3}), y = X.matmul(torch::tensor({{1.f}, {-2.f}, {3.f}})) + .5f;

  const auto devices = lockstep::parse_devices(argc > 1 ? argv[1] : "cpux2");
  const auto group = lockstep::join_process_group(lockstep::find_world());                              // >>
  lockstep::ReplicaWorkers workers(devices, /*threads=*/1);                                             // >
  const auto communicator = lockstep::make_communicator({.devices = devices, .process_group = group});  // >
  double last_loss = 1;
  workers.run(*communicator, [&](int local, lockstep::Endpoint& endpoint) {  // >
    const auto device = endpoint.device();
    const auto rank = static_cast<size_t>(endpoint.rank());  // of this replica, over all processes
    const auto own_X = X.tensor_split(endpoint.world_size())[rank].to(device);
    const auto own_y = y.tensor_split(endpoint.world_size())[rank].to(device);
    torch::nn::Linear net(3, 1);
    net->to(device);
    lockstep::GradientSync sync(endpoint);  // >
    sync.attach(*net);                      // >
    torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(.05));

    for (int step = 0; step < 400; ++step) {
      adam.zero_grad();
      const auto loss = (net(own_X) - own_y).square().sum() / kRows;  // this replica's share of the mean
      loss.backward();
      sync.wait();  // >
      adam.step();
      if (local == 0) last_loss = loss.item<double>();
    }
  });
  if (communicator->first_rank() == 0) {
    std::printf("rank 0's share of the last loss: %.2e on %d replicas\n", last_loss,
                communicator->world_size());
  }
  return last_loss < 1e-4 ? 0 : 1;
} catch (const lockstep::Error& error) {
  std::fprintf(stderr, "%s\n%s\n", error.what(), error.hint().c_str());
  return static_cast<int>(error.exit_code());
}
