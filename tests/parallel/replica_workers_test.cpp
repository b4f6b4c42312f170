#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>

#include <fmt/format.h>
#include <lockstep/tests/catch.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/parallel/threads/openmp_threads.h>
#include <lockstep/parallel/threads/replica_thread.h>
#include <lockstep/parallel/threads/task_thread.h>
#include <lockstep/parallel/trainer_options.h>
#include <lockstep/tests/support/process.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/variable.h>

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

TEST_CASE("without a number of threads the replicas share the cores") {
  const auto cores = static_cast<int>(allowed_cores().size());
  for (const int world : {1, 2, 3, cores, cores + 1}) {
    INFO(world << " replicas on " << cores << " cores");
    ReplicaWorkers workers(std::vector<torch::Device>(static_cast<size_t>(world), torch::kCPU));
    std::vector<int> seen(static_cast<size_t>(world));
    workers.run([&](int rank) { seen[static_cast<size_t>(rank)] = at::get_num_threads(); });
    CHECK(seen == std::vector<int>(static_cast<size_t>(world), default_threads(world)));
  }
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
    return testing::refusal_of([&] { workers_.run(*communicator_, task); });
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

namespace {

// Runs a hidden case of this program in its own process: OpenMP reads its variables when a program starts.
int exit_code_of_case(const std::string& name, const std::map<std::string, std::string>& variables) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto result = testing::run_process(
      {.command = {"/usr/bin/timeout", "-s", "KILL", "60", self, name}, .environment = variables});
  UNSCOPED_INFO(result.out);
  return result.exit_code;
}

}  // namespace

TEST_CASE("OMP_THREAD_LIMIT bounds the threads of each replica alone") {
  CHECK(granted_threads(3) == 3);
  CHECK(exit_code_of_case("limited to two threads of OpenMP", {{"OMP_THREAD_LIMIT", "2"}}) == 0);
}

TEST_CASE("limited to two threads of OpenMP", "[.]") {
  CHECK(granted_threads(1) == 1);
  CHECK(granted_threads(3) == 2);
  CHECK(default_threads(1) == std::min<int>(2, static_cast<int>(allowed_cores().size())));
  const std::string text =
      "a replica cannot have 3 threads: OMP_THREAD_LIMIT grants it 2 | give it 2, or unset "
      "OMP_THREAD_LIMIT";
  CHECK(testing::refusal_and_hint([] { ReplicaWorkers({torch::kCPU}, 3); }) == text);
  TrainerOptions options;
  options.devices = {torch::kCPU};
  options.threads = 3;
  CHECK(testing::refusal_and_hint([&] { options.validate(); }) == text);
  options.threads = 2;
  options.validate();
  ReplicaWorkers both(std::vector<torch::Device>(2, torch::kCPU), 2);
  both.run([](int) { check_threads_started(2); });  // at the same time
}

TEST_CASE("a replica has all of its threads, whatever the variables of OpenMP say") {
  for (const auto& variable : std::map<std::string, std::string>{
           {"OMP_DYNAMIC", "true"}, {"OMP_MAX_ACTIVE_LEVELS", "0"}, {"OMP_NUM_THREADS", "1"}}) {
    INFO(variable.first);
    CHECK(exit_code_of_case("more threads than cores", {variable}) == 0);
  }
}

TEST_CASE("more threads than cores", "[.]") {
  const int threads = static_cast<int>(std::thread::hardware_concurrency()) + 1;
  ReplicaWorkers workers({torch::kCPU}, threads);
  workers.run([&](int) { check_threads_started(threads); });
}

TEST_CASE("threads that OpenMP does not start are an error before torch waits for them") {
  TaskThread thread;
  std::promise<std::string> refused;
  thread.post([&] {
    set_intra_op_threads(2);
    auto refusal = testing::refusal_and_hint([] { check_threads_started(2); });
    set_intra_op_threads(1);
    refused.set_value(refusal + testing::refusal_and_hint([] { check_threads_started(2); }));
  });
  CHECK(refused.get_future().get() ==
        "a replica has 2 threads, but OpenMP starts 1 | unset the variables of OpenMP: OMP_..., GOMP_... and "
        "KMP_...");
}

TEST_CASE("a stack with which OpenMP's threads cannot start is an error") {
  const auto refusal = [](const std::string& name, const std::string& value, int threads) {
    const testing::Variable variable(name, value);
    return testing::refusal_and_hint([&] { ReplicaWorkers({torch::kCPU}, threads); });
  };
  // More than the address space.
  CHECK_THAT(refusal("OMP_STACKSIZE", "1000000g", 2),
             StartsWith("OpenMP cannot start 1 thread with OMP_STACKSIZE=1000000g: "));
  CHECK_THAT(refusal("GOMP_STACKSIZE", " 1000000000000 M ", 3),
             StartsWith("OpenMP cannot start 2 threads with GOMP_STACKSIZE= 1000000000000 M : "));
  CHECK(refusal("OMP_STACKSIZE", "1000000g", 1).empty());  // it starts none
  // OpenMP takes the usual size for the last four: too small, no numbers, and too large for any.
  for (const auto* value : {"2m", "2097152B", "2048", "1", "1b", "large", "2x", "99999999999999999999g"}) {
    INFO(value);
    CHECK(refusal("OMP_STACKSIZE", value, 2).empty());
  }
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
