// Programs of users with a Trainer, each beside plain torch on whole batches: in double, on any layout, with
// micro-batches, evaluated, and resumed from a checkpoint.
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <lockstep/tests/catch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/data/train_checkpoint.h>
#include <lockstep/models/batch_norm.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/parallel/programs/programs.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/plain_training.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

namespace nn = torch::nn;
constexpr int64_t kCount = 24, kImage = 8, kTokens = 6, kVocabulary = 11, kWide = 8;
const std::vector<Rows> kBatchesOfRows = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8}, {20, 3}, {11, 12, 13, 14, 15}, {9, 23, 1, 2}};
const std::vector<Layout> kWorlds = {{1}, {2}, {1, 1}, {3}, {1, 2}};

nn::Conv2d conv3(int64_t in, int64_t out) { return nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1)); }

// Digits: convolutions, pooling, log_softmax and nll_loss.
struct DigitNet : nn::Module {
  torch::Tensor forward(torch::Tensor X) {
    X = torch::relu(torch::max_pool2d(first(X), 2));
    X = torch::relu(torch::max_pool2d(second(X), 2)).flatten(1);
    return torch::log_softmax(last(X), 1);
  }
  nn::Conv2d first = register_module("first", conv3(1, 4));
  nn::Conv2d second = register_module("second", conv3(4, 6));
  nn::Linear last = register_module("last", nn::Linear(6 * 2 * 2, 10));
};

// Codes of images; the noise of a code is an input, since any number of replicas is to draw the same.
struct AutoEncoder : nn::Module {
  torch::Tensor loss(const Batch& in) {  // minus the evidence's lower bound
    const auto image = in["image"].flatten(1);
    const auto code = encoder(image);
    const auto mean = code.narrow(1, 0, 3), log_variance = code.narrow(1, 3, 3);
    const auto logits = decoder(mean + (.5 * log_variance).exp() * in["noise"]);
    const auto options = nn::functional::BinaryCrossEntropyWithLogitsFuncOptions().reduction(torch::kSum);
    return nn::functional::binary_cross_entropy_with_logits(logits, image, options) -
           .5 * (1 + log_variance - mean.square() - log_variance.exp()).sum();
  }
  nn::Linear encoder = register_module("encoder", nn::Linear(kImage* kImage, 6));
  nn::Linear decoder = register_module("decoder", nn::Linear(3, kImage* kImage));
};

// A ResNet's block, with batch norms of the whole batch.
struct ResidualNet : nn::Module {
  torch::Tensor forward(const torch::Tensor& X) {
    const auto stem = torch::relu(norm_1(first(X)));
    const auto block = norm_3(third(torch::relu(norm_2(second(stem)))));
    return last(torch::relu(block + stem).mean({2, 3}));
  }
  nn::Conv2d first = register_module("first", conv3(1, 4));
  nn::Conv2d second = register_module("second", conv3(4, 4));
  nn::Conv2d third = register_module("third", conv3(4, 4));
  BatchNorm2d norm_1 = register_module("norm_1", BatchNorm2d(4));
  BatchNorm2d norm_2 = register_module("norm_2", BatchNorm2d(4));
  BatchNorm2d norm_3 = register_module("norm_3", BatchNorm2d(4));
  nn::Linear last = register_module("last", nn::Linear(4, 10));
};

// A GPT of one block. Its head has the weights of its table, under a second name.
struct TiedGpt : nn::Module {
  torch::Tensor forward(const torch::Tensor& text) {
    auto x = table(text) + places;
    const auto qkv = mix_in(norm_1(x)).unflatten(2, {3, 2, -1}).permute({2, 0, 3, 1, 4});
    const auto seen = torch::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0, /*is_causal=*/true);
    x = x + mix_out(seen.transpose(1, 2).flatten(2));
    return torch::linear(norm_2(x + torch::gelu(mlp(x))), head);
  }
  nn::Embedding table = register_module("table", nn::Embedding(kVocabulary, kWide));
  torch::Tensor head = register_parameter("head", table->weight);
  torch::Tensor places = register_parameter("places", torch::zeros({kTokens, kWide}));
  nn::Linear mix_in = register_module("mix_in", nn::Linear(kWide, 3 * kWide));
  nn::Linear mix_out = register_module("mix_out", nn::Linear(kWide, kWide));
  nn::Linear mlp = register_module("mlp", nn::Linear(kWide, kWide));
  nn::LayerNorm norm_1 = register_module("norm_1", nn::LayerNorm(nn::LayerNormOptions({kWide})));
  nn::LayerNorm norm_2 = register_module("norm_2", nn::LayerNorm(nn::LayerNormOptions({kWide})));
};

// A function whose slope is a target, too: its loss has a gradient in it.
struct SlopeNet : nn::Module {
  torch::Tensor loss(const Batch& in) {
    const torch::AutoGradMode with_grad(true);  // in an evaluation as well
    const auto X = in["X"].detach().requires_grad_();
    const auto y = outer(torch::tanh(inner(X))).squeeze(1);
    const auto slope =
        torch::autograd::grad({y.sum()}, {X}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    return (y - in["y"]).square().sum() + (slope - in["slope"]).square().sum();
  }
  nn::Linear inner = register_module("inner", nn::Linear(3, 8));
  nn::Linear outer = register_module("outer", nn::Linear(8, 1));
};

template <class Net>
NetFactory<Net> drawn_factory() {
  return NetFactory<Net>([] {
    auto net = std::make_shared<Net>();
    draw_weights(*net);
    return net;
  });
}

torch::Tensor index_of(const Rows& rows) { return torch::tensor(rows, torch::kInt64); }
torch::Tensor images_of(const Rows& rows) {
  return random_numbers({kCount, 1, kImage, kImage}).index_select(0, index_of(rows));
}
torch::Tensor classes_of(const Rows& rows) { return index_of(rows).mul(7).remainder(10); }

Batch digits(const Rows& rows, int64_t /*epoch*/) {
  return {{"image", images_of(rows)}, {"digit", classes_of(rows), Role::kTarget}};
}

Batch noisy_images(const Rows& rows, int64_t /*epoch*/) {
  return {{"image", images_of(rows)},
          {"noise", random_numbers({kCount, 3}, 2).index_select(0, index_of(rows)) - .5}};
}

// Shifted and mirrored at random, by what the epoch and the row say.
Batch augmented_images(const Rows& rows, int64_t epoch) {
  const auto images = images_of(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto draws =
        torch::randint(0, 3, {3}, replica_generator(7, epoch, static_cast<int>(rows[i])), torch::kInt64);
    const auto image = images[static_cast<int64_t>(i)];
    auto other = image.roll({draws[0].item<int64_t>(), draws[1].item<int64_t>()}, {1, 2});
    if (draws[2].item<int64_t>() == 0) other = other.flip(2);
    image.copy_(other);
  }
  return {images, classes_of(rows)};
}

Batch texts(const Rows& rows, int64_t /*epoch*/) {
  const auto all = torch::arange(kCount * (kTokens + 1)).mul(5).remainder(37).remainder(kVocabulary);
  const auto own = all.view({kCount, kTokens + 1}).index_select(0, index_of(rows));
  return {own.narrow(1, 0, kTokens), own.narrow(1, 1, kTokens)};
}

Batch slopes(const Rows& rows, int64_t /*epoch*/) {
  const auto X = random_numbers({kCount, 3}, 3).index_select(0, index_of(rows));
  return {{"X", X}, {"y", X.square().sum(1), Role::kTarget}, {"slope", 2 * X, Role::kTarget}};
}

struct Program {
  std::string name;
  ModelFactory factory;
  std::function<Batch(const Rows& rows, int64_t epoch)> rows;
  OptimizerOptions optimizer = {};
  double lr = .1;
  double clip_norm = 0;
  BnPolicy bn = BnPolicy::kRoot;
  std::vector<int> accumulate = {1, 2};
};

std::vector<Program> programs() {
  return {
      {.name = "digits",
       .factory = drawn_factory<DigitNet>()
                      .loss([](DigitNet& net, const Batch& in) {
                        const auto log_p = net.forward(in["image"]);
                        const auto& digit = in["digit"];
                        return Outcome{torch::nll_loss(log_p, digit, {}, at::Reduction::Sum),
                                       {(log_p.argmax(1) == digit).sum()}};
                      })
                      .metric("right", {.type = MetricType::kCount}),
       .rows = digits,
       .optimizer = {.momentum = .5}},
      {.name = "a VAE",
       .factory =
           drawn_factory<AutoEncoder>().loss([](AutoEncoder& net, const Batch& in) { return net.loss(in); }),
       .rows = noisy_images,
       .optimizer = {.kind = OptimizerKind::kAdam},
       .lr = .01},
      {.name = "a ResNet with augmentation",
       .factory = drawn_factory<ResidualNet>(),
       .rows = augmented_images,
       .optimizer = {.momentum = .9, .nesterov = true, .weight_decay = .01},
       .bn = BnPolicy::kSync,
       .accumulate = {1}},  // each micro-batch has statistics of its own
      {.name = "a GPT",
       .factory = drawn_factory<TiedGpt>().loss(token_cross_entropy()),
       .rows = texts,
       .optimizer = {.kind = OptimizerKind::kAdamW,
                     .weight_decay = .1,
                     .group = [](const std::string&, const torch::Tensor& param) -> GroupOptions {
                       if (param.dim() < 2) return {.weight_decay = 0};
                       return {};
                     }},
       .lr = .01,
       .clip_norm = .5},
      {.name = "a penalty on slopes",
       .factory = drawn_factory<SlopeNet>().loss([](SlopeNet& net, const Batch& in) { return net.loss(in); }),
       .rows = slopes},
  };
}

class ProgramRows : public BatchSource {
 public:
  explicit ProgramRows(std::function<Batch(const Rows&, int64_t)> rows) : rows_(std::move(rows)) {}
  int64_t size() const override { return kCount; }
  BatchSpec spec() const override { return rows_({0}, 0).spec(); }
  void gather(const torch::Tensor& rows, int64_t epoch, Batch& into) const override {
    const auto* first = rows.const_data_ptr<int64_t>();
    into = rows_(Rows(first, first + rows.numel()), epoch);
  }

 private:
  const std::function<Batch(const Rows&, int64_t)> rows_;
};

std::unique_ptr<Trainer> new_trainer(const Program& program, TrainerOptions options, int accumulate = 1) {
  options.replica.precision = Precision::kFp64;
  options.replica.optimizer = program.optimizer;
  options.replica.clip_norm = program.clip_norm;
  options.lr.lr = program.lr;
  options.bn = program.bn;
  options.accumulate = accumulate;
  const SourceFactory rows = [&](torch::Device) { return std::make_shared<ProgramRows>(program.rows); };
  return std::make_unique<Trainer>(program.factory, rows, rows, options);
}

// Batch i is of epoch i.
void train_until(Trainer& trainer, size_t end) {
  for (auto i = static_cast<size_t>(trainer.steps_taken()); i < end; ++i) {
    trainer.step(kBatchesOfRows[i], static_cast<int64_t>(i));
  }
}

torch::Tensor all_of(const std::vector<NamedTensor>& tensors) {
  std::vector<torch::Tensor> parts;
  for (const auto& item : tensors) parts.push_back(item.tensor.detach().flatten().to(torch::kFloat64));
  return torch::cat(parts);
}

}  // namespace

TEST_CASE("programs with a Trainer take the steps of plain torch on whole batches, on any layout") {
  for (const auto& program : programs()) {
    PlainTraining plain(program.factory, {.name = program.name,
                                          .optimizer = program.optimizer,
                                          .lr = program.lr,
                                          .clip_norm = program.clip_norm});
    const auto before = all_of(distinct_tensors(plain.module()));
    for (size_t i = 0; i < kBatchesOfRows.size(); ++i) {
      plain.step(program.rows(kBatchesOfRows[i], static_cast<int64_t>(i)));
    }
    const auto expected = all_of(distinct_tensors(plain.module()));
    const double loss = plain.evaluate(program.rows(first_rows(kCount), 0));
    CHECK(max_difference(before, expected) > 1e-3);
    for (const auto& layout : kWorlds) {
      for (const int accumulate : program.accumulate) {
        INFO(program.name << " on " << text_of(layout) << " replicas, micro-batches " << accumulate);
        for (const auto& [weights, test] :
             in_processes(layout, options_for(1), [&](int, const TrainerOptions& own) {
               const auto trainer = new_trainer(program, own, accumulate);
               train_until(*trainer, kBatchesOfRows.size());
               return std::pair(all_of(trainer->weights()), trainer->evaluate());
             })) {
          CHECK(max_difference(weights, expected) < 1e-10);
          CHECK(test.rows == kCount);
          CHECK(test.mean_loss() == Approx(loss).epsilon(1e-10));
        }
      }
    }
  }
}

TEST_CASE("programs with a Trainer go on from a checkpoint with the bits of one run") {
  for (const auto& program : programs()) {
    for (const Layout& layout : {Layout{2}, Layout{1, 1}}) {
      INFO(program.name << " on " << text_of(layout) << " replicas");
      for (const auto same : in_processes(layout, options_for(1), [&](int, const TrainerOptions& own) {
             const TempFolder folder;
             const auto whole = new_trainer(program, own), other = new_trainer(program, own);
             train_until(*whole, 2);
             const auto state = whole->state();
             if (whole->first_rank() == 0) write_checkpoint(folder / "state", to_checkpoint(state));
             other->load(other->first_rank() == 0 ? read_train_state(read_checkpoint(folder / "state"))
                                                  : state);
             train_until(*whole, kBatchesOfRows.size());
             train_until(*other, kBatchesOfRows.size());
             return char{all_of(whole->weights()).equal(all_of(other->weights()))};
           })) {
        CHECK(same);
      }
    }
  }
}
