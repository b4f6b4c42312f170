#include <lockstep/app/bench/partition/tensor_parallel.h>

#include <fmt/format.h>

#include <numeric>

#include <lockstep/parallel/get_params.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

class TensorParallel : public PartitionScheme {
 public:
  TensorParallel(Mesh& mesh, const PartitionTask& task)
      : PartitionScheme(mesh), blocks_(blocks_of(task.network)), parts_(static_cast<size_t>(mesh.size())) {
    for (const auto& block : blocks_) {
      if (block.outputs() < mesh.size()) {
        throw UsageError(fmt::format("{} of {} cannot be shared out over {} devices",
                                     describe(block.layers.front()), task.network.name, mesh.size()),
                         fmt::format("use at most {} devices", block.outputs()));
      }
      sizes_.push_back(shard_sizes(block.outputs(), mesh.size()));
    }
    for (int rank = 0; rank < mesh.size(); ++rank) {
      auto& part = parts_[static_cast<size_t>(rank)];
      part.X = rows_for(task.batch.X, mesh.device(rank));
      part.y = task.batch.y.to(mesh.device(rank));
      part.inputs.resize(blocks_.size());
      part.outputs.resize(blocks_.size());
      Params cut;
      for (size_t b = 0; b < blocks_.size(); ++b) {
        for (const auto& param :
             cut_within(blocks_[b].layers.front(), std::span(task.params).subspan(2 * b, 2),
                        begin_of(b, rank), size_of(b, rank))) {
          cut.push_back(param.contiguous());
        }
      }
      part.params = get_params(cut, mesh.device(rank));
    }
  }

  void forward(int rank) override {
    auto& part = parts_[static_cast<size_t>(rank)];
    auto h = part.X;
    for (size_t b = 0; b < blocks_.size(); ++b) {
      part.inputs[b] = h;
      part.outputs[b] = run_layers(blocks_[b].layers, h, std::span(part.params).subspan(2 * b, 2));
      h = mesh().gather(rank, part.outputs[b].detach(), sizes_[b]).requires_grad_();
    }
    part.logits = h;
    part.loss = mean_loss(h, part.y, part.y.size(0));
  }

  void backward(int rank) override {
    auto& part = parts_[static_cast<size_t>(rank)];
    part.loss.backward();
    const auto last = blocks_.size() - 1;
    auto gradient = part.logits.grad().narrow(1, begin_of(last, rank), size_of(last, rank));
    for (size_t b = blocks_.size(); b-- > 0;) {
      part.outputs[b].backward(gradient);
      if (b > 0) gradient = mesh().sum_own(rank, part.inputs[b].grad(), sizes_[b - 1]);
      part.outputs[b].reset();
      part.inputs[b].reset();
    }
    part.logits.reset();
    part.loss.reset();
  }

  const Params& parameters(int rank) const override { return parts_[static_cast<size_t>(rank)].params; }

  std::vector<Params> gradients() const override {
    Params gradients;
    for (size_t b = 0; b < blocks_.size(); ++b) {
      std::vector<Params> cuts;
      for (const auto& part : parts_) {
        cuts.push_back({part.params[2 * b].grad().cpu(), part.params[2 * b + 1].grad().cpu()});
      }
      for (auto& gradient : put_together(blocks_[b].layers.front(), cuts)) gradients.push_back(gradient);
    }
    return {gradients};
  }

 private:
  // The state of one device.
  struct Part {
    torch::Tensor X, y;  // the whole batch
    Params params;       // per block: {weight, bias} of this device's channels or units
    // One per block, kept from the forward to the backward pass: whole inputs, this device's outputs.
    std::vector<torch::Tensor> inputs;
    std::vector<torch::Tensor> outputs;
    torch::Tensor logits;  // (n, classes), gathered
    torch::Tensor loss;
  };

  int64_t size_of(size_t block, int rank) const { return sizes_[block][static_cast<size_t>(rank)]; }
  int64_t begin_of(size_t block, int rank) const {
    return std::accumulate(sizes_[block].begin(), sizes_[block].begin() + rank, int64_t{0});
  }

  const std::vector<Block> blocks_;
  std::vector<std::vector<int64_t>> sizes_;  // [block][device]: number of channels or units
  std::vector<Part> parts_;                  // one per device
};

}  // namespace

std::unique_ptr<PartitionScheme> tensor_parallel(Mesh& mesh, const PartitionTask& task) {
  return std::make_unique<TensorParallel>(mesh, task);
}

}  // namespace lockstep
