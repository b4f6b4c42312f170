// Losses and metrics of a user's own, on any replicas: those of the whole batch.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <lockstep/tests/catch.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include <lockstep/data/resident_rows.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/support/compare.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr int64_t kCount = 24;
const std::vector<Layout> kWorlds = {{1}, {2}, {1, 1}, {3}, {1, 2}};
const std::vector<Rows> kSteps = {{0, 1, 2, 3, 4, 5, 6, 7, 8}, {20, 3}, {11, 12, 13, 14, 15}};

torch::Tensor waves(torch::IntArrayRef sizes, double frequency) {
  return torch::arange(c10::multiply_integers(sizes), torch::kFloat64).mul(frequency).sin().view(sizes);
}

template <class Net>
void set_weights(Net& net) {  // without random numbers
  const torch::NoGradGuard no_grad;
  for (auto& param : net.parameters()) param.copy_(waves(param.sizes(), .7).mul(.3));
}

// Takes ids, a number and a mask, all of other types.
struct Mixed : torch::nn::Module {
  Mixed() { set_weights(*this); }
  torch::Tensor forward(const Batch& in) {
    const bool as_given = in["ids"].scalar_type() == torch::kInt32 &&
                          in["mask"].scalar_type() == torch::kBool &&
                          in["price"].scalar_type() == torch::kFloat32;  // a target
    if (!as_given || in["age"].scalar_type() != torch::kFloat64) throw std::logic_error("other types");
    const auto words = embedding(in["ids"]) * in["mask"].unsqueeze(2);
    return outer(torch::cat({words.sum(1), in["age"].unsqueeze(1)}, 1)).squeeze(1);
  }
  torch::nn::Embedding embedding = register_module("embedding", torch::nn::Embedding(10, 4));
  torch::nn::Linear outer = register_module("outer", torch::nn::Linear(5, 1));
};

Batch mixed_rows() {
  return {{"ids", torch::arange(kCount * 3).remainder(10).view({kCount, 3}).to(torch::kInt32)},
          {"age", waves({kCount}, .9).to(torch::kFloat32)},
          {"mask", torch::arange(kCount * 3).remainder(4).ne(0).view({kCount, 3})},
          {"price", waves({kCount}, 1.3).to(torch::kFloat32), Role::kTarget}};
}

NetFactory<Mixed> mixed_factory() {
  return model_factory<Mixed>()
      .loss([](Mixed& net, const Batch& in) {
        const auto error = net.forward(in) - in["price"];
        const auto large = error.abs() > .5;
        return Outcome{error.square().sum(),
                       {large.sum(), error.square().sum(), {(error * large).sum(), large.sum()}}};
      })
      .metric("large", {.type = MetricType::kCount})
      .metric("rmse", {.finish = [](double mean) { return std::sqrt(mean); }})
      .metric("bias of large", {.own_weight = true});
}

struct Found {
  Params params = {};
  TrainSums sums = {};
  RowSums test = {};
};

std::vector<Found> train(const Layout& layout, const TrainerOptions& options, const ModelFactory& factory,
                         const Batch& rows) {
  return in_processes(layout, options, [&](int, const TrainerOptions& own) {
    Trainer trainer(factory, resident_rows(rows), resident_rows(rows), own);
    for (const auto& step : kSteps) trainer.step(step);
    Found found{.sums = trainer.take_sums(), .test = trainer.evaluate()};
    for (const auto& param : trainer.model(0).module->parameters())
      found.params.push_back(param.detach().clone());
    return found;
  });
}

TrainerOptions in_double() {
  auto options = options_for(1);
  options.replica.precision = Precision::kFp64;
  return options;
}

void check_near(const Params& found, const Params& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) CHECK(max_difference(found[i], expected[i]) <= 1e-12);
}

Batch rows_of(const Batch& all, const Rows& rows) {
  return all.converted([&](const torch::Tensor& tensor, const TensorSpec&) {
    return tensor.index_select(0, torch::tensor(rows));
  });
}

// One module in double, on whole batches, with the mean loss that mean() gives.
template <class Net, class Mean>
Params trained_by_torch(const Batch& all, const Mean& mean) {
  Net net;
  net.to(torch::kFloat64);
  torch::optim::SGD sgd(net.parameters(), .2);
  for (const auto& step : kSteps) {
    sgd.zero_grad();
    mean(net, in_precision(rows_of(all, step), Precision::kFp64)).backward();
    sgd.step();
  }
  return net.parameters();
}

}  // namespace

TEST_CASE("several inputs of any type train as the whole batch, and metrics are those of all rows") {
  const auto rows = mixed_rows();
  const auto expected = trained_by_torch<Mixed>(
      rows, [](Mixed& net, const Batch& in) { return (net.forward(in) - in["price"]).square().mean(); });
  Mixed trained;
  trained.to(torch::kFloat64);
  {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < expected.size(); ++i) trained.parameters()[i].copy_(expected[i]);
  }
  const auto all = in_precision(rows, Precision::kFp64);
  const auto error = (trained.forward(all) - all["price"]).detach();
  const auto large = error.abs() > .5;
  REQUIRE(large.any().item<bool>());
  for (const auto& layout : kWorlds) {
    for (const int accumulate : {1, 2}) {
      INFO(text_of(layout) << ", micro-batches " << accumulate);
      auto options = in_double();
      options.accumulate = accumulate;
      for (const auto& found : train(layout, options, mixed_factory(), rows)) {
        check_near(found.params, expected);
        CHECK(found.sums.rows == 16);
        CHECK(found.sums.mean_loss() == Approx(std::pow(found.sums["rmse"], 2)).epsilon(1e-12));
        CHECK(found.test["large"] == large.sum().item<double>() / kCount);
        CHECK(found.test["rmse"] == Approx(error.square().mean().sqrt().item<double>()).epsilon(1e-9));
        CHECK(found.test["bias of large"] ==
              Approx(error.masked_select(large).mean().item<double>()).epsilon(1e-9));
      }
    }
  }
}

namespace {

// Logits of the next token, from the token alone.
struct Bigrams : torch::nn::Module {
  Bigrams() { set_weights(*this); }
  torch::Tensor forward(const torch::Tensor& ids) { return table(ids); }
  torch::nn::Embedding table = register_module("table", torch::nn::Embedding(7, 7));
};

// Rows of one to six tokens; the others are padding.
Batch sentences() {
  const auto ids = torch::arange(kCount * 6).mul(5).remainder(7).view({kCount, 6});
  const auto length = torch::arange(kCount).mul(3).remainder(6).add(1).unsqueeze(1);
  const auto next =
      torch::where(torch::arange(6).unsqueeze(0) < length, ids.mul(3).add(1).remainder(7), -100);
  return {{"ids", ids}, {"next", next, Role::kTarget}};
}

}  // namespace

TEST_CASE("a mean over tokens is torch's of the whole batch, whatever each replica's rows weigh") {
  const auto rows = sentences();
  const auto expected = trained_by_torch<Bigrams>(rows, [](Bigrams& net, const Batch& in) {
    return torch::nn::functional::cross_entropy(net.forward(in["ids"]).flatten(0, 1), in["next"].flatten());
  });
  const auto factory = model_factory<Bigrams>().loss(token_cross_entropy());
  Bigrams trained;
  trained.to(torch::kFloat64);
  {
    const torch::NoGradGuard no_grad;
    trained.parameters()[0].copy_(expected[0]);
  }
  const auto test_loss =
      torch::nn::functional::cross_entropy(trained.forward(rows["ids"]).flatten(0, 1), rows["next"].flatten())
          .item<double>();
  double tokens = 0;
  for (const auto& step : kSteps) tokens += rows_of(rows, step)["next"].ne(-100).sum().item<double>();
  for (const auto& layout : kWorlds) {
    for (const int accumulate : {1, 3}) {
      INFO(text_of(layout) << ", micro-batches " << accumulate);
      auto options = in_double();
      options.accumulate = accumulate;
      for (const auto& found : train(layout, options, factory, rows)) {
        check_near(found.params, expected);
        CHECK(found.sums.rows == 16);
        CHECK(found.sums.weight == tokens);
        CHECK(found.test.mean_loss() == Approx(test_loss).epsilon(1e-9));
        CHECK(found.test["perplexity"] == Approx(std::exp(test_loss)).epsilon(1e-9));
      }
    }
  }
}

TEST_CASE("a weight that is not one number ends the step with the replica's name") {
  const auto factory = model_factory<Bigrams>().loss(token_cross_entropy()).weight([](const Batch& in) {
    return in["next"].ne(-100).sum(1);
  });
  for (const auto& layout : {Layout{2}, Layout{1, 1}}) {
    const auto refusals = in_processes(layout, options_for(1), [&](int, const TrainerOptions& own) {
      Trainer trainer(factory, resident_rows(sentences()), resident_rows(sentences()), own);
      return refusal_of<Error>([&] { trainer.step(kSteps[0]); });
    });
    bool told = false;
    for (const auto& refusal : refusals) {
      CHECK_FALSE(refusal.empty());
      told |= refusal.find("in the gather of step 1: the weight of the rows is Long [") != refusal.npos;
    }
    CHECK(told);
  }
}

TEST_CASE("processes whose models declare other metrics are refused, the same in each") {
  const auto refusals = in_processes({1, 1}, {}, [](int process, const TrainerOptions& own) {
    auto factory = lenet_factory();
    if (process == 1)
      factory = model_factory<LeNetImpl>(uint64_t{0}, torch::kFloat32).loss(classification(2));
    const auto rows = source(std::make_shared<RowSource>(8));
    return refusal_of([&] { Trainer(factory, rows, rows, own); });
  });
  CHECK(refusals[0] == "the metrics differ: process 1 has nothing more where process 0 has top5: a count");
  CHECK(refusals[1] == refusals[0]);
}

TEST_CASE("two metrics of one name are refused") {
  const auto rows = source(std::make_shared<RowSource>(8));
  const auto twice = model_factory<LeNetImpl>(uint64_t{0}, torch::kFloat32).metric("top1");
  CHECK(refusal_of([&] { Trainer(twice, rows, rows, options_for(1)); }) ==
        "the model declares two metrics named top1");
}
