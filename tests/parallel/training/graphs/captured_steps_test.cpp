// The Trainer on fake GPUs, whose kernels are queued and whose streams refuse what CUDA refuses. The files
// are those of a real GPU (replica, workers, communicators, step_graph_cuda.cpp, NCCL's). The results must be
// those of the CPU.
#include <lockstep/tests/catch.h>
#include <cmath>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include <lockstep/models/batch_norm.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/training/graphs/step_graph.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/collectives/between_processes.h>
#include <lockstep/tests/parallel/collectives/fake_nccl/fake_nccl.h>
#include <lockstep/tests/parallel/training/graphs/fake_torch_cuda/fake_torch_cuda.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/fake_gpu/fake_gpu.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using Devices = std::vector<torch::Device>;

constexpr int64_t kRows = 32;

TrainerOptions options_for(const Devices& devices, CudaGraph graph, int in_flight = 2) {
  TrainerOptions options;
  options.devices = devices;
  options.in_flight = in_flight;
  // Another rate in every step: a rate kept in the graph would show.
  options.lr = {.schedule = Schedule::kCosine, .lr = .2, .total_steps = 15, .warmup_steps = 2};
  options.replica.optimizer = {.momentum = .9, .weight_decay = 1e-3};
  options.replica.cuda_graph = graph;
  return options;
}

struct Result {
  std::vector<std::vector<NamedTensor>> weights;  // [rank]
  std::vector<TrainSums> sums;                    // every five steps
  RowSums evaluation;
};

// Fifteen steps of epochs with one smaller batch. Each step has other rows.
Result train(
    const ModelFactory& factory, const TrainerOptions& options,
    const std::function<void(Trainer&)>& before_step = [](auto&) {},
    const SourceFactory& rows_of = rows_on_device(kRows)) {
  Trainer trainer(factory, rows_of, rows_of, options);
  Result result;
  for (int64_t step = 0; step < 15; ++step) {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < (step % 5 == 2 ? 5 : 9); ++i) rows.push_back((step * 7 + i * 3) % kRows);
    before_step(trainer);
    trainer.step(rows);
    if (step % 5 == 4) result.sums.push_back(trainer.take_sums());
  }
  result.evaluation = trainer.evaluate();
  for (int rank = 0; rank < trainer.world_size(); ++rank) result.weights.push_back(trainer.weights(rank));
  return result;
}

Result on_cpu(
    int world = 1, const std::function<void(Trainer&)>& before_step = [](auto&) {}) {
  return train(two_layers(),
               options_for(Devices(static_cast<size_t>(world), torch::kCPU), CudaGraph::kOff, 1),
               before_step);
}

void check_near(const Result& found, const Result& expected) {
  for (const auto& weights : found.weights) {
    for (size_t i = 0; i < weights.size(); ++i) {
      INFO(weights[i].name);
      CHECK(max_difference(weights[i].tensor, expected.weights[0][i].tensor) < 1e-5);
    }
  }
  for (size_t i = 0; i < expected.sums.size(); ++i) {
    CHECK(std::abs(found.sums[i].loss - expected.sums[i].loss) < 1e-5 * expected.sums[i].loss);
    CHECK(found.sums[i]["top1"] == expected.sums[i]["top1"]);
    CHECK(found.sums[i].rows == expected.sums[i].rows);
  }
  CHECK(std::abs(found.evaluation.loss - expected.evaluation.loss) < 1e-5 * expected.evaluation.loss);
  CHECK(found.evaluation["top1"] == expected.evaluation["top1"]);
}

// Resets all fakes.
FakeTorchCuda& start() {
  reset_fake_nccl();
  break_gpus(0);
  limit_captured_allocations(-1);
  auto& torch_cuda = fake_torch_cuda();
  torch_cuda.captures = torch_cuda.replays = torch_cuda.races = torch_cuda.unasked_errors = 0;
  torch_cuda.tidies_up = true;
  return torch_cuda;
}

// No capture has left anything behind.
void check_tidy(const FakeTorchCuda& torch_cuda) {
  CHECK(torch_cuda.open_pools == 0);
  CHECK(torch_cuda.used_pools == 0);
  CHECK(torch_cuda.generator_users == 0);
  CHECK(!torch_cuda.generator_captures);
  CHECK(torch_cuda.unasked_errors == 0);
  CHECK(torch_cuda.races == 0);
}

bool capturing(const torch::Tensor& tensor) {
  return tensor.is_privateuseone() && stream_is_capturing(fake_stream(current_stream(tensor.device())));
}

// Has a batch norm that no step uses.
class NormBesideImpl : public TwoLayersImpl {
 public:
  NormBesideImpl() : TwoLayersImpl({}) { register_module("norm", BatchNorm1d(6)); }
};

}  // namespace

TEST_CASE("training on GPUs gives the results of the CPU, captured or not, with one step in flight or two") {
  auto& torch_cuda = start();
  const auto devices =
      GENERATE(Devices{fake_gpu(0)}, Devices{fake_gpu(0), fake_gpu(1)}, Devices{fake_gpu(0), fake_gpu(0)});
  const auto graph = GENERATE(CudaGraph::kOff, CudaGraph::kAuto, CudaGraph::kOn);
  const int in_flight = GENERATE(1, 2);
  INFO(devices.size() << " replicas, the last on " << devices.back() << ", graphs " << static_cast<int>(graph)
                      << ", in flight " << in_flight);
  const auto found = train(two_layers(), options_for(devices, graph, in_flight));
  check_near(found, on_cpu(static_cast<int>(devices.size())));
  const int world = static_cast<int>(devices.size());
  // Per replica: one graph per shape, and one for the update where gradients are summed in between.
  CHECK(torch_cuda.captures == (graph == CudaGraph::kOff ? 0 : world == 1 ? 2 : 3 * world));
  CHECK((torch_cuda.replays > 0) == (graph != CudaGraph::kOff));
  check_tidy(torch_cuda);
}

TEST_CASE(
    "rows of a source that cannot be captured are gathered before each replay, into the graph's memory") {
  struct Uncaptured : BatchSource {
    explicit Uncaptured(torch::Device device) : rows(rows_on_device(kRows)(device)) {}
    int64_t size() const override { return rows->size(); }
    BatchSpec spec() const override { return rows->spec(); }
    void gather(const torch::Tensor& numbers, int64_t epoch, Batch& into) const override {
      if (capturing(numbers)) throw std::logic_error("captured");
      Batch anew(std::make_shared<const BatchSpec>(spec()));
      rows->gather(numbers, epoch, anew);
      into = anew;  // other memory in each step
    }
    bool can_be_captured() const override { return false; }
    const std::shared_ptr<const BatchSource> rows;
  };
  auto& torch_cuda = start();
  const auto devices = GENERATE(Devices{fake_gpu(0)}, Devices{fake_gpu(0), fake_gpu(0)});
  const auto found = train(
      two_layers(), options_for(devices, CudaGraph::kOn), [](auto&) {},
      [](torch::Device device) { return std::make_shared<Uncaptured>(device); });
  check_near(found, on_cpu(static_cast<int>(devices.size())));
  CHECK(torch_cuda.replays > 0);
  check_tidy(torch_cuda);
}

// A replayed graph writes to the memory of the gradients, and runs no code of the host.
TEST_CASE("zero_grad() between steps on GPUs, or in each forward pass, changes no step, captured or not") {
  auto& torch_cuda = start();
  const auto devices = GENERATE(Devices{fake_gpu(0)}, Devices{fake_gpu(0), fake_gpu(0)});
  const auto graph = GENERATE(CudaGraph::kOff, CudaGraph::kOn);
  const auto options = options_for(devices, graph);
  const auto expected = on_cpu(static_cast<int>(devices.size()));
  check_near(train(two_layers(), options,
                   [](auto& trainer) {
                     for (int local = 0; local < trainer.local_size(); ++local) {
                       trainer.model(local).module->zero_grad();
                     }
                   }),
             expected);
  check_near(train(zeroing_gradients(two_layers()), options), expected);
  CHECK((torch_cuda.replays > 0) == (graph == CudaGraph::kOn));
}

TEST_CASE("captured steps follow a model that is set to eval(), and refuse a buffer with other memory") {
  auto& torch_cuda = start();
  const auto devices = GENERATE(Devices{fake_gpu(0)}, Devices{fake_gpu(0), fake_gpu(0)});
  const int world = static_cast<int>(devices.size());
  const auto freeze = [](Trainer& trainer) {
    if (trainer.steps_taken() < 10) return;
    for (int local = 0; local < trainer.local_size(); ++local) trainer.model(local).module->eval();
  };
  check_near(train(two_layers(), options_for(devices, CudaGraph::kOn), freeze), on_cpu(world, freeze));
  CHECK(torch_cuda.replays > 0);
  const auto replace = [&](Trainer& trainer) {
    if (trainer.steps_taken() < 10) return;
    auto mean = trainer.model(world - 1).module->named_buffers()["mean"];
    mean.set_data(mean.clone());
  };
  CHECK_THROWS_WITH(
      train(two_layers(), options_for(devices, CudaGraph::kOn), replace),
      ContainsSubstring("replica " + std::to_string(world - 1) + ": buffer mean has other memory"));
}

TEST_CASE("a step may be handed over while a replica's stream is being captured") {
  start();
  ReplicaWorkers workers({fake_gpu(0)}, 1);
  const auto communicator = make_communicator({.devices = {fake_gpu(0)}});
  std::promise<void> begun, handed_over;
  int sum = 0;
  workers.start(*communicator, [&](int, Endpoint&) {
    StepGraph graph([&] {
      launch(current_stream(fake_gpu(0)), [&] { sum += 1; });
      begun.set_value();
      handed_over.get_future().wait();
    });
    graph.replay();
  });
  begun.get_future().wait();
  std::promise<void> gate;
  launch(current_stream(fake_gpu(0)), [open = gate.get_future().share(), &sum] {
    open.wait();
    sum = 10;
  });
  workers.start(*communicator,
                [&](int, Endpoint&) { launch(current_stream(fake_gpu(0)), [&] { sum *= 2; }); });
  handed_over.set_value();
  gate.set_value();
  workers.wait();
  launch(current_stream(fake_gpu(0)), [&] { sum += 100; });  // after what the replicas have queued
  current_stream(fake_gpu(0)).synchronize();
  CHECK((sum == 120 || sum == 122));  // the first task's graph runs before or after the caller's work
}

TEST_CASE("a capture that fails reports its first error, and training goes on without graphs") {
  auto& torch_cuda = start();
  const bool tidies_up = GENERATE(true, false);
  const auto devices = GENERATE(Devices{fake_gpu(0)}, Devices{fake_gpu(0), fake_gpu(0)});
  const bool out_of_memory = GENERATE(true, false);
  INFO("torch tidies up " << tidies_up << ", replicas " << devices.size() << ", out of memory "
                          << out_of_memory);
  torch_cuda.tidies_up = tidies_up;
  // A network that copies a number to the host, which cannot be captured.
  const auto factory = two_layers([&](const torch::Tensor& X) {
    if (!out_of_memory && capturing(X)) X.sum().item<float>();
  });
  const std::string words =
      out_of_memory ? "CUDA out of memory" : "operation not permitted when stream is capturing (900)";
  const auto limit = [&] { limit_captured_allocations(out_of_memory ? 8 : -1); };

  limit();
  CHECK_THROWS_WITH(train(factory, options_for(devices, CudaGraph::kOn)), ContainsSubstring(words));
  check_tidy(torch_cuda);

  limit();
  auto options = options_for(devices, CudaGraph::kAuto);
  std::mutex mutex;
  std::vector<std::string> notices;
  options.replica.notice = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    notices.push_back(text);
  };
  check_near(train(factory, options), on_cpu(static_cast<int>(devices.size())));
  REQUIRE(notices.size() == devices.size());
  for (const auto& notice : notices) CHECK_THAT(notice, ContainsSubstring(words));
  CHECK(torch_cuda.replays == 0);
  check_tidy(torch_cuda);
}

TEST_CASE("graphs of one GPU are captured one after the other") {
  auto& torch_cuda = start();
  ReplicaWorkers workers({fake_gpu(0), fake_gpu(0)}, 1);
  std::atomic<int> arrived = 0;
  std::vector<std::unique_ptr<StepGraph>> graphs(2);
  workers.run([&](int rank) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
    graphs[static_cast<size_t>(rank)] = std::make_unique<StepGraph>([&] {
      for (int i = 0; i < 1000 && torch_cuda.races == 0; ++i)
        std::this_thread::yield();  // time for the other
    });
  });
  workers.run([&](int rank) {
    for (int i = 0; i < 100; ++i) graphs[static_cast<size_t>(rank)]->replay();
    graphs[static_cast<size_t>(rank)].reset();
  });
  check_tidy(torch_cuda);
}

TEST_CASE("after an aborted collective evaluate() and weights() throw") {
  start();
  const bool evaluates = GENERATE(true, false);
  Trainer trainer(two_layers(), rows_on_device(kRows), rows_on_device(kRows),
                  options_for({fake_gpu(0), fake_gpu(1)}, CudaGraph::kOff));
  trainer.step(std::vector<int64_t>{1, 2, 3, 4});
  trainer.synchronize();
  std::promise<void> gate;
  const auto open = gate.get_future().share();
  for (int i = 0; i < 2; ++i) {
    launch(current_stream(fake_gpu(i)), [open] { open.wait(); });
  }
  // From here on collectives fail on the GPU, although NCCL's calls succeed.
  fake_nccl().polls_in_progress = 0;
  fake_nccl().on_abort = [&, done = std::make_shared<std::once_flag>()] {
    std::call_once(*done, [&] { gate.set_value(); });
  };
  fake_nccl().after_collectives = ncclRemoteError;
  if (evaluates)
    CHECK_THROWS_AS(trainer.evaluate(), PeerError);
  else
    CHECK_THROWS_AS(trainer.weights(), PeerError);
}

TEST_CASE("weights on GPUs are compared after the steps in flight") {
  start();
  auto options = options_for(GENERATE(Devices{fake_gpu(0), fake_gpu(1)}, Devices{fake_gpu(0), fake_gpu(0)}),
                             GENERATE(CudaGraph::kOff, CudaGraph::kAuto));
  options.check_sync = 3;
  Trainer trainer(two_layers(), rows_on_device(kRows), rows_on_device(kRows), options);
  const std::vector<int64_t> rows = {1, 2, 3, 4};
  for (int step = 0; step < 4; ++step) trainer.step(rows);
  trainer.synchronize();
  trainer.model(1).module->named_parameters()["outer"].detach().view({-1})[7].add_(1);
  trainer.step(rows);
  CHECK_THROWS_WITH(trainer.step(rows),
                    ContainsSubstring("after step 6 the replicas differ: outer of rank 1 (") &&
                        ContainsSubstring(") is not that of rank 0"));
}

TEST_CASE("a trainer's destructor waits for its GPUs, which still read its data") {
  start();
  const auto steps = std::make_shared<std::atomic<int>>(0);  // that a GPU has reached
  const auto factory = two_layers(
      [steps](const torch::Tensor& X) { launch(current_stream(X.device()), [steps] { ++*steps; }); });
  auto trainer = std::make_unique<Trainer>(factory, rows_on_device(kRows), rows_on_device(kRows),
                                           options_for({fake_gpu(0)}, CudaGraph::kOff));
  std::promise<void> gate, going;
  launch(current_stream(fake_gpu(0)), [open = gate.get_future().share()] { open.wait(); });
  trainer->step(std::vector<int64_t>{1, 2, 3, 4});
  std::jthread opens([&] {
    going.get_future().wait();
    for (int i = 0; i < 10'000; ++i) std::this_thread::yield();  // time for a destructor that does not wait
    gate.set_value();
  });
  going.set_value();
  trainer.reset();
  CHECK(*steps == 1);
}

TEST_CASE("at most 16 replicas share a GPU, each with its own stream") {
  start();
  ReplicaWorkers workers(Devices(16, fake_gpu(2)), 1);
  std::mutex mutex;
  std::set<c10::StreamId> streams;
  workers.run([&](int) {
    const std::lock_guard lock(mutex);
    streams.insert(current_stream(fake_gpu(2)).id());
  });
  CHECK(streams.size() == 16);
  CHECK_THROWS_WITH(ReplicaWorkers(Devices(17, fake_gpu(2)), 1),
                    ContainsSubstring("is listed 17 times but has streams for only 16 replicas"));
}

TEST_CASE("between processes the statistics of batch norms take no second communicator of NCCL") {
  start();
  auto options = options_for({}, CudaGraph::kOff);
  options.bn = BnPolicy::kSync;
  options.allreduce = Allreduce::kNccl;
  run_processes(2, [&](int process, const Group& group) {
    auto own = options;
    own.devices = {fake_gpu(process)};
    own.process_group = group;
    const Trainer trainer(model_factory<NormBesideImpl>(), rows_on_device(kRows), rows_on_device(kRows), own);
  });
  CHECK(fake_nccl().destroyed == 2);  // one per GPU
}
