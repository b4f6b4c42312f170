// Outputs of a model for many rows: those of one module, on any replicas.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/tests/catch.h>

#include <functional>
#include <string>
#include <vector>

#include <lockstep/data/resident_rows.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/parallel/drawing_net.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/compare.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

const std::vector<Layout> kWorlds = {{1}, {2}, {3}, {8}, {1, 1}, {1, 2}, {3, 2}};

// Logits of the next token, from the token alone.
struct NextToken : torch::nn::Module {
  NextToken() {
    const torch::NoGradGuard no_grad;
    table->weight.copy_(torch::arange(49).mul(.7).sin().view({7, 7}));
  }
  torch::Tensor forward(const torch::Tensor& ids) { return table(ids); }
  torch::nn::Embedding table = register_module("table", torch::nn::Embedding(7, 7));
};

Batch images(int64_t rows) { return RowSource(rows).all(); }

Batch tokens(int64_t rows) {
  const auto ids = torch::arange(rows * 5).mul(3).remainder(7).view({rows, 5});
  return {ids, ids};
}

NetFactory<TwoLayersImpl> with_output(std::function<torch::Tensor(TwoLayersImpl&, const Batch&)> output) {
  return model_factory<TwoLayersImpl>(std::function<void(const torch::Tensor&)>()).output(std::move(output));
}

// The outputs of one module in evaluation mode, for rows at once.
torch::Tensor outputs_of(const ModelFactory& factory, const Batch& rows) {
  const torch::NoGradGuard no_grad;
  const auto model = factory();
  model.module->eval();
  return model.output(rows);
}

std::vector<torch::Tensor> predicted(const Layout& layout, const ModelFactory& factory, const Batch& rows,
                                     const TrainerOptions& options = {}) {
  return in_processes(layout, options, [&](int, const TrainerOptions& own) {
    Trainer trainer(factory, resident_rows(rows), resident_rows(rows), own);
    return trainer.predict(resident_rows(rows));
  });
}

bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.equal(b);
}

}  // namespace

TEST_CASE("any outputs come in the order of the rows, with the same bits from any replicas in each process") {
  const struct {
    const char* name;
    ModelFactory factory;
    Batch rows;
    std::vector<int64_t> row_shape;
  } cases[] = {
      {"logits", two_layers(), images(600), {10}},
      {"a block", two_layers(), images(256), {10}},
      {"a block and a row", two_layers(), images(257), {10}},
      {"one row", two_layers(), images(1), {10}},
      {"a number per row",
       with_output([](auto& net, const Batch& in) { return net.forward(in.input()).select(1, 3); }),
       images(300),
       {}},
      {"classes",
       with_output([](auto& net, const Batch& in) { return net.forward(in["input"]).argmax(1); }),
       images(520),
       {}},
      {"logits per token", model_factory<NextToken>().loss(token_cross_entropy()), tokens(300), {5, 7}},
      {"draws in evaluation", drawing_factory(/*also_in_evaluation=*/true), images(600), {10}},
      {"dropout", drawing_factory(), images(600), {10}}};
  for (const auto& [name, factory, rows, row_shape] : cases) {
    INFO(name);
    const auto first = predicted({1}, factory, rows)[0];
    auto sizes = row_shape;
    sizes.insert(sizes.begin(), rows.rows());
    CHECK(first.sizes() == sizes);
    CHECK_FALSE(first.requires_grad());
    if (std::string(name) != "draws in evaluation") {
      const auto expected = outputs_of(factory, rows);
      CHECK(first.scalar_type() == expected.scalar_type());
      CHECK(max_difference(first, expected) <= 1e-6);
    }
    for (const auto& layout : kWorlds) {
      INFO(text_of(layout));
      for (const auto& own : predicted(layout, factory, rows)) CHECK(same_bits(own, first));
    }
  }
}

TEST_CASE("rows are predicted by number, in any order and more than once, and need no targets") {
  const auto all = images(40);
  const Rows rows{39, 0, 7, 7, 12};
  const auto expected = outputs_of(two_layers(), all).index_select(0, torch::tensor(rows));
  for (const auto& layout : kWorlds) {
    INFO(text_of(layout));
    const auto found = in_processes(layout, {}, [&](int, const TrainerOptions& own) {
      Trainer trainer(two_layers(), resident_rows(all), resident_rows(all), own);
      return trainer.predict(resident_rows({{"input", all.input()}}), rows);
    });
    for (const auto& own : found) {
      CHECK(own.size(0) == 5);
      CHECK(max_difference(own, expected) <= 1e-6);
    }
  }
}

TEST_CASE("without rows the outputs have the shape of a row, where there is one") {
  for (const auto& layout : {Layout{1}, Layout{3}, Layout{1, 2}}) {
    INFO(text_of(layout));
    const auto found = in_processes(layout, {}, [](int, const TrainerOptions& own) {
      Trainer trainer(two_layers(), rows_on_device(8), rows_on_device(8), own);
      return std::pair(trainer.predict(rows_on_device(8), Rows{}), trainer.predict(rows_on_device(0)));
    });
    for (const auto& [no_rows, no_data] : found) {
      CHECK(no_rows.sizes() == std::vector<int64_t>{0, 10});
      CHECK(no_data.sizes() == std::vector<int64_t>{0});
    }
  }
}

TEST_CASE("outputs follow the precision") {
  const std::pair<Precision, torch::ScalarType> cases[] = {{Precision::kFp32, torch::kFloat32},
                                                           {Precision::kFp64, torch::kFloat64},
                                                           {Precision::kBf16, torch::kBFloat16}};
  const auto expected = outputs_of(two_layers(), images(20));
  for (const auto& [precision, dtype] : cases) {
    INFO(name_of(kPrecisionNames, precision));
    TrainerOptions options;
    options.replica.precision = precision;
    for (const auto& layout : {Layout{3}, Layout{1, 1}}) {
      for (const auto& own : predicted(layout, two_layers(), images(20), options)) {
        CHECK(own.scalar_type() == dtype);
        CHECK(max_difference(own, expected) <= (dtype == torch::kBFloat16 ? .05 : 1e-6));
      }
    }
  }
}

namespace {

struct NormedClasses : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& X) { return outer(norm(inner(X.flatten(1))).relu()); }
  torch::nn::Linear inner = register_module("inner", torch::nn::Linear(784, 12));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(12));
  torch::nn::Linear outer = register_module("outer", torch::nn::Linear(12, 10));
};

}  // namespace

TEST_CASE("a prediction has the batch-norm statistics of an evaluation, and training goes on as without it") {
  const auto rows = images(600);
  for (const auto bn : {BnPolicy::kRoot, BnPolicy::kAverage}) {
    auto options = options_for(3);
    options.bn = bn;
    torch::manual_seed(3);
    Trainer trainer(model_factory<NormedClasses>(), resident_rows(rows), resident_rows(rows), options);
    torch::manual_seed(3);
    Trainer other(model_factory<NormedClasses>(), resident_rows(rows), resident_rows(rows), options);
    for (int step = 0; step < 3; ++step) {
      trainer.step(first_rows(60));
      other.step(first_rows(60));
    }
    const auto found = trainer.predict(resident_rows(rows)).argmax(1);
    CHECK(found.eq(rows.target()).sum().item<double>() == trainer.evaluate().metrics.at(0).sum);
    CHECK(trainer.model(1).module->is_training());
    trainer.step(first_rows(60));
    other.step(first_rows(60));
    check_same_tensors(trainer.weights(), other.weights());
  }
}

TEST_CASE("what cannot be predicted is refused in every process, and the trainer can be used afterwards") {
  const ModelFactory no_output = [] {
    auto model = two_layers()();
    model.output = {};
    return model;
  };
  const auto usual = rows_on_device(8);
  const auto other = resident_rows({{"pixels", images(8).input()}});
  const struct {
    ModelFactory factory;
    SourceFactory data;
    Rows rows;
    const char* what;
    const char* hint;
  } cases[] = {
      {no_output, usual, {0}, "the model has no output to predict", ".output("},
      {two_layers(), {}, {0}, "the factory of the data to predict is empty", "resident_rows"},
      {two_layers(),
       other,
       {0},
       "the training set gives input Float [n, 1, 28, 28], the data to predict pixels Float [n, 1, 28, 28]",
       "same names"},
      {two_layers(), usual, {0, 8}, "row 8 does not exist: the data set has 8 rows, from 0", ""},
      {two_layers(), usual, {-1}, "row -1 does not exist: the data set has 8 rows, from 0", ""}};
  for (const auto& [factory, data, rows, what, hint] : cases) {
    for (const auto& layout : {Layout{2}, Layout{1, 1}}) {
      INFO(text_of(layout) << ", " << what);
      const auto found =
          in_processes(layout, {}, [&, &f = factory, &d = data, &r = rows](int, const TrainerOptions& own) {
            Trainer trainer(f, usual, usual, own);
            const auto refusal = refusal_and_hint<Error>([&] { trainer.predict(d, r); });
            trainer.step(first_rows(8));
            return std::pair(refusal, trainer.steps_taken());
          });
      for (const auto& [refusal, steps] : found) {
        CHECK_THAT(refusal, StartsWith(std::string(what) + " | "));
        CHECK_THAT(refusal, ContainsSubstring(hint));
        CHECK(steps == 1);
      }
    }
  }
}

TEST_CASE("processes that want other rows or data are refused, the same in each") {
  const auto refusals = [](const std::function<void(int, Trainer&)>& predict) {
    return in_processes({1, 1}, {}, [&](int process, const TrainerOptions& own) {
      Trainer trainer(two_layers(), rows_on_device(8), rows_on_device(8), own);
      return refusal_of([&] { predict(process, trainer); });
    });
  };
  const auto rows = refusals([](int process, Trainer& trainer) {
    trainer.predict(rows_on_device(8), process == 0 ? Rows{1, 2} : Rows{2, 1});
  });
  const auto data =
      refusals([](int process, Trainer& trainer) { trainer.predict(rows_on_device(process == 0 ? 8 : 9)); });
  const auto missing = refusals([](int process, Trainer& trainer) {
    const SourceFactory none = [](torch::Device) -> std::shared_ptr<const BatchSource> {
      throw DataError("no such file");
    };
    trainer.predict(process == 0 ? rows_on_device(8) : none);
  });
  CHECK_THAT(missing[0], ContainsSubstring("process 1 has no data: no such file where process 0 has"));
  for (const auto* both : {&rows, &data, &missing}) {
    CHECK_THAT((*both)[0], StartsWith("the rows to predict differ: process 1 has "));
    CHECK((*both)[1] == (*both)[0]);
  }
}

TEST_CASE("outputs that are not one per row, or not of one shape, end the call with the replica's name") {
  const auto sum = with_output([](auto& net, const Batch& in) { return net.forward(in.input()).sum(0); });
  const auto growing = with_output([](auto& net, const Batch& in) {
    return net.forward(in.input()).slice(1, 0, in.rows() == 151 ? 10 : 4);
  });
  for (const auto& layout : {Layout{2}, Layout{1, 1}}) {
    const auto error_of = [&](const ModelFactory& factory) {
      const auto found = in_processes(layout, {}, [&](int, const TrainerOptions& own) {
        Trainer trainer(factory, rows_on_device(301), rows_on_device(301), own);
        return refusal_of<Error>([&] { trainer.predict(rows_on_device(301)); });
      });
      std::string all;  // of two processes one has the error, the other one has lost it
      for (const auto& own : found) {
        CHECK_FALSE(own.empty());
        all += own + "\n";
      }
      return all;
    };
    CHECK_THAT(
        error_of(sum),  // the error of the replica that is first
        ContainsSubstring("in the prediction of rows 0 to 150: the outputs of 151 rows are [10] on cpu") ||
            ContainsSubstring(
                "in the prediction of rows 151 to 300: the outputs of 150 rows are [10] on cpu"));
    Trainer trainer(sum, rows_on_device(301), rows_on_device(301), options_for(1));
    CHECK_THAT(refusal_of([&] {
                 trainer.predict(rows_on_device(301), Rows{90, 7, 8});
               }),
               ContainsSubstring("in the prediction of rows 90, ..., 8: the outputs of 3 rows are [10]"));
    CHECK_THAT(error_of(growing),
               ContainsSubstring("rank 1 (cpu): in the prediction of rows 151 to 300: the outputs are Float "
                                 "[n, 4], those of the first block Float [n, 10]"));
  }
}
