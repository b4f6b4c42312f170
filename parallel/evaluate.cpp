#include <lockstep/parallel/evaluate.h>

#include <ATen/core/Reduction.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// Sums of one block, on the device: (2) double = {loss, correct}.
torch::Tensor evaluate_block(const Network& net, const Params& params, const Inputs& block) {
  const auto logits = net(block.X, params);  // (n, classes)
  const auto loss = torch::cross_entropy_loss(logits, block.y, /*weight=*/{}, at::Reduction::Sum);
  const auto correct = (logits.argmax(1) == block.y).sum();
  return torch::stack({loss.to(torch::kFloat64), correct.to(torch::kFloat64)});
}

}  // namespace

Evaluation evaluate(const Network& net, std::span<const Params> device_params,
                    std::span<const std::shared_ptr<const BatchSource>> sources, ReplicaWorkers& workers) {
  const int64_t rows = sources.front()->size();
  if (rows == 0) throw UsageError("a data set of 0 rows cannot be evaluated");
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), int64_t{0});

  const int64_t blocks = (rows + kEvaluationBlock - 1) / kEvaluationBlock;
  std::vector<torch::Tensor> sums(static_cast<size_t>(blocks));
  workers.run([&](int rank) {
    const torch::NoGradGuard no_grad;
    const auto r = static_cast<size_t>(rank);
    Inputs block;
    for (int64_t b = rank; b < blocks; b += workers.size()) {
      const auto count = std::min(kEvaluationBlock, rows - b * kEvaluationBlock);
      sources[r]->gather(
          std::span(order).subspan(static_cast<size_t>(b * kEvaluationBlock), static_cast<size_t>(count)),
          block);
      sums[static_cast<size_t>(b)] = evaluate_block(net, device_params[r], block);
    }
  });

  Evaluation result{.rows = rows};
  for (const auto& sum : sums) {
    const auto host = sum.cpu();  // waits for the device: the numbers are needed now
    result.loss_sum += host[0].item<double>();
    result.correct += host[1].item<int64_t>();
  }
  return result;
}

}  // namespace lockstep
