#include <lockstep/app/bench/partition/network.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Reduction.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <lockstep/models/lenet.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr int64_t kPool = 2;  // average pooling: kPool x kPool, stride kPool
constexpr const char* kLeNet = "lenet";
constexpr const char* kMlp = "mlp";

Layer convolution(int64_t inputs, int64_t outputs, int64_t kernel) {
  return {.kind = LayerKind::kConvolution, .inputs = inputs, .outputs = outputs, .kernel = kernel};
}

Layer linear(int64_t inputs, int64_t outputs) {
  return {.kind = LayerKind::kLinear, .inputs = inputs, .outputs = outputs};
}

Layer relu() { return {.kind = LayerKind::kRelu}; }
Layer pool() { return {.kind = LayerKind::kPool}; }

torch::Tensor run_layer(const Layer& layer, const torch::Tensor& h, std::span<const torch::Tensor> params) {
  switch (layer.kind) {
    case LayerKind::kConvolution:
      return torch::conv2d(h, params[0], params[1]);
    case LayerKind::kLinear:
      return torch::addmm(params[1], h.flatten(1), params[0]);
    case LayerKind::kRelu:
      return torch::relu(h);
    case LayerKind::kPool:
      return torch::avg_pool2d(h, kPool, kPool);
  }
  throw FailedError("a layer of unknown kind");
}

Params mlp_parameters(const LayeredNetwork& network, uint64_t seed, torch::ScalarType dtype) {
  auto generator = at::detail::createCPUGenerator(seed);
  Params params;
  for (const auto& layer : network.layers) {
    if (!has_parameters(layer)) continue;
    const auto normal = torch::randn({layer.inputs, layer.outputs}, generator, torch::kFloat32);
    params.push_back((normal * std::sqrt(2.0 / static_cast<double>(layer.inputs))).to(dtype));
    params.push_back(torch::zeros({layer.outputs}, dtype));
  }
  return params;
}

}  // namespace

bool has_parameters(const Layer& layer) {
  return layer.kind == LayerKind::kConvolution || layer.kind == LayerKind::kLinear;
}

std::string describe(const Layer& layer) {
  switch (layer.kind) {
    case LayerKind::kConvolution:
      return fmt::format("convolution {}", layer.outputs);
    case LayerKind::kLinear:
      return fmt::format("linear {}", layer.outputs);
    case LayerKind::kRelu:
      return "relu";
    case LayerKind::kPool:
      return "pool";
  }
  return "?";
}

std::string describe(std::span<const Layer> layers) {
  std::string text;
  for (const auto& layer : layers) text += (text.empty() ? "" : ", ") + describe(layer);
  return text;
}

std::vector<std::string> layered_network_names() { return {kLeNet, kMlp}; }

LayeredNetwork layered_network(const std::string& name) {
  if (name == kLeNet) {
    return {name,
            {convolution(1, 20, 3), relu(), pool(), convolution(20, 50, 5), relu(), pool(), linear(800, 128),
             relu(), linear(128, 10)}};
  }
  if (name == kMlp) return {name, {linear(784, 1024), relu(), linear(1024, 1024), relu(), linear(1024, 10)}};
  throw UsageError(fmt::format("bench partition has no network {}", in_quotes(name)),
                   fmt::format("it has {}", fmt::join(layered_network_names(), ", ")));
}

Params initial_parameters(const LayeredNetwork& network, uint64_t seed, torch::ScalarType dtype) {
  if (network.name == kLeNet) {
    Params params;
    for (const auto& param : LeNetImpl(seed, dtype).parameters()) params.push_back(param.detach());
    return params;
  }
  return mlp_parameters(network, seed, dtype);
}

torch::Tensor run_layers(std::span<const Layer> layers, const torch::Tensor& h,
                         std::span<const torch::Tensor> params) {
  auto result = h;
  for (const auto& layer : layers) {
    result = run_layer(layer, result, params);
    if (has_parameters(layer)) params = params.subspan(2);
  }
  return result;
}

std::vector<size_t> parameter_offsets(std::span<const Layer> layers) {
  std::vector<size_t> offsets = {0};
  for (const auto& layer : layers) offsets.push_back(offsets.back() + (has_parameters(layer) ? 2 : 0));
  return offsets;
}

torch::Tensor mean_loss(const torch::Tensor& logits, const torch::Tensor& y, int64_t batch) {
  return torch::cross_entropy_loss(logits, y, /*weight=*/{}, at::Reduction::Sum) / batch;
}

int64_t elements_per_row(const LayeredNetwork& network) {
  const torch::NoGradGuard no_grad;
  const auto params = initial_parameters(network, /*seed=*/0, torch::kFloat32);
  const auto offsets = parameter_offsets(network.layers);
  auto h = torch::zeros({1, 1, 28, 28});
  int64_t elements = h.numel();
  for (size_t i = 0; i < network.layers.size(); ++i) {
    h = run_layer(network.layers[i], h, std::span(params).subspan(offsets[i]));
    elements += h.numel();
  }
  return elements;
}

// best[s][i]: the lowest possible cost of the most expensive stage when the first i layers form s stages.
std::vector<size_t> balanced_stages(std::span<const double> costs, size_t stages) {
  const auto layers = costs.size();
  if (stages < 1 || stages > layers) {
    throw UsageError(fmt::format("{} cannot be cut into {}", counted(static_cast<int64_t>(layers), "layer"),
                                 counted(static_cast<int64_t>(stages), "stage")),
                     fmt::format("a stage has at least one layer: use at most {} devices", layers));
  }
  constexpr auto kNever = std::numeric_limits<double>::infinity();
  std::vector best(stages + 1, std::vector(layers + 1, kNever));
  std::vector last(stages + 1, std::vector<size_t>(layers + 1));  // where the last stage begins
  best[0][0] = 0;
  for (size_t s = 1; s <= stages; ++s) {
    for (size_t end = s; end <= layers; ++end) {
      double cost = 0;
      for (size_t begin = end; begin-- > s - 1;) {
        cost += costs[begin];
        const auto most = std::max(best[s - 1][begin], cost);
        if (most < best[s][end]) best[s][end] = most, last[s][end] = begin;
      }
    }
  }
  std::vector<size_t> starts(stages + 1, layers);
  for (size_t s = stages; s > 0; --s) starts[s - 1] = last[s][starts[s]];
  return starts;
}

}  // namespace lockstep
