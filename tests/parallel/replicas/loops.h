// The parts that tests of Replicas share: a small learner in double, data, and training on any layout of
// processes.
#pragma once

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <utility>
#include <vector>

#include <lockstep/parallel/replicas.h>
#include <lockstep/support/module_tensors.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/thread_processes.h>

namespace lockstep::testing {

using Pair = std::pair<torch::Tensor, torch::Tensor>;
using Tuple = std::tuple<torch::Tensor, torch::Tensor>;

// The same weights whenever it is called: processes that are threads share torch's generator.
inline torch::nn::Sequential two_layers(int64_t inputs = 3, int64_t outputs = 2) {
  torch::manual_seed(5);
  torch::nn::Sequential net(torch::nn::Linear(inputs, 8), torch::nn::Tanh(), torch::nn::Linear(8, outputs));
  net->to(torch::kFloat64);
  return net;
}

struct Learner {
  torch::nn::Sequential net = two_layers();
  torch::optim::SGD sgd{net->parameters(), torch::optim::SGDOptions(.1).momentum(.9)};
};

// Rows that are all different.
inline Pair some_rows(int64_t rows, int64_t from = 0) {
  const auto numbers = torch::arange(from * 3, (from + rows) * 3, torch::kFloat64);
  const auto X = numbers.mul(37).remainder(101).div(101).view({rows, 3});
  return {X, torch::stack({X.sum(1), X.select(1, 0) - X.select(1, 2)}, 1)};
}

inline void train(Learner& own, const Tuple& shard, Step& step) {
  const auto& [X, y] = shard;
  own.sgd.zero_grad();
  const auto squares = (own.net->forward(X) - y).square();
  if (X.size(0) > 0) (squares.sum() / step.rows()).backward();
  step.wait(own.net);
  own.sgd.step();
  step.add("loss", squares);
}

// A process with so many replicas on the CPU.
inline ReplicasOptions on_cpus(int replicas, const Group& group = nullptr) {
  return {.devices = std::vector<torch::Device>(static_cast<size_t>(replicas), torch::kCPU),
          .process_group = group,
          .threads = 1};
}

inline const std::vector<Layout> kLayouts = {{1}, {2}, {3}, {1, 1}, {2, 1}};

// Calls task(options of the process) in each process of the layout. Returns the results by process.
template <class Task>
auto on_layout(const Layout& layout, const Task& task) {
  return by_process(processes_of(layout), [&](int process, const Group& group) {
    return task(on_cpus(layout[static_cast<size_t>(process)], group));
  });
}

// Copies of a module's parameters and buffers as one vector.
inline torch::Tensor flat_copy(const torch::nn::Module& module) {
  std::vector<torch::Tensor> parts;
  for (const auto& item : distinct_tensors(module)) {
    parts.push_back(item.tensor.detach().flatten().to(torch::kFloat64));
  }
  return torch::cat(parts);
}

// Returns flat_copy() of every local replica's module that `member` says; all must have the same bits.
template <class T, class Member>
torch::Tensor weights_of(Replicas<T>& replicas, Member member) {
  std::vector<torch::Tensor> all(static_cast<size_t>(replicas.local_size()));
  replicas.run([&](T& own, Endpoint& endpoint) {
    all[static_cast<size_t>(endpoint.rank() - replicas.first_rank())] =
        flat_copy(module_of(std::invoke(member, own)));
  });
  for (const auto& other : all) {
    if (!other.equal(all.front())) throw std::logic_error("replicas have different weights");
  }
  return all.front();
}

}  // namespace lockstep::testing
