#include <lockstep/parallel/train_batch.h>

#include <ATen/core/Reduction.h>
#include <torch/types.h>

#include <lockstep/parallel/allreduce.h>
#include <lockstep/parallel/sgd.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/error.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {
namespace {

// logits (n, classes), y (n)
ShardSums shard_sums(const torch::Tensor& loss_sum, const torch::Tensor& logits, const torch::Tensor& y) {
  const torch::NoGradGuard no_grad;
  const auto top1 = (logits.argmax(1) == y).sum();
  const auto own = logits.gather(1, y.unsqueeze(1));  // (n, 1)
  const auto top5 = ((logits > own).sum(1) < 5).sum();
  return torch::stack(
      {loss_sum.detach().to(torch::kFloat64), top1.to(torch::kFloat64), top5.to(torch::kFloat64)});
}

// Forward and backward of one replica: its gradients are added into params[i].grad.
ShardSums compute_gradients(const Inputs& shard, const Params& params, const Network& net) {
  if (shard.y.size(0) == 0) {  // no rows, no gradient: it keeps its zeros
    return torch::zeros({3}, torch::TensorOptions(torch::kFloat64).device(shard.X.device()));
  }
  const auto logits = net(shard.X, params);
  const auto loss_sum = torch::cross_entropy_loss(logits, shard.y, /*weight=*/{}, at::Reduction::Sum);
  loss_sum.backward();
  return shard_sums(loss_sum, logits, shard.y);
}

// The chapter's loop: the first parameter's gradient on all devices, then the second's, ...
void sum_gradients(std::span<Params> device_params) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < device_params.front().size(); ++i) {
    std::vector<torch::Tensor> grads;
    for (auto& params : device_params) grads.push_back(params[i].grad());
    allreduce(grads);
  }
}

}  // namespace

StepTimes& StepTimes::operator+=(const StepTimes& other) {
  data += other.data;
  compute += other.compute;
  sync += other.sync;
  update += other.update;
  return *this;
}

StepTimes StepTimes::operator/(double steps) const {
  return {.data = data / steps, .compute = compute / steps, .sync = sync / steps, .update = update / steps};
}

BatchOutcome train_batch(std::span<const Inputs> shards, std::span<Params> device_params, const Network& net,
                         double lr, ReplicaWorkers& workers) {
  int64_t batch_size = 0;
  for (const auto& shard : shards) batch_size += shard.y.size(0);
  if (batch_size == 0) throw UsageError("a batch of 0 rows cannot be trained on");

  BatchOutcome outcome;
  outcome.sums.resize(shards.size());
  Stopwatch watch;
  workers.run([&](int rank) {  // each replica in its own thread: they compute at the same time
    const auto i = static_cast<size_t>(rank);
    outcome.sums[i] = compute_gradients(shards[i], device_params[i], net);
  });
  outcome.times.compute = watch.lap();
  workers.run([&](int rank) {  // in a worker: the caller's own threads would linger on the replicas' cores
    if (rank == 0) sum_gradients(device_params);
  });
  outcome.times.sync = watch.lap();
  workers.run([&](int rank) { sgd(device_params[static_cast<size_t>(rank)], lr, batch_size); });
  outcome.times.update = watch.lap();
  return outcome;
}

BatchOutcome train_batch(const torch::Tensor& X, const torch::Tensor& y, std::span<Params> device_params,
                         const Network& net, double lr, ReplicaWorkers& workers) {
  return train_batch(split_batch(X, y, workers.devices()), device_params, net, lr, workers);
}

}  // namespace lockstep
