// Your own training loop with a torch optimizer and a DataLoader. The lines marked > make it data-parallel.
// One more (>>) finds the other processes, if a launcher has started several.
//   own_loop [DEVICES]                       default: cpux2
//   lockstep launch -n 2 -- ./own_loop cpu   in two processes; so do torchrun --no-python, mpirun and srun
#include <torch/torch.h>

#include <cstdio>

#include <lockstep/data/rank_sampler.h>
#include <lockstep/parallel/build_replicas.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/replica_random.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/world/world.h>
#include <lockstep/support/error.h>

int main(int argc, char** argv) try {
  torch::manual_seed(0);
  const auto X = torch::rand({500, 3}), y = X.matmul(torch::tensor({{1.f}, {-2.f}, {3.f}})) + .5f;
  const torch::data::transforms::Stack<torch::data::TensorExample> stacked;
  const auto data = torch::data::datasets::TensorDataset(torch::cat({X, y}, 1)).map(stacked);
  const auto devices = lockstep::parse_devices(argc > 1 ? argv[1] : "cpux2");
  const auto group = lockstep::join_process_group(lockstep::find_world());                              // >>
  lockstep::ReplicaWorkers workers(devices);                                                            // >
  const auto communicator = lockstep::make_communicator({.devices = devices, .process_group = group});  // >
  auto nets = lockstep::build_replicas(workers.size(), [] { return torch::nn::Linear(3, 1); });         // >
  double last_loss = 1;
  workers.run(*communicator, [&](int local, lockstep::Endpoint& endpoint) {  // > in each replica's thread
    const int rank = endpoint.rank(), world = endpoint.world_size();         // over all processes
    auto& net = nets[static_cast<size_t>(local)];
    net->to(endpoint.device());
    lockstep::GradientSync sync(endpoint);                                                            // >
    sync.attach(*net);                                                                                // >
    const lockstep::RankSampler rows({.rows = 500, .batch_rows = 64, .rank = rank, .world = world});  // >
    auto loader = torch::data::make_data_loader(data, rows, torch::data::DataLoaderOptions());
    torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(.05));
    for (int64_t number = 0, epoch = 0; epoch < 60; ++epoch) {
      auto batch = loader->begin();
      for (int64_t step = 0; step < rows.steps(); ++step, ++number) {
        const lockstep::ReplicaRandom random(/*seed=*/0, number, rank);  // > for layers such as Dropout
        adam.zero_grad();
        const bool has_rows = rows.own_rows(step) > 0;  // > a small last batch may have none for it
        if (has_rows) {
          const auto own = batch->data.to(endpoint.device());
          const auto error = net(own.narrow(1, 0, 3)) - own.narrow(1, 3, 1);
          const auto loss = error.square().sum() / rows.batch_rows(step);  // its share of the mean
          loss.backward();
          if (local == 0) last_loss = loss.item<double>();
          ++batch;
        }
        has_rows ? sync.wait() : sync.allreduce_all();  // >
        adam.step();
      }
    }
  });
  const int replicas = communicator->world_size(), first = communicator->first_rank();
  if (first == 0) std::printf("rank 0's share of the last loss: %.2e on %d replicas\n", last_loss, replicas);
  return last_loss < 1e-4 ? 0 : 1;
} catch (const lockstep::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.exit_code());
} catch (const std::exception& error) {  // of the model, such as c10::Error
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
