// A character GPT that learns from the licences in /usr/share/common-licenses: tied weights, a causal mask,
// AdamW without decay of norms and biases, clipping by the global norm, a cosine with a warm-up, bf16.
//   character_gpt [DEVICES [PRECISION]]           default: cpux2 bf16
//   lockstep launch -n 2 -- ./character_gpt cpu   in two processes
#include <torch/torch.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include <lockstep/data/batch_order.h>
#include <lockstep/data/resident_rows.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/main_thread.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/model_factory.h>

namespace nn = torch::nn;
constexpr int kLength = 32, kWidth = 64, kHeads = 4, kBatch = 32, kSteps = 100;

struct Block : nn::Module {
  torch::Tensor forward(torch::Tensor x) {  // (rows, bytes, width)
    const auto qkv = mix_in(norm_1(x)).unflatten(2, {3, kHeads, -1}).permute({2, 0, 3, 1, 4});
    const auto seen = torch::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0, /*is_causal=*/true);
    x = x + mix_out(seen.transpose(1, 2).flatten(2));
    return x + mlp->forward(norm_2(x));
  }
  nn::LayerNorm norm_1 = register_module("norm_1", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::Linear mix_in = register_module("mix_in", nn::Linear(kWidth, 3 * kWidth));
  nn::Linear mix_out = register_module("mix_out", nn::Linear(kWidth, kWidth));
  nn::LayerNorm norm_2 = register_module("norm_2", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  nn::Sequential mlp = register_module(
      "mlp", nn::Sequential(nn::Linear(kWidth, 4 * kWidth), nn::GELU(), nn::Linear(4 * kWidth, kWidth)));
};

struct Gpt : nn::Module {
  Gpt() { nn::init::normal_(bytes->weight, 0, .1); }
  torch::Tensor forward(const torch::Tensor& text) {  // logits of each next byte
    const auto x = blocks->forward(bytes(text) + places);
    return torch::linear(norm(x), bytes->weight);  // the same weights again
  }
  nn::Embedding bytes = register_module("bytes", nn::Embedding(256, kWidth));
  torch::Tensor places = register_parameter("places", torch::zeros({kLength, kWidth}));
  nn::Sequential blocks =
      register_module("blocks", nn::Sequential(std::make_shared<Block>(), std::make_shared<Block>()));
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
};

torch::Tensor licences() {
  std::ostringstream text;
  for (const std::string name : {"Apache-2.0", "GFDL-1.3", "LGPL-2.1", "GPL-2", "GPL-3"})
    text << std::ifstream("/usr/share/common-licenses/" + name).rdbuf();
  auto all = text.str();
  if (all.empty()) throw std::runtime_error("/usr/share/common-licenses, which Debian has, is not here");
  return torch::from_blob(all.data(), {int64_t(all.size())}, torch::kUInt8).to(torch::kInt64);
}

// Rows of kLength bytes, each `stride` behind the one before, and the bytes that follow. All are views.
lockstep::SourceFactory windows(const torch::Tensor& text, int64_t stride) {
  const auto from = [&](int at) { return text.narrow(0, at, text.size(0) - 1).unfold(0, kLength, stride); };
  return lockstep::resident_rows({{"text", from(0)}, {"next", from(1), lockstep::Role::kTarget}});
}

int main(int argc, char** argv) try {
  lockstep::leave_cores_to_replicas();
  torch::manual_seed(0);
  const auto text = licences(), train = text.slice(0, 0, text.size(0) * 9 / 10);
  lockstep::TrainerOptions options;
  options.devices = lockstep::parse_devices(argc > 1 ? argv[1] : "cpux2");
  options.process_group = lockstep::join_process_group(lockstep::find_world());  // null: no other process
  options.lr = {.schedule = lockstep::Schedule::kCosine, .lr = .01, .total_steps = kSteps, .warmup_steps = 5};
  options.replica.precision = value_of(lockstep::kPrecisionNames, argc > 2 ? argv[2] : "bf16");
  options.replica.clip_norm = 1;
  options.replica.optimizer.kind = lockstep::OptimizerKind::kAdamW;
  options.replica.optimizer.group = [](const auto& /*name*/, const auto& param) {
    return lockstep::GroupOptions{.weight_decay = param.dim() < 2 ? 0 : .1};  // none of norms and biases
  };
  lockstep::Trainer trainer(lockstep::model_factory<Gpt>().loss(lockstep::token_cross_entropy()),
                            windows(train, 1), windows(text.slice(0, train.size(0)), kLength), options);
  const double before = trainer.evaluate()["perplexity"];
  const auto order = lockstep::batch_order(/*seed=*/0, /*epoch=*/0, train.size(0) - kLength);
  for (int i = 0; i < kSteps; ++i) trainer.step(std::span(order).subspan(i * kBatch, kBatch));
  const double after = trainer.evaluate()["perplexity"];
  if (trainer.first_rank() == 0) std::printf("perplexity %.6f, then %.6f\n", before, after);
  return after < before / 16 ? 0 : 1;
} catch (const std::exception& error) {  // a lockstep::Error also has an exit code: see own_loop.cpp
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
