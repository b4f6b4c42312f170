// The program that LibTorch shows with MPI: each rank has a DataLoader of its own, and sums every gradient by
// itself.
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/transforms/stack.h>

#include <lockstep/tests/catch.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/data/batch_order.h>
#include <lockstep/data/data_loader.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/tests/parallel/programs/programs.h>
#include <lockstep/tests/parallel/replicas/loops.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr int64_t kRows = 16, kBatch = 7, kEpochs = 2;  // batches of 7, 7 and 2 rows

class Points : public torch::data::datasets::Dataset<Points> {
 public:
  torch::data::Example<> get(size_t row) override {
    const auto X = random_numbers({3}, row);
    return {X, (X.sum() > 1.5).to(torch::kInt64)};
  }
  std::optional<size_t> size() const override { return kRows; }
};

struct Sorter {
  Sorter() { draw_weights(*net); }
  torch::nn::Sequential net = [] {
    torch::nn::Sequential layers(torch::nn::Linear(3, 8), torch::nn::Tanh(), torch::nn::Linear(8, 2));
    layers->to(torch::kFloat64);
    return layers;
  }();
  torch::optim::SGD sgd{net->parameters(), torch::optim::SGDOptions(.1).momentum(.9)};
};

torch::Tensor sum_of_losses(torch::nn::Sequential& net, const torch::data::Example<>& batch) {
  return torch::cross_entropy_loss(net->forward(batch.data), batch.target, {}, at::Reduction::Sum);
}

torch::Tensor trained_in_plain_torch() {
  Sorter own;
  auto points = Points().map(torch::data::transforms::Stack<>());
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = batch_order(/*seed=*/0, epoch, kRows);
    for (int64_t begin = 0; begin < kRows; begin += kBatch) {
      const std::vector<size_t> rows(order.begin() + begin, order.begin() + std::min(begin + kBatch, kRows));
      own.sgd.zero_grad();
      (sum_of_losses(own.net, points.get_batch(rows)) / static_cast<int64_t>(rows.size())).backward();
      own.sgd.step();
    }
  }
  return flat_copy(*own.net);
}

void train_by_hand(Sorter& own, Endpoint& endpoint) {
  DataLoader loader(
      Points().map(torch::data::transforms::Stack<>()),
      {.batch_rows = kBatch, .rank = endpoint.rank(), .world = endpoint.world_size(), .seed = 0});
  for (const auto& param : own.net->parameters()) endpoint.broadcast(param.detach(), 0).wait();
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    loader.start(epoch);
    while (const auto step = loader.next()) {
      own.sgd.zero_grad(/*set_to_none=*/false);
      if (step->batch) (sum_of_losses(own.net, *step->batch) / step->batch_rows).backward();
      for (auto& param : own.net->parameters()) {
        if (!param.grad().defined()) param.mutable_grad() = torch::zeros_like(param);
        endpoint.allreduce_sum(param.grad()).wait();
      }
      own.sgd.step();
    }
  }
}

}  // namespace

TEST_CASE("ranks with loaders of their own that sum gradients by hand take the steps of plain torch") {
  const auto expected = trained_in_plain_torch();
  for (const auto& layout : kLayouts) {
    INFO(text_of(layout) << " replicas");
    for (const auto& found : on_layout(layout, [](const ReplicasOptions& options) {
           ReplicaWorkers workers(options.devices, options.threads);
           const auto communicator = make_communicator({.devices = options.devices,
                                                        .threads = options.threads,
                                                        .process_group = options.process_group});
           std::vector<torch::Tensor> weights(options.devices.size());
           workers.run(*communicator, [&](int local, Endpoint& endpoint) {
             Sorter own;
             train_by_hand(own, endpoint);
             weights[static_cast<size_t>(local)] = flat_copy(*own.net);
           });
           return torch::stack(weights);
         })) {
      for (const auto& own : found.unbind()) CHECK(max_difference(own, expected) < 1e-12);
    }
  }
}
