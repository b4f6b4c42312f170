// Collectives and training steps in several processes, compared with what they must give. Started as torchrun
// or lockstep launch start programs.
//
//   grid DEVICES/DEVICES/...   one list per process: cpux3/cpu
//
// Prints each result that is wrong, and ends with 1 if there is one.
#include <torch/types.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/dataset.h>
#include <lockstep/data/synthetic.h>
#include <lockstep/models/lenet.h>
#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/world/world.h>
#include <lockstep/support/model_factory.h>

namespace {

using Devices = std::vector<torch::Device>;
using Group = std::shared_ptr<lockstep::ProcessGroup>;

std::atomic<int> checks = 0, failures = 0;

void check(bool holds, const std::string& what) {
  ++checks;
  if (holds) return;
  ++failures;
  std::fprintf(stderr, "grid: wrong: %s\n", what.c_str());
}

// Small whole numbers that differ between elements, and between up to 7 ranks. Their sums are exact in every
// dtype. (n)
torch::Tensor numbers(int rank, int64_t n, torch::ScalarType dtype) {
  return torch::arange(n, torch::kInt64).add(3 * rank).remainder(7).add(1).to(dtype);
}

// (world, n)
torch::Tensor numbers_of_all(int world, int64_t n, torch::ScalarType dtype) {
  auto all = torch::empty({world, n}, dtype);
  for (int rank = 0; rank < world; ++rank) all[rank].copy_(numbers(rank, n, dtype));
  return all;
}

void check_collectives(lockstep::Endpoint& endpoint, int64_t n, torch::ScalarType dtype) {
  const int rank = endpoint.rank(), world = endpoint.world_size();
  const auto all = numbers_of_all(world, n, dtype);
  const auto at = [&](const std::string& name) {
    std::ostringstream text;
    text << name << " of " << n << " " << dtype << " at rank " << rank << " of " << world;
    return text.str();
  };
  const auto sum = numbers(rank, n, dtype);
  endpoint.allreduce_sum(sum).wait();
  check(sum.equal(all.sum(0, /*keepdim=*/false, dtype)), at("sum"));
  const auto gathered = torch::zeros({world, n}, dtype);
  endpoint.all_gather(numbers(rank, n, dtype), gathered).wait();
  check(gathered.equal(all), at("all_gather"));
  for (int root = 0; root < world; ++root) {
    const auto sent = numbers(rank, n, dtype);
    endpoint.broadcast(sent, root).wait();
    check(sent.equal(all[root]), at("broadcast from " + std::to_string(root)));
  }
}

void check_all_collectives(const Devices& devices, const Group& group) {
  lockstep::ReplicaWorkers workers(devices, /*threads=*/1);
  const auto communicator = lockstep::make_communicator({.devices = devices, .process_group = group});
  workers.run(*communicator, [](int, lockstep::Endpoint& endpoint) {
    const int64_t world = endpoint.world_size();
    for (const int64_t n : {int64_t{0}, int64_t{1}, world - 1, world, int64_t{997}, int64_t{100'000}}) {
      for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kInt64}) {
        check_collectives(endpoint, n, dtype);
      }
    }
  });
}

// The weights after three steps of LeNet, of 29 rows each: uneven shards.
std::vector<lockstep::NamedTensor> trained(lockstep::TrainerOptions options) {
  constexpr int64_t kSteps = 3, kRows = 29;
  const auto data = lockstep::make_synthetic(/*seed=*/1, kSteps * kRows, /*test_rows=*/1).train;
  options.lr = {.lr = .1};
  options.replica.optimizer.momentum = .9;
  const auto dtype = options.replica.invariant ? torch::kFloat32 : torch::kFloat64;
  options.replica.precision =
      options.replica.invariant ? lockstep::Precision::kFp32 : lockstep::Precision::kFp64;
  const auto source = lockstep::resident_sources(data);
  lockstep::Trainer trainer(lockstep::model_factory<lockstep::LeNetImpl>(uint64_t{0}, dtype), source, source,
                            options);
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<int64_t> rows(kRows);
    std::iota(rows.begin(), rows.end(), step * kRows);
    trainer.step(rows);
  }
  return trainer.weights();
}

// The same training on as many replicas in this process alone. bound: of any element's difference.
void check_training(const lockstep::TrainerOptions& here, size_t world, double bound,
                    const std::string& what) {
  auto alone = here;
  alone.process_group = nullptr;
  alone.devices.assign(world, torch::kCPU);
  const auto found = trained(here), expected = trained(alone);
  check(found.size() == expected.size(), what);
  for (size_t i = 0; i < found.size(); ++i) {
    const auto difference = (found[i].tensor - expected[i].tensor).abs().max().item<double>();
    check(difference <= bound, what + ", " + found[i].name + " differs by " + std::to_string(difference));
  }
}

void check_all_training(const Devices& devices, const Group& group, size_t world) {
  using lockstep::SyncMode;
  lockstep::TrainerOptions options;
  options.devices = devices;
  options.process_group = group;
  for (const auto& [mode, name] :
       {std::pair(SyncMode::kParameterwise, "parameterwise"), std::pair(SyncMode::kBucketed, "bucketed"),
        std::pair(SyncMode::kOverlapped, "overlapped")}) {
    options.replica.sync = {};
    options.replica.sync.mode = mode;
    check_training(options, world, 1e-12, std::string("fp64, ") + name);
  }
  options.replica.sync = {};
  options.replica.invariant = true;
  if (8 % world == 0) check_training(options, world, 0, "invariant");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::vector<Devices> lists;
  std::istringstream in(argv[1]);
  for (std::string list; std::getline(in, list, '/');) lists.push_back(lockstep::parse_devices(list));
  size_t world = 0;
  for (const auto& list : lists) world += list.size();
  const auto place = lockstep::find_world();
  const auto group = lockstep::join_process_group(place);
  const auto& devices = lists.at(static_cast<size_t>(place.process));
  check_all_collectives(devices, group);
  check_all_training(devices, group, world);
  if (place.process == 0) {
    std::printf("%d checks by process 0 of %d, %zu replicas\n", checks.load(), place.processes, world);
  }
  return failures == 0 ? 0 : 1;
}
