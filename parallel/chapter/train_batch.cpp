#include <lockstep/parallel/train_batch.h>

#include <torch/types.h>

#include <lockstep/parallel/allreduce.h>
#include <lockstep/parallel/chapter/sgd.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/parallel/training/outcome_sums.h>
#include <lockstep/support/error.h>
#include <lockstep/support/losses.h>

namespace lockstep {
namespace {

// Forward and backward of one replica: adds its gradients to params[i].grad.
ShardSums compute_gradients(const Batch& shard, const Params& params, const Network& net) {
  if (shard.rows() == 0) {  // without rows the gradients stay zero
    return torch::zeros({3}, torch::TensorOptions(torch::kFloat64).device(params.front().device()));
  }
  const auto outcome = classification_outcome(net(shard.input(), params), shard.target());
  outcome.loss.backward();
  return sums_of(outcome);
}

// The chapter's loop: sums the first parameter's gradient over all devices, then the second's, ...
void sum_gradients(std::span<Params> device_params) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < device_params.front().size(); ++i) {
    std::vector<torch::Tensor> grads;
    for (auto& params : device_params) grads.push_back(params[i].grad());
    allreduce(grads);
  }
}

}  // namespace

std::vector<ShardSums> train_batch(std::span<const Batch> shards, std::span<Params> device_params,
                                   const Network& net, double lr, ReplicaWorkers& workers) {
  int64_t batch_size = 0;
  for (const auto& shard : shards) batch_size += shard.rows();
  if (batch_size == 0) throw UsageError("a batch of 0 rows cannot be trained on");

  std::vector<ShardSums> sums(shards.size());
  workers.run([&](int local) {  // each replica in its own thread, at the same time
    const auto i = static_cast<size_t>(local);
    sums[i] = compute_gradients(shards[i], device_params[i], net);
  });
  workers.run([&](int local) {  // in a worker, to keep the caller's threads off the replicas' cores
    if (local == 0) sum_gradients(device_params);
  });
  workers.run([&](int local) { sgd(device_params[static_cast<size_t>(local)], lr, batch_size); });
  return sums;
}

std::vector<ShardSums> train_batch(const torch::Tensor& X, const torch::Tensor& y,
                                   std::span<Params> device_params, const Network& net, double lr,
                                   ReplicaWorkers& workers) {
  return train_batch(split_batch(X, y, workers.devices()), device_params, net, lr, workers);
}

}  // namespace lockstep
