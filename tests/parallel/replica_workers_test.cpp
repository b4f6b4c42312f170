#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>

#include <lockstep/tests/catch.h>
#include <stdexcept>
#include <string>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/threads/cpu_cores.h>

using namespace lockstep;

TEST_CASE("each replica's thread has its own number of threads, its own cores and its own backward") {
  const auto allowed = allowed_cores();
  const int threads = GENERATE(1, 2);
  const int world = GENERATE(1, 2, 3);
  INFO(world << " replicas, " << threads << " threads");
  ReplicaWorkers workers(std::vector<torch::Device>(static_cast<size_t>(world), torch::kCPU), threads);
  CHECK(workers.size() == world);
  std::vector<int> seen_threads(static_cast<size_t>(world));
  std::vector<std::vector<int>> seen_cores(static_cast<size_t>(world));
  std::vector<char> multithreaded(static_cast<size_t>(world));
  workers.run([&](int rank) {
    const auto i = static_cast<size_t>(rank);
    seen_threads[i] = at::get_num_threads();
    seen_cores[i] = allowed_cores();
    multithreaded[i] = c10::AutogradState::get_tls_state().get_multithreading_enabled();
  });
  for (int rank = 0; rank < world; ++rank) {
    const auto i = static_cast<size_t>(rank);
    CHECK(seen_threads[i] == threads);
    CHECK(seen_cores[i] == cores_for_worker(allowed, rank, world, threads));
    CHECK_FALSE(multithreaded[i]);
  }
  CHECK(allowed_cores() == allowed);  // the caller's own thread keeps its cores
}

TEST_CASE("an exception in one replica reaches the caller, and the workers can be used again") {
  ReplicaWorkers workers(std::vector<torch::Device>(3, torch::kCPU), 1);
  CHECK_THROWS_WITH(workers.run([](int rank) {
    if (rank == 1) throw std::runtime_error("replica 1");
  }),
                    "replica 1");
  std::vector<int> ranks(3, -1);
  workers.run([&](int rank) { ranks[static_cast<size_t>(rank)] = rank; });
  CHECK(ranks == std::vector<int>{0, 1, 2});
}

TEST_CASE("workers refuse replicas without threads, and a communicator of other replicas") {
  const std::vector<torch::Device> two(2, torch::kCPU);
  for (const int threads : {0, -3}) {
    CHECK_THROWS_WITH(ReplicaWorkers(two, threads),
                      "a replica cannot have " + std::to_string(threads) + " threads");
  }
  ReplicaWorkers one({torch::kCPU}, 1);
  const auto communicator = make_communicator({.devices = two});
  CHECK_THROWS_WITH(one.run(*communicator, [](int, Endpoint&) {}),
                    "the workers are for 1 replica, but the communicator for 2 replicas in this process");
}
