// Parts that are computed again, on several replicas: beside the same replicas without that.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include <lockstep/tests/catch.h>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/models/initialize.h>
#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/recompute.h>
#include <lockstep/parallel/recompute/refusal.h>
#include <lockstep/parallel/replica_random.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Two blocks with dropout and a batch norm, and a weight that is used within them and outside.
struct BlocksImpl : torch::nn::Module {
  explicit BlocksImpl(bool again, int64_t width = 12) : again_(again) {
    const SeededGenerator generator(1);  // replicas are built at the same time
    tied = register_module("tied", torch::nn::Linear(width, width));
    for (const auto* name : {"first", "second"}) {
      layers.push_back(register_module(name, torch::nn::Linear(width, width)));
    }
  }

  torch::Tensor block(size_t i, const torch::Tensor& x) {
    return dropout(torch::tanh(norm(layers[i](torch::tanh(tied(x)))))) + x;
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::tanh(tied(x));
    for (size_t i = 0; i < layers.size(); ++i) {
      x = again_ ? recompute(
                       *this, [this, i](const torch::Tensor& h) { return block(i, h); }, x)
                 : block(i, x);
    }
    return tied(x);
  }

  torch::nn::Linear tied{nullptr};
  std::vector<torch::nn::Linear> layers;
  torch::nn::BatchNorm1d norm =
      register_module("norm", torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(12).affine(false)));
  torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout(.3));

 private:
  const bool again_;
};

// Weights and buffers of all ranks of a process after three steps of two micro-batches.
std::vector<torch::Tensor> trained(const Layout& layout, int process, const Group& group, bool again) {
  const std::vector<torch::Device> devices(static_cast<size_t>(layout[static_cast<size_t>(process)]),
                                           torch::kCPU);
  ReplicaWorkers workers(devices, 1);
  const auto communicator = make_communicator({.devices = devices, .threads = 1, .process_group = group});
  std::vector<std::vector<torch::Tensor>> by_replica(devices.size());
  workers.run(*communicator, [&](int local, Endpoint& endpoint) {
    BlocksImpl net(again);
    GradientSync sync(endpoint, {.bucket_bytes = 512});  // several buckets
    sync.attach(net);
    torch::optim::Adam adam(net.parameters(), .01);
    const auto rows = torch::linspace(-1, 1, 96).view({8, 12}) * (1 + endpoint.rank());
    for (int step = 0; step < 3; ++step) {
      const ReplicaRandom random(/*seed=*/2, step, endpoint.rank());
      adam.zero_grad();
      {
        const auto no_sync = sync.no_sync();
        net.forward(rows.narrow(0, 0, 4)).square().sum().backward();
      }
      net.forward(rows.narrow(0, 4, 4)).square().sum().backward();
      sync.wait();
      adam.step();
    }
    auto& all = by_replica[static_cast<size_t>(local)];
    for (const auto& param : net.parameters()) all.push_back(param.detach().clone());
    for (const auto& buffer : net.buffers()) all.push_back(buffer.clone());
  });
  std::vector<torch::Tensor> all;
  for (const auto& one : by_replica) all.insert(all.end(), one.begin(), one.end());
  return all;
}

// A classifier of images for Trainer.
struct ClassifierImpl : torch::nn::Module {
  explicit ClassifierImpl(bool again) : again_(again) {
    const SeededGenerator generator(1);
    inner = register_module("inner", torch::nn::Linear(784, 24));
    outer = register_module("outer", torch::nn::Linear(24, 10));
  }

  torch::Tensor forward(const torch::Tensor& X) {
    const auto part = [this](const torch::Tensor& x) { return dropout(torch::tanh(inner(x))); };
    const auto rows = X.flatten(1);
    return outer(again_ ? recompute(*this, part, rows) : part(rows));
  }

  torch::nn::Linear inner{nullptr}, outer{nullptr};
  torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout(.3));

 private:
  const bool again_;
};

}  // namespace

TEST_CASE(
    "replicas that compute parts again sum the same gradients during backward, in one process and two") {
  for (const auto& layout : {Layout{1}, Layout{2}, Layout{1, 1}}) {
    INFO(text_of(layout));
    const auto of = [&](bool again) {
      return by_process(processes_of(layout), [&](int process, const Group& group) {
        return trained(layout, process, group, again);
      });
    };
    const auto expected = of(false), found = of(true);
    for (size_t process = 0; process < expected.size(); ++process) {
      REQUIRE(found[process].size() == expected[process].size());
      for (size_t i = 0; i < expected[process].size(); ++i) {
        INFO("process " << process << ", tensor " << i);
        CHECK(found[process][i].equal(expected[process][i]));
      }
    }
  }
}

TEST_CASE("Trainer gets the same weights from a model that computes a part again") {
  const std::vector<std::pair<std::string, std::function<void(TrainerOptions&)>>> changes = {
      {"usual", [](auto&) {}},
      {"micro-batches", [](auto& options) { options.accumulate = 3; }},
      {"invariant", [](auto& options) { options.replica.invariant = true; }},
      {"bf16", [](auto& options) { options.replica.precision = Precision::kBf16; }},
  };
  for (const auto& [name, change] : changes) {
    for (const auto& layout : {Layout{1}, Layout{2}, Layout{1, 1}}) {
      INFO(name << ", " << text_of(layout));
      TrainerOptions options = options_for(1);
      change(options);
      const auto of = [&](bool again) {
        return in_processes(layout, options, [&](int, const TrainerOptions& own) {
          auto trainer = make_trainer(model_factory<ClassifierImpl>(again), own);
          for (const auto& batch : kBatches) trainer.step(batch);
          return trainer.weights();
        });
      };
      const auto expected = of(false), found = of(true);
      for (size_t process = 0; process < expected.size(); ++process) {
        check_same_tensors(found[process], expected[process]);
      }
    }
  }
}

TEST_CASE("replicas that share a GPU are refused; one of its own, and CPUs, are not") {
  const torch::Device first(torch::kCUDA, 0), second(torch::kCUDA, 1), cpu(torch::kCPU);
  const auto refused = [](const std::vector<torch::Device>& devices, int local) {
    return refusal_of([&] {
      const RecomputeRefused here(refusal_on_shared_gpu(devices, local));
      const auto x = torch::ones({2}, torch::requires_grad());
      recompute([](const torch::Tensor& in) { return in.sin(); }, x).sum().backward();
    });
  };
  const std::string shared = "recompute() on cuda:0, which 2 replicas of this process share";
  CHECK(refused({first, second, first}, 0) == shared);
  CHECK(refused({first, second, first}, 1).empty());
  CHECK(refused({first, second, first}, 2) == shared);
  CHECK(refused({first}, 0).empty());
  CHECK(refused({cpu, cpu}, 1).empty());
  CHECK(refused({first, second}, 1).empty());
}
