#include <lockstep/parallel/evaluate.h>

#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <numeric>

#include <lockstep/support/classification.h>
#include <lockstep/support/error.h>
#include <lockstep/support/row_numbers.h>

namespace lockstep {
namespace {

// Sums of one block, on the device: (3) double = {loss, top1, top5}.
torch::Tensor evaluate_block(const Model& model, Inputs block, Precision precision) {
  const AutocastGuard autocast(precision, block.X.device());
  block.X = block.X.to(dtype_of(precision));
  return sums_of(model.loss_sum(block));
}

}  // namespace

Evaluation evaluate(std::span<const Model> models,
                    std::span<const std::shared_ptr<const BatchSource>> sources, Precision precision,
                    ReplicaWorkers& workers) {
  const int64_t rows = sources.front()->size();
  if (rows == 0) throw UsageError("a data set of 0 rows cannot be evaluated");
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), int64_t{0});

  const int64_t blocks = (rows + kEvaluationBlock - 1) / kEvaluationBlock;
  std::vector<torch::Tensor> sums(static_cast<size_t>(blocks));
  workers.run([&](int rank) {
    const torch::NoGradGuard no_grad;
    const auto r = static_cast<size_t>(rank);
    models[r].module->eval();
    torch::Tensor numbers;  // (rows of a block) on the device
    Inputs block;
    for (int64_t b = rank; b < blocks; b += workers.size()) {
      const auto count = std::min(kEvaluationBlock, rows - b * kEvaluationBlock);
      upload_rows(
          std::span(order).subspan(static_cast<size_t>(b * kEvaluationBlock), static_cast<size_t>(count)),
          rows, workers.devices()[r], numbers);
      sources[r]->gather(numbers, block);
      sums[static_cast<size_t>(b)] = evaluate_block(models[r], block, precision);
    }
    models[r].module->train();
  });

  Evaluation result{.rows = rows};
  for (const auto& sum : sums) {
    const auto host = sum.cpu();  // waits for the device: the numbers are needed now
    result.loss_sum += host[0].item<double>();
    result.top1 += host[1].item<int64_t>();
    result.top5 += host[2].item<int64_t>();
  }
  return result;
}

std::vector<std::shared_ptr<const BatchSource>> sources_for(std::span<const torch::Device> devices,
                                                            const SourceFactory& factory) {
  std::map<std::string, std::shared_ptr<const BatchSource>> by_device;
  std::vector<std::shared_ptr<const BatchSource>> sources;
  for (const auto& device : devices) {
    auto& source = by_device[device.str()];
    if (!source) source = factory(device);
    sources.push_back(source);
  }
  return sources;
}

}  // namespace lockstep
