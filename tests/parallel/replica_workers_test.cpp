#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>

#include <fmt/format.h>
#include <lockstep/tests/catch.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/error.h>

using namespace lockstep;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

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

namespace {

// Three replicas, each of which has a number of collectives of its own.
class Uneven {
 public:
  using Task = std::function<void(int local, Endpoint& endpoint)>;

  std::string error_of(const Task& task) {
    try {
      workers_.run(*communicator_, task);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  }

  void start(const Task& task) { workers_.start(*communicator_, task); }

 private:
  const std::vector<torch::Device> devices_ = std::vector<torch::Device>(3, torch::kCPU);
  ReplicaWorkers workers_{devices_, 1};
  std::unique_ptr<Communicator> communicator_ = make_communicator({.devices = devices_});
};

void sum(Endpoint& endpoint) { endpoint.allreduce_sum(torch::ones({5})).wait(); }

}  // namespace

// The others would wait for it for ever.
TEST_CASE("a replica that returns after fewer collectives than the others ends all of them") {
  const int early = GENERATE(0, 1, 2);
  Uneven uneven;
  const auto train = [&](int steps, int early_steps) {
    return uneven.error_of([&](int local, Endpoint& endpoint) {
      for (int step = 0; step < (local == early ? early_steps : steps); ++step) sum(endpoint);
    });
  };
  CHECK(train(4, 4).empty());  // as many on all
  CHECK(train(3, 3).empty());
  const auto error = train(4, 2);
  CHECK_THAT(error, StartsWith(fmt::format("rank {} has returned after 9 collectives, but rank ", early)) &&
                        EndsWith("has called 10"));
  CHECK(train(1, 1) == error);  // the communicator cannot be used any more
}

TEST_CASE("a collective more that nobody waits for is found when all have returned") {
  Uneven uneven;
  Work kept;
  CHECK(uneven.error_of([&](int local, Endpoint& endpoint) {
    sum(endpoint);
    if (local == 1) kept = endpoint.allreduce_sum(torch::ones({5}));
  }) == "rank 0 has returned after 1 collective, but rank 1 has called 2");
}

TEST_CASE("replicas that return long before the others, after as many collectives, are no error") {
  Uneven uneven;
  uneven.start([](int, Endpoint& endpoint) { sum(endpoint); });
  CHECK(uneven
            .error_of([&](int local, Endpoint& endpoint) {
              sum(endpoint);
              if (local == 0) return;
              // The caller looks at the replicas ten times a second.
              const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(350);
              while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
            })
            .empty());
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
