// The types and values in which a model gets the rows of its data.
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include <lockstep/tests/catch.h>

#include <functional>
#include <iterator>
#include <mutex>
#include <set>
#include <vector>

#include <lockstep/parallel/trainer.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/compare.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr int64_t kRows = 12, kClasses = 3;
const std::vector<Layout> kTwoReplicas = {{2}, {1, 1}};

torch::Tensor table() { return torch::arange(kRows * kClasses).mul(.7).sin().view({kRows, kClasses}); }

SourceFactory rows_of(const torch::Tensor& X) {
  const auto y = torch::arange(kRows).remainder(kClasses);
  return resident_rows({X, y});
}

using Look = std::function<void(const torch::Tensor& X)>;

// An embedding of the ids first, first + 1, ..., whose rows are logits.
struct EmbeddingNet : torch::nn::Module {
  EmbeddingNet(int64_t first_id, Look look_at) : first(first_id), look(std::move(look_at)) {
    weight = register_parameter("weight", table().to(torch::kFloat32));
  }
  torch::Tensor forward(const torch::Tensor& X) {
    look(X);
    return torch::embedding(weight, X - first);
  }
  const int64_t first;
  const Look look;
  torch::Tensor weight;
};

// The same logits for all rows.
struct ConstantNet : torch::nn::Module {
  explicit ConstantNet(Look look_at) : look(std::move(look_at)) {
    logits = register_parameter("logits", torch::zeros({kClasses}));
  }
  torch::Tensor forward(const torch::Tensor& X) {
    look(X);
    return logits.expand({X.size(0), kClasses});
  }
  const Look look;
  torch::Tensor logits;
};

}  // namespace

TEST_CASE("token ids reach an embedding as they are, in every precision, and it trains as with torch alone") {
  const int64_t first = GENERATE(int64_t{1} << 24, int64_t{1} << 53);  // float, double have no first + 1
  const auto precision = GENERATE(Precision::kFp32, Precision::kBf16, Precision::kFp64);
  const auto ids = torch::arange(first, first + kRows);
  const Rows batch{1, 3, 5, 7, 11, 2, 9};

  const auto expected = table().requires_grad_();
  torch::optim::SGD sgd(std::vector<torch::Tensor>{expected}, .2);
  for (int step = 0; step < 2; ++step) {
    sgd.zero_grad();
    const auto rows = torch::tensor(batch);
    torch::nn::functional::cross_entropy(torch::embedding(expected, rows), rows.remainder(kClasses))
        .backward();
    sgd.step();
  }

  for (const auto& layout : kTwoReplicas) {
    INFO(text_of(layout) << ", ids from " << first);
    std::mutex mutex;
    std::multiset<int64_t> seen;
    const Look look = [&](const torch::Tensor& X) {
      const std::lock_guard lock(mutex);
      for (int64_t i = 0; i < X.size(0); ++i) seen.insert(X[i].item<int64_t>());
    };
    TrainerOptions options;
    options.lr.lr = .2;
    options.replica.precision = precision;
    const auto weights = in_processes(layout, options, [&](int, const TrainerOptions& own) {
      Trainer trainer(model_factory<EmbeddingNet>(first, look), rows_of(ids), rows_of(ids), own);
      trainer.step(batch);
      trainer.step(batch);
      auto weight = trainer.weights().front().tensor;
      trainer.evaluate();
      return weight;
    });
    for (const auto& weight : weights) CHECK(max_difference(weight, expected) < 1e-6);
    std::multiset<int64_t> wanted;
    for (int64_t i = 0; i < kRows; ++i) wanted.insert(first + i);
    for (const auto row : batch) wanted.insert({first + row, first + row});
    CHECK(seen == wanted);
  }
}

TEST_CASE("floating-point and complex inputs follow the precision, all others keep their type") {
  using torch::ScalarType;
  const auto precision = GENERATE(Precision::kFp32, Precision::kBf16, Precision::kFp64);
  const bool fp64 = precision == Precision::kFp64;
  const auto floating = fp64 ? torch::kFloat64 : torch::kFloat32;
  const auto complex = fp64 ? torch::kComplexDouble : torch::kComplexFloat;
  const struct {
    ScalarType given, expected;
  } cases[] = {
      {torch::kUInt8, torch::kUInt8}, {torch::kInt8, torch::kInt8},    {torch::kInt16, torch::kInt16},
      {torch::kInt32, torch::kInt32}, {torch::kInt64, torch::kInt64},  {torch::kBool, torch::kBool},
      {torch::kFloat16, floating},    {torch::kBFloat16, floating},    {torch::kFloat32, floating},
      {torch::kFloat64, floating},    {torch::kComplexFloat, complex}, {torch::kComplexDouble, complex}};
  for (const auto& layout : kTwoReplicas) {
    for (const auto& [given, expected] : cases) {
      INFO(text_of(layout) << ", " << toString(given));
      std::mutex mutex;
      std::multiset<ScalarType> seen;  // by each replica in training, and by the first in evaluation
      const Look look = [&](const torch::Tensor& X) {
        const std::lock_guard lock(mutex);
        seen.insert(X.scalar_type());
      };
      TrainerOptions options;
      options.replica.precision = precision;
      in_processes(layout, options, [&, X = torch::ones({kRows}, given)](int, const TrainerOptions& own) {
        Trainer trainer(model_factory<ConstantNet>(look), rows_of(X), rows_of(X), own);
        trainer.step(first_rows(4));
        trainer.evaluate();
        return true;
      });
      CHECK(seen == std::multiset<ScalarType>{expected, expected, expected});
    }
  }
}
