// The networks of `bench partition` as lists of layers, so that they can be cut between two layers or within
// one.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

enum class LayerKind { kConvolution, kLinear, kRelu, kPool };

// From (n, inputs, h, w) or (n, inputs) to (n, outputs, ...).
struct Layer {
  LayerKind kind = LayerKind::kRelu;
  // Channels of a convolution, units of a linear layer; the others take what comes.
  int64_t inputs = 0;
  int64_t outputs = 0;
  int64_t kernel = 0;  // of a convolution: kernel x kernel, stride 1, no padding
};

bool has_parameters(const Layer& layer);

// "convolution 20", "linear 128", "relu", "pool"
std::string describe(const Layer& layer);
std::string describe(std::span<const Layer> layers);  // with commas between

// Parameters of a network: {weight, bias} of each layer that has them, in order. A convolution's weight is
// (outputs, inputs, kernel, kernel), a linear layer's (inputs, outputs), as the chapter has it.
struct LayeredNetwork {
  std::string name;
  std::vector<Layer> layers;
};

// lenet: the chapter's, 129,068 parameters. mlp: 784-1024-1024-10 with ReLU, 1,863,690 parameters.
std::vector<std::string> layered_network_names();
LayeredNetwork layered_network(const std::string& name);

// The same numbers for the same seed, whatever the dtype, on the host. lenet: the model's own; mlp: N(0, 2 /
// inputs) weights (He), zero biases.
Params initial_parameters(const LayeredNetwork& network, uint64_t seed, torch::ScalarType dtype);

// Through these layers; h (n, ...) and params, those of these layers in order, on one device and of one
// dtype. Keeps the graph.
torch::Tensor run_layers(std::span<const Layer> layers, const torch::Tensor& h,
                         std::span<const torch::Tensor> params);

// Where each layer's parameters begin among the network's, and their number at the end: layers + 1 numbers.
std::vector<size_t> parameter_offsets(std::span<const Layer> layers);

// Sum of the rows' cross-entropies divided by `batch`, the rows of the whole batch. logits (n, classes), y
// (n) int64.
torch::Tensor mean_loss(const torch::Tensor& logits, const torch::Tensor& y, int64_t batch);

// Elements that each layer makes of one row X (1, 1, 28, 28).
std::vector<int64_t> elements_per_row(const LayeredNetwork& network);

// A layer with parameters and those without that follow it: what is cut within.
struct Block {
  std::vector<Layer> layers;
  int64_t outputs() const { return layers.front().outputs; }
};

// Throws UsageError where the first layer has no parameters.
std::vector<Block> blocks_of(const LayeredNetwork& network);

// The parameters of channels or units [begin, begin + size) of the layer: views of its {weight, bias}.
Params cut_within(const Layer& layer, std::span<const torch::Tensor> params, int64_t begin, int64_t size);

// The other way round: parts[i] are what cut_within() gave device i.
Params put_together(const Layer& layer, std::span<const Params> parts);

// Cuts layers of these costs into consecutive, non-empty stages so that the most expensive stage is as cheap
// as can be: the first layer of each stage, and the number of layers at the end. Throws UsageError when there
// are more stages than layers.
std::vector<size_t> balanced_stages(std::span<const double> costs, size_t stages);

}  // namespace lockstep
