// The networks of `bench partition` as lists of layers, which can be cut between layers or within a layer.
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
  // Channels of a convolution, units of a linear layer; unused for other kinds.
  int64_t inputs = 0;
  int64_t outputs = 0;
  int64_t kernel = 0;  // convolution: kernel x kernel, stride 1, no padding
};

bool has_parameters(const Layer& layer);

// "convolution 20", "linear 128", "relu", "pool"
std::string describe(const Layer& layer);
std::string describe(std::span<const Layer> layers);  // separated by commas

// A network's parameters are {weight, bias} of each layer that has them, in order. A convolution's weight is
// (outputs, inputs, kernel, kernel), a linear layer's (inputs, outputs), as in the chapter.
struct LayeredNetwork {
  std::string name;
  std::vector<Layer> layers;
};

// lenet: the chapter's, 129,068 parameters. mlp: 784-1024-1024-10 with ReLU, 1,863,690 parameters.
std::vector<std::string> layered_network_names();
LayeredNetwork layered_network(const std::string& name);

// Returns parameters on the host. The same seed gives the same numbers in every dtype. lenet: as
// models/lenet.h initialises them; mlp: weights from N(0, 2 / inputs) (He), zero biases.
Params initial_parameters(const LayeredNetwork& network, uint64_t seed, torch::ScalarType dtype);

// Applies the layers to h (n, ...). params: the parameters of these layers, in order, on h's device and of
// its dtype. Keeps the autograd graph.
torch::Tensor run_layers(std::span<const Layer> layers, const torch::Tensor& h,
                         std::span<const torch::Tensor> params);

// The index of each layer's first parameter in the network's list, then the number of parameters: layers + 1
// numbers.
std::vector<size_t> parameter_offsets(std::span<const Layer> layers);

// The sum of the rows' cross-entropies divided by `batch`, the number of rows of the whole batch. logits (n,
// classes), y (n) int64.
torch::Tensor mean_loss(const torch::Tensor& logits, const torch::Tensor& y, int64_t batch);

// A whole network's activations of one row X (1, 1, 28, 28), in elements: the row itself and all layers'
// outputs.
int64_t elements_per_row(const LayeredNetwork& network);

// Cuts layers of these costs into consecutive, non-empty stages such that the most expensive stage is as
// cheap as possible. Returns the first layer of each stage, then the number of layers. Throws UsageError if
// there are more stages than layers.
std::vector<size_t> balanced_stages(std::span<const double> costs, size_t stages);

}  // namespace lockstep
