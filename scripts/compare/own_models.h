// Networks of one's own, of torch's layers, as a user writes them: an MLP, one of 214 MB, a CNN, and the GPT
// of examples/character_gpt.cpp. twin/own_models.py has their Python side.
//
// From the same seed both have the same initial weights: C++ and Python draw them in the same order, which is
// that of the members here.
#pragma once

#include <torch/nn/functional/activation.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

#include <lockstep/data/resident_rows.h>
#include <lockstep/models/layers/channels_last.h>
#include <lockstep/parallel/training/replica_options.h>
#include <lockstep/support/model_factory.h>

namespace lockstep::own_models {

namespace nn = torch::nn;
inline constexpr int64_t kLength = 32, kWidth = 64, kHeads = 4, kBytes = 256;

struct Mlp : nn::Module {
  torch::Tensor forward(const torch::Tensor& X) {
    return last(torch::relu(second(torch::relu(first(X.flatten(1))))));
  }
  nn::Linear first = register_module("first", nn::Linear(784, 512));
  nn::Linear second = register_module("second", nn::Linear(512, 512));
  nn::Linear last = register_module("last", nn::Linear(512, 10));
};

struct WideMlp : nn::Module {
  torch::Tensor forward(const torch::Tensor& X) {
    const auto h = torch::relu(second(torch::relu(first(X.flatten(1)))));
    return last(torch::relu(fourth(torch::relu(third(h)))));
  }
  nn::Linear first = register_module("first", nn::Linear(784, 4096));
  nn::Linear second = register_module("second", nn::Linear(4096, 4096));
  nn::Linear third = register_module("third", nn::Linear(4096, 4096));
  nn::Linear fourth = register_module("fourth", nn::Linear(4096, 4096));
  nn::Linear last = register_module("last", nn::Linear(4096, 10));
};

// Its weights have the memory format in which torch's convolutions are fastest, as Python's have.
struct Cnn : nn::Module {
  Cnn() {
    for (auto conv : {conv_1, conv_2}) conv->weight.set_data(channels_last_copy(conv->weight.detach()));
  }
  torch::Tensor forward(const torch::Tensor& X) {  // (n, 1, 28, 28)
    const auto images = torch::relu(conv_2(torch::relu(conv_1(X))));
    return last(torch::relu(first(torch::max_pool2d(images, 2).flatten(1))));
  }
  nn::Conv2d conv_1 = register_module("conv_1", nn::Conv2d(nn::Conv2dOptions(1, 32, 3)));
  nn::Conv2d conv_2 = register_module("conv_2", nn::Conv2d(nn::Conv2dOptions(32, 64, 3)));
  nn::Linear first = register_module("first", nn::Linear(9216, 128));
  nn::Linear last = register_module("last", nn::Linear(128, 10));
};

struct Block : nn::Module {
  torch::Tensor forward(torch::Tensor x) {  // (n, bytes, width)
    const auto qkv = mix_in(norm_1(x)).unflatten(2, {3, kHeads, -1}).permute({2, 0, 3, 1, 4});
    const auto seen = torch::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0, /*is_causal=*/true);
    x = x + mix_out(seen.transpose(1, 2).flatten(2));
    return x + narrow(torch::gelu(widen(norm_2(x))));
  }
  nn::LayerNorm norm_1 = register_module("norm_1", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::Linear mix_in = register_module("mix_in", nn::Linear(kWidth, 3 * kWidth));
  nn::Linear mix_out = register_module("mix_out", nn::Linear(kWidth, kWidth));
  nn::LayerNorm norm_2 = register_module("norm_2", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::Linear widen = register_module("widen", nn::Linear(kWidth, 4 * kWidth));
  nn::Linear narrow = register_module("narrow", nn::Linear(4 * kWidth, kWidth));
};

struct Gpt : nn::Module {
  Gpt() { nn::init::normal_(bytes->weight, 0, .1); }
  torch::Tensor forward(const torch::Tensor& text) {
    return torch::linear(norm(block_2.forward(block_1.forward(bytes(text) + places))), bytes->weight);
  }
  nn::Embedding bytes = register_module("bytes", nn::Embedding(kBytes, kWidth));
  torch::Tensor places = register_parameter("places", torch::zeros({kLength, kWidth}));
  Block& block_1 = *register_module("block_1", std::make_shared<Block>());
  Block& block_2 = *register_module("block_2", std::make_shared<Block>());
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
};

template <class Net>
NetFactory<Net> seeded(uint64_t seed) {
  return NetFactory<Net>([seed] {
    torch::manual_seed(seed);
    return std::make_shared<Net>();
  });
}

// No factory for a name that is none of these.
inline std::optional<ModelFactory> factory(const std::string& name, uint64_t seed) {
  if (name == "mlp") return seeded<Mlp>(seed);
  if (name == "wide_mlp") return seeded<WideMlp>(seed);
  if (name == "cnn") return seeded<Cnn>(seed);
  if (name == "gpt") return seeded<Gpt>(seed).loss(token_cross_entropy());
  return std::nullopt;
}

// The GPT's rows: windows of the licences, and the byte that follows each of theirs. Both are views.
inline Batch text_windows() {
  std::ostringstream stream;
  for (const std::string name : {"Apache-2.0", "GFDL-1.3", "LGPL-2.1", "GPL-2", "GPL-3"}) {
    stream << std::ifstream("/usr/share/common-licenses/" + name).rdbuf();
  }
  auto bytes = stream.str();
  if (bytes.empty()) throw std::runtime_error("/usr/share/common-licenses, which Debian has, is not here");
  const auto size = static_cast<int64_t>(bytes.size());
  const auto text = torch::from_blob(bytes.data(), {size}, torch::kUInt8).to(torch::kInt64);
  const auto from = [&](int64_t first) {
    return text.narrow(0, first, size - 1).unfold(0, kLength, /*step=*/1);
  };
  return {from(0), from(1)};
}

// mobilenet's rows: images without sense, since Fashion-MNIST's have one channel and are too small for it.
inline Batch noise_images() {
  constexpr int64_t kRows = 512, kSize = 64;
  torch::manual_seed(0);
  return {torch::rand({kRows, 3, kSize, kSize}), torch::arange(kRows).remainder(10)};
}

// The rows of models that do not take Fashion-MNIST.
inline std::optional<Batch> rows(const std::string& model) {
  if (model.ends_with("gpt")) return text_windows();
  if (model == "program_mobilenet") return noise_images();
  return std::nullopt;
}

// How the GPT and the wide MLP are trained; the others take plain SGD.
inline void set_options(const std::string& model, ReplicaOptions& options) {
  const bool text = model.ends_with("gpt");
  if (!text && model != "wide_mlp") return;
  options.optimizer.kind = OptimizerKind::kAdamW;
  if (!text) return;
  options.clip_norm = 1;
  options.optimizer.group = [](const std::string&, const torch::Tensor& param) {
    return GroupOptions{.weight_decay = param.dim() < 2 ? 0 : .1};
  };
}

}  // namespace lockstep::own_models
