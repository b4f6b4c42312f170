#include <lockstep/app/bench/partition/scheme.h>

#include <fmt/format.h>

#include <numeric>

#include <lockstep/parallel/get_params.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// A layer with parameters and the layers without parameters that follow it.
struct Block {
  std::vector<Layer> layers;
  int64_t outputs() const { return layers.front().outputs; }
};

// The dimension of the weight that counts outputs.
int64_t output_dimension(const Layer& layer) { return layer.kind == LayerKind::kConvolution ? 0 : 1; }

// Throws UsageError if the first layer has no parameters.
std::vector<Block> blocks_of(const LayeredNetwork& network) {
  std::vector<Block> blocks;
  for (const auto& layer : network.layers) {
    if (has_parameters(layer)) blocks.emplace_back();
    if (blocks.empty()) {
      throw UsageError(
          fmt::format("{} begins with {}, which has no parameters to cut", network.name, describe(layer)));
    }
    blocks.back().layers.push_back(layer);
  }
  return blocks;
}

// Views of the layer's {weight, bias}: those of channels or units [begin, begin + size).
Params cut_within(const Layer& layer, std::span<const torch::Tensor> params, int64_t begin, int64_t size) {
  return {params[0].narrow(output_dimension(layer), begin, size), params[1].narrow(0, begin, size)};
}

// The inverse of cut_within(): parts[i] are the parameters of device i.
Params put_together(const Layer& layer, std::span<const Params> parts) {
  std::vector<torch::Tensor> weights, biases;
  for (const auto& part : parts) {
    weights.push_back(part[0]);
    biases.push_back(part[1]);
  }
  return {torch::cat(weights, output_dimension(layer)), torch::cat(biases)};
}

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
      part.X = rows_for(task.batch.input(), mesh.device(rank));
      part.y = task.batch.target().to(mesh.device(rank));
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
    std::vector<Params> devices;
    for (int rank = 0; rank < mesh().size(); ++rank) devices.push_back(host_gradients(rank));
    Params gradients;
    for (size_t b = 0; b < blocks_.size(); ++b) {
      std::vector<Params> cuts;
      for (const auto& own : devices) cuts.push_back({own[2 * b], own[2 * b + 1]});
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

SchemePtr tensor_parallel(Mesh& mesh, const PartitionTask& task) {
  return std::make_unique<TensorParallel>(mesh, task);
}

}  // namespace lockstep
