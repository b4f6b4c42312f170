// A language model with an LSTM: rows are texts, which are read chunk by chunk. Each replica keeps the state
// of its texts.
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/utils/clip_grad.h>

#include <lockstep/tests/catch.h>

#include <cmath>
#include <memory>
#include <tuple>

#include <lockstep/data/train_checkpoint.h>
#include <lockstep/tests/parallel/programs/programs.h>
#include <lockstep/tests/parallel/replicas/loops.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr int64_t kTexts = 6, kChunk = 4, kChunks = 5, kWords = 7, kHidden = 5;

struct WordNet : torch::nn::Module {
  torch::nn::Embedding table = register_module("table", torch::nn::Embedding(kWords, 3));
  torch::nn::LSTM lstm =
      register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(3, kHidden).batch_first(true)));
  torch::nn::Linear next = register_module("next", torch::nn::Linear(kHidden, kWords));
};

struct Reader {
  explicit Reader(int64_t texts)
      : hidden(torch::zeros({1, texts, kHidden}, torch::kFloat64)), cell(torch::zeros_like(hidden)) {}

  // The sum over all words of a chunk.
  torch::Tensor loss(const Tuple& chunk) {
    const auto& [words, next] = chunk;
    const auto [out, state] = net->lstm(net->table(words), std::tuple(hidden, cell));
    hidden = std::get<0>(state).detach();  // the text goes on, its graph does not
    cell = std::get<1>(state).detach();
    return torch::cross_entropy_loss(net->next(out).flatten(0, 1), next.flatten(), {}, at::Reduction::Sum);
  }

  std::shared_ptr<WordNet> net = drawn_net<WordNet>();
  torch::optim::SGD sgd{net->parameters(), torch::optim::SGDOptions(.5).momentum(.5)};
  torch::Tensor hidden, cell;
};

// The words of all texts, and those that follow.
Tuple chunk_of_texts(int64_t number) {
  const auto texts = torch::arange(kTexts * (kChunk * kChunks + 1)).mul(5).remainder(23).remainder(kWords);
  const auto from = [&](int64_t first) {
    return texts.view({kTexts, -1}).narrow(1, number * kChunk + first, kChunk).contiguous();
  };
  return {from(0), from(1)};
}

template <class Wait>
torch::Tensor read(Reader& own, const Tuple& chunk, int64_t rows, const Wait& wait) {
  own.sgd.zero_grad();
  const auto sum = own.loss(chunk);
  (sum / (rows * kChunk)).backward();
  wait();
  torch::nn::utils::clip_grad_norm_(own.net->parameters(), .3);
  own.sgd.step();
  return sum;
}

using Readers = Replicas<Reader>;

std::unique_ptr<Readers> new_readers(ReplicasOptions options) {
  auto readers = std::make_unique<Readers>(
      std::move(options), [](Endpoint& endpoint) { return Reader(kTexts / endpoint.world_size()); });
  readers->attach(&Reader::net);
  readers->keep("sgd", &Reader::sgd);
  readers->keep("hidden", &Reader::hidden);
  readers->keep("cell", &Reader::cell);
  return readers;
}

void read_until(Readers& readers, int64_t chunk) {
  while (readers.steps_taken() < chunk) {
    readers.step(chunk_of_texts(readers.steps_taken()), [](Reader& own, const Tuple& shard, Step& step) {
      step.add("loss", read(own, shard, step.rows(), [&] { step.wait(own.net); }));
    });
  }
}

}  // namespace

TEST_CASE("an LSTM whose state stays with its texts learns as in plain torch, on any layout") {
  Reader alone(kTexts);
  double sum = 0;
  for (int64_t chunk = 0; chunk < kChunks; ++chunk) {
    sum += read(alone, chunk_of_texts(chunk), kTexts, [] {}).item<double>();
  }
  const auto expected = flat_copy(*alone.net);
  alone.hidden.zero_();
  alone.cell.zero_();
  const double test = alone.loss(chunk_of_texts(0)).item<double>() / (kTexts * kChunk);
  struct Found {
    torch::Tensor weights;
    double sum = 0, perplexity = 0;
  };
  for (const auto& layout : kLayouts) {
    INFO(text_of(layout) << " replicas");
    for (const auto& found : on_layout(layout, [](ReplicasOptions options) {
           const auto readers = new_readers(std::move(options));
           read_until(*readers, kChunks);
           const auto result =
               readers->evaluate(chunk_of_texts(0), [](Reader& own, const Tuple& shard, Step& step) {
                 own.hidden.zero_();
                 own.cell.zero_();
                 step.add("loss", own.loss(shard));
               });
           return Found{weights_of(*readers, &Reader::net), readers->take_sums()["loss"],
                        std::exp(result.mean("loss") / kChunk)};
         })) {
      CHECK(max_difference(found.weights, expected) < 1e-12);
      CHECK(found.sum == Approx(sum).epsilon(1e-12));
      CHECK(found.perplexity == Approx(std::exp(test)).epsilon(1e-12));
    }
  }
}

TEST_CASE("an LSTM goes on in the middle of its texts from a checkpoint, with the bits of one run") {
  for (const Layout& layout : {Layout{2}, Layout{1, 1}, Layout{1, 2}}) {
    INFO(text_of(layout) << " replicas");
    for (const auto same : on_layout(layout, [](const ReplicasOptions& options) {
           const TempFolder folder;
           const auto whole = new_readers(options), other = new_readers(options);
           read_until(*whole, 2);
           const auto state = whole->state();
           if (whole->is_first()) write_checkpoint(folder / "state", to_checkpoint(state));
           other->load(other->is_first() ? read_train_state(read_checkpoint(folder / "state")) : state);
           read_until(*whole, kChunks);
           read_until(*other, kChunks);
           return char{weights_of(*whole, &Reader::net).equal(weights_of(*other, &Reader::net))};
         })) {
      CHECK(same);
    }
  }
}
