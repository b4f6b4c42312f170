#include <lockstep/app/bench/partition/pipeline.h>

#include <fmt/format.h>

#include <lockstep/parallel/get_params.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/statistics.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {
namespace {

class PipelineParallel : public PartitionScheme {
 public:
  PipelineParallel(Mesh& mesh, const PartitionTask& task, const std::vector<size_t>& starts,
                   int micro_batches)
      : PartitionScheme(mesh), batch_(task.batch.y.size(0)), stages_(static_cast<size_t>(mesh.size())) {
    if (micro_batches > batch_) {
      throw UsageError(
          fmt::format("{} cannot be cut into {} micro-batches", counted(batch_, "row"), micro_batches),
          "use fewer --micro-batches or a larger --batch-size");
    }
    const auto offsets = parameter_offsets(task.network.layers);
    for (size_t i = 0; i < stages_.size(); ++i) {
      auto& stage = stages_[i];
      const auto begin = task.network.layers.begin();
      stage.layers.assign(begin + static_cast<std::ptrdiff_t>(starts[i]),
                          begin + static_cast<std::ptrdiff_t>(starts[i + 1]));
      const auto params =
          std::span(task.params).subspan(offsets[starts[i]], offsets[starts[i + 1]] - offsets[starts[i]]);
      stage.params = get_params(Params(params.begin(), params.end()), mesh.device(static_cast<int>(i)));
      stage.inputs.resize(static_cast<size_t>(micro_batches));
      stage.outputs.resize(static_cast<size_t>(micro_batches));
    }
    split_rows(task.batch, micro_batches);
  }

  void forward(int rank) override {
    auto& stage = stages_[static_cast<size_t>(rank)];
    for (size_t k = 0; k < stage.inputs.size(); ++k) {
      auto& input = stage.inputs[k];
      input = rank == 0 ? rows_[k] : mesh().receive(rank, rank - 1).requires_grad_();
      auto output = run_layers(stage.layers, input, stage.params);
      if (is_last(rank))
        output = mean_loss(output, labels_[k], batch_);
      else
        mesh().send(rank, rank + 1, output);
      stage.outputs[k] = output;
    }
  }

  // Gradients of the micro-batches accumulate in .grad.
  void backward(int rank) override {
    auto& stage = stages_[static_cast<size_t>(rank)];
    for (size_t k = 0; k < stage.inputs.size(); ++k) {
      const auto gradient = is_last(rank) ? torch::Tensor() : mesh().receive(rank, rank + 1);
      stage.outputs[k].backward(gradient);
      if (rank > 0) mesh().send(rank, rank - 1, stage.inputs[k].grad());
      stage.outputs[k].reset();
      stage.inputs[k].reset();
    }
  }

  const Params& parameters(int rank) const override { return stages_[static_cast<size_t>(rank)].params; }

  std::vector<Params> gradients() const override {
    Params gradients;
    for (const auto& stage : stages_) {
      for (const auto& param : stage.params) gradients.push_back(param.grad().cpu().clone());
    }
    return {gradients};
  }

 private:
  struct Stage {
    std::vector<Layer> layers;
    Params params;
    // One per micro-batch, kept from its forward to its backward pass. On the last device outputs are losses.
    std::vector<torch::Tensor> inputs;
    std::vector<torch::Tensor> outputs;
  };

  bool is_last(int rank) const { return rank + 1 == mesh().size(); }

  void split_rows(const Inputs& batch, int micro_batches) {
    const auto X = rows_for(batch.X, mesh().device(0));
    const auto y = batch.y.to(mesh().device(mesh().size() - 1));
    int64_t begin = 0;
    for (const auto rows : shard_sizes(batch_, micro_batches)) {
      rows_.push_back(X.narrow(0, begin, rows));
      labels_.push_back(y.narrow(0, begin, rows));
      begin += rows;
    }
  }

  const int64_t batch_;
  std::vector<Stage> stages_;  // one per device
  // One per micro-batch: rows on the first device, labels on the last.
  std::vector<torch::Tensor> rows_;
  std::vector<torch::Tensor> labels_;
};

}  // namespace

std::unique_ptr<PartitionScheme> pipeline_parallel(Mesh& mesh, const PartitionTask& task,
                                                   std::vector<size_t> starts, int micro_batches) {
  return std::make_unique<PipelineParallel>(mesh, task, starts, micro_batches);
}

std::vector<double> layer_seconds(Mesh& mesh, const PartitionTask& task) {
  constexpr int kRepeats = 3;
  const auto& layers = task.network.layers;
  const auto offsets = parameter_offsets(layers);
  std::vector<double> seconds;
  mesh.run([&](int rank) {
    if (rank != 0) return;
    const auto params = get_params(task.params, mesh.device(0));
    auto input = rows_for(task.batch.X, mesh.device(0));
    for (size_t i = 0; i < layers.size(); ++i) {
      if (i > 0) input.requires_grad_();
      std::vector<double> repeats;
      torch::Tensor output;
      for (int repeat = 0; repeat <= kRepeats; ++repeat) {
        mesh.synchronize(rank);
        Stopwatch watch;
        output = run_layers(std::span(layers).subspan(i, 1), input, std::span(params).subspan(offsets[i]));
        if (output.requires_grad()) output.backward(torch::ones_like(output));
        mesh.synchronize(rank);
        if (repeat > 0) repeats.push_back(watch.lap());  // the first is the warm-up
      }
      seconds.push_back(median(repeats));
      input = output.detach();
    }
  });
  return seconds;
}

}  // namespace lockstep
