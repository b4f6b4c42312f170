#include <lockstep/app/bench/partition/scheme.h>

#include <fmt/format.h>

#include <lockstep/parallel/get_params.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

class PipelineParallel : public PartitionScheme {
 public:
  PipelineParallel(Mesh& mesh, const PartitionTask& task, const std::vector<size_t>& starts,
                   int micro_batches)
      : PartitionScheme(mesh), batch_(task.batch.rows()), stages_(starts.size() - 1) {
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
    if (rank > last()) return;
    auto& stage = stages_[static_cast<size_t>(rank)];
    for (size_t k = 0; k < stage.inputs.size(); ++k) {
      auto& input = stage.inputs[k];
      input = rank == 0 ? rows_[k] : mesh().receive(rank, rank - 1).requires_grad_();
      auto output = run_layers(stage.layers, input, stage.params);
      if (rank == last())
        output = mean_loss(output, labels_[k], batch_);
      else
        mesh().send(rank, rank + 1, output);
      stage.outputs[k] = output;
    }
  }

  // Gradients of the micro-batches accumulate in .grad.
  void backward(int rank) override {
    if (rank > last()) return;
    auto& stage = stages_[static_cast<size_t>(rank)];
    for (size_t k = 0; k < stage.inputs.size(); ++k) {
      const auto gradient = rank == last() ? torch::Tensor() : mesh().receive(rank, rank + 1);
      stage.outputs[k].backward(gradient);
      if (rank > 0) mesh().send(rank, rank - 1, stage.inputs[k].grad());
      stage.outputs[k].reset();
      stage.inputs[k].reset();
    }
  }

  const Params& parameters(int rank) const override {
    static const Params kNone;
    return rank > last() ? kNone : stages_[static_cast<size_t>(rank)].params;
  }

  std::vector<Params> gradients() const override {
    Params gradients;
    for (int rank = 0; rank <= last(); ++rank) {
      for (auto& gradient : host_gradients(rank)) gradients.push_back(std::move(gradient));
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

  int last() const { return static_cast<int>(stages_.size()) - 1; }

  void split_rows(const Batch& batch, int micro_batches) {
    const auto X = rows_for(batch.input(), mesh().device(0));
    const auto y = batch.target().to(mesh().device(last()));
    int64_t begin = 0;
    for (const auto rows : shard_sizes(batch_, micro_batches)) {
      rows_.push_back(X.narrow(0, begin, rows));
      labels_.push_back(y.narrow(0, begin, rows));
      begin += rows;
    }
  }

  const int64_t batch_;
  std::vector<Stage> stages_;  // one per device; devices without one idle
  // One per micro-batch: rows on the first device, labels on the last.
  std::vector<torch::Tensor> rows_;
  std::vector<torch::Tensor> labels_;
};

}  // namespace

SchemePtr pipeline_parallel(Mesh& mesh, const PartitionTask& task, std::vector<size_t> starts,
                            int micro_batches) {
  return std::make_unique<PipelineParallel>(mesh, task, starts, micro_batches);
}

}  // namespace lockstep
