#include <lockstep/app/bench/overlap/queues/two_layer_network.h>

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kRate = .1;

torch::Tensor normal(int64_t rows, int64_t columns, uint64_t seed) {
  return torch::randn({rows, columns}, at::make_generator<at::CPUGeneratorImpl>(seed));
}

}  // namespace

TwoLayerNetwork::TwoLayerNetwork(const OverlapDevices& devices, WorkQueue& host, int64_t width, uint64_t seed)
    : rows_(std::max<int64_t>(1, width / 2)),
      width_(width),
      outputs_(std::max<int64_t>(1, width / 4)),
      devices_(devices),
      host_(host),
      replicas_(devices.size()) {
  const double scale = 1 / std::sqrt(static_cast<double>(width_));
  first_weight_[0] = normal(width_, width_, seed).mul_(scale);
  first_weight_[1] = normal(width_, outputs_, seed + 1).mul_(scale);
  for (int layer = 0; layer < 2; ++layer) {
    weight_[layer] = torch::empty_like(first_weight_[layer]);
    sum_[layer] = torch::empty_like(first_weight_[layer]);
  }
  for (size_t d = 0; d < devices_.size(); ++d) {
    auto& compute = devices_[d]->compute();
    run_queued({&compute}, [&] {
      compute.queue("allocate", [&] { allocate(replicas_[d], compute.device(), seed + 2 + 2 * d); });
    });
  }
  std::vector<Tasks> tasks(devices_.size());
  for (int step = 0; step < kSteps; ++step) add_step(tasks);
}

void TwoLayerNetwork::allocate(Replica& replica, torch::Device device, uint64_t seed) const {
  replica.input = normal(rows_, width_, seed).to(device);
  replica.target = normal(rows_, outputs_, seed + 1).to(device);
  replica.before = torch::empty_like(replica.input);
  replica.hidden = torch::empty_like(replica.input);
  replica.before_gradient = torch::empty_like(replica.input);
  replica.output = torch::empty_like(replica.target);
  replica.output_gradient = torch::empty_like(replica.target);
  for (int layer = 0; layer < 2; ++layer) {
    replica.weight[layer] = torch::empty_like(first_weight_[layer], device);
    replica.gradient[layer] = torch::empty_like(replica.weight[layer]);
    replica.gradient_on_host[layer] = torch::empty_like(
        first_weight_[layer], torch::dtype(torch::kFloat32).pinned_memory(!device.is_cpu()));
  }
}

void TwoLayerNetwork::add_device(size_t d, Tasks& tasks) {
  auto& replica = replicas_[d];
  auto& compute = devices_[d]->compute();
  auto& copier = devices_[d]->copier();
  const double rows = static_cast<double>(rows_) * static_cast<double>(devices_.size());
  graph_.add("forward 1", compute, tasks.sent[0], [&replica] {
    at::mm_out(replica.before, replica.input, replica.weight[0]);
    at::clamp_min_out(replica.hidden, replica.before, 0);
  });
  graph_.add("forward 2", compute, tasks.sent[1], [&replica, rows] {
    at::mm_out(replica.output, replica.hidden, replica.weight[1]);
    at::sub_out(replica.output_gradient, replica.output, replica.target);
    replica.output_gradient.div_(rows);
  });
  const auto second = graph_.add("gradient 2", compute, {}, [&replica] {
    at::mm_out(replica.gradient[1], replica.hidden.t(), replica.output_gradient);
  });
  tasks.backward = graph_.add("backward 2", compute, {}, [&replica] {
    at::mm_out(replica.before_gradient, replica.output_gradient, replica.weight[1].t());
    replica.before_gradient.mul_(replica.before > 0);
  });
  const auto first = graph_.add("gradient 1", compute, {}, [&replica] {
    at::mm_out(replica.gradient[0], replica.input.t(), replica.before_gradient);
  });
  const auto copy = [&](int layer, TaskGraph::Task after) {
    return graph_.add(fmt::format("copy gradient {}", layer + 1), copier, {after}, [&replica, layer] {
      copy_bytes(replica.gradient_on_host[layer], replica.gradient[layer]);
    });
  };
  tasks.copied[1] = copy(1, second);
  tasks.copied[0] = copy(0, first);
}

// Sums in the order of the devices, so that every run gives the same bits.
TaskGraph::Task TwoLayerNetwork::add_update(int layer, const std::vector<Tasks>& tasks) {
  std::vector<TaskGraph::Task> copied;
  for (const auto& device : tasks) copied.push_back(device.copied[layer]);
  return graph_.add(fmt::format("sum and update {}", layer + 1), host_, copied, [this, layer] {
    sum_[layer].copy_(replicas_.front().gradient_on_host[layer]);
    for (size_t d = 1; d < replicas_.size(); ++d) sum_[layer].add_(replicas_[d].gradient_on_host[layer]);
    weight_[layer].sub_(sum_[layer], kRate);
  });
}

void TwoLayerNetwork::add_step(std::vector<Tasks>& tasks) {
  for (size_t d = 0; d < devices_.size(); ++d) add_device(d, tasks[d]);
  for (const int layer : {1, 0}) {
    const auto updated = add_update(layer, tasks);
    for (size_t d = 0; d < devices_.size(); ++d) {
      tasks[d].sent[layer] = {graph_.add(
          fmt::format("send weights {}", layer + 1), devices_[d]->copier(), {updated, tasks[d].backward},
          [this, d, layer] { copy_bytes(replicas_[d].weight[layer], weight_[layer]); })};
    }
  }
}

void TwoLayerNetwork::reset() {
  for (int layer = 0; layer < 2; ++layer) {
    weight_[layer].copy_(first_weight_[layer]);
    for (auto& replica : replicas_) replica.weight[layer].copy_(first_weight_[layer]);
  }
}

TwoLayerNetwork::Error TwoLayerNetwork::error() const {
  std::vector<torch::Tensor> inputs, targets;
  for (const auto& replica : replicas_) {
    inputs.push_back(replica.input.cpu());
    targets.push_back(replica.target.cpu());
  }
  const auto input = torch::cat(inputs), target = torch::cat(targets);
  torch::Tensor weight[2] = {first_weight_[0].clone(), first_weight_[1].clone()};
  torch::Tensor gradient[2];
  for (int step = 0; step < kSteps; ++step) {
    for (auto& each : weight) each = each.detach().requires_grad_();
    const auto output = input.mm(weight[0]).relu().mm(weight[1]);
    ((output - target).square().sum() / (2 * input.size(0))).backward();
    for (int layer = 0; layer < 2; ++layer) {
      gradient[layer] = weight[layer].grad();
      weight[layer] = weight[layer].detach() - kRate * gradient[layer];
    }
  }
  return {.gradients = worse(relative_error(sum_[0], gradient[0]), relative_error(sum_[1], gradient[1])),
          .weights = worse(relative_error(weight_[0], weight[0]), relative_error(weight_[1], weight[1]))};
}

int64_t TwoLayerNetwork::differing_weights() const {
  int64_t differing = 0;
  for (const auto& replica : replicas_) {
    for (int layer = 0; layer < 2; ++layer) {
      differing += (replica.weight[layer].cpu() != weight_[layer]).sum().item<int64_t>();
    }
  }
  return differing;
}

}  // namespace lockstep
