// The self-check of a loss: what it finds, and what it lets pass.
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/tests/catch.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/data/resident_rows.h>
#include <lockstep/models/batch_norm.h>
#include <lockstep/parallel/check_split.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/parallel/drawing_net.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/mishap.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

namespace F = torch::nn::functional;

constexpr int64_t kAll = 20, kRows = 9, kFirst = 3;  // rows of the data, of a check, of its first part

torch::Tensor hills(torch::IntArrayRef sizes, double frequency) {
  return torch::arange(c10::multiply_integers(sizes), torch::kFloat64).mul(frequency).sin().view(sizes);
}

// Three numbers of six, with weights that no generator draws.
struct Net : torch::nn::Module {
  Net() {
    const torch::NoGradGuard no_grad;
    linear->weight.copy_(hills({3, 6}, .7));
    linear->bias.copy_(hills({3}, .3));
  }
  torch::Tensor forward(const torch::Tensor& X) { return linear(X); }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(6, 3));
};

Batch classes() { return {hills({kAll, 6}, .9), torch::arange(kAll).mul(5).remainder(3)}; }
Batch numbers() { return {hills({kAll, 6}, .9), hills({kAll, 3}, 1.7)}; }

// Rows of one to six tokens; the others are padding.
Batch sentences() {
  const auto ids = torch::arange(kAll * 6).mul(5).remainder(7).view({kAll, 6});
  const auto length = torch::arange(kAll).mul(3).remainder(6).add(1).unsqueeze(1);
  return {ids, torch::where(torch::arange(6).unsqueeze(0) < length, ids.mul(3).add(1).remainder(7), -100)};
}

Batch masked() {
  const auto rows = numbers();
  return {{"x", rows.input()},
          {"mask", torch::arange(kAll * 3).remainder(4).ne(0).view({kAll, 3})},
          {"y", rows.target(), Role::kTarget}};
}

struct Words : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& ids) { return table(ids); }
  torch::nn::Embedding table = register_module("table", torch::nn::Embedding(7, 7));
};

torch::Tensor squares(Net& net, const Batch& in) { return (net.forward(in.input()) - in.target()).square(); }
torch::Tensor penalty(Net& net) { return net.linear->weight.square().sum(); }

NetFactory<Net> net_with(std::function<Outcome(Net&, const Batch&)> loss) {
  return model_factory<Net>().loss(std::move(loss));
}

// The same loss per pixel, of pixels that count.
NetFactory<Net> masked_net(std::function<torch::Tensor(const Batch&)> weight) {
  return model_factory<Net>()
      .loss([](Net& net, const Batch& in) {
        const auto all = (net.forward(in["x"]) - in["y"]).square() * in["mask"];
        return Outcome{all.sum(), {{all.sum(), in["mask"].sum()}}};
      })
      .metric("error", {.own_weight = true})
      .weight(std::move(weight));
}

// An RMS norm in float32, whatever the input is.
struct FloatNormed : Net {
  torch::Tensor forward(const torch::Tensor& X) {
    const auto x = X.to(torch::kFloat32);
    const auto scale = (x.square().mean(1, /*keepdim=*/true) + 1e-6).rsqrt();
    return Net::forward((x * scale * gain.to(torch::kFloat32)).to(X.scalar_type()));
  }
  torch::Tensor gain = register_parameter("gain", hills({6}, .4) + 1.5);
};

// The rows 3 to 8 are the rows 0 to 2 twice, with an advantage of -.5 instead of 1.
Batch games() {
  const auto numbers = torch::arange(kAll, torch::kInt64);
  const auto all = classes();
  return {{"state", all.input().index_select(0, numbers.remainder(kFirst))},
          {"action", all.target().index_select(0, numbers.remainder(kFirst)), Role::kTarget},
          {"advantage", torch::where(numbers < kFirst, 1., -.5), Role::kTarget}};
}

// The bias is added in float32.
torch::Tensor policy_loss(Net& net, const Batch& in) {
  const auto logits =
      in["state"].matmul(net.linear->weight.t()).to(torch::kFloat32) + net.linear->bias.to(torch::kFloat32);
  const auto each = torch::cross_entropy_loss(logits, in["action"], /*weight=*/{}, at::Reduction::None);
  return (each * in["advantage"].to(torch::kFloat32)).sum().to(torch::kFloat64);
}

template <class Norm>
struct Normed : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& X) { return outer(dropout(norm(inner(X)).relu())); }
  torch::nn::Linear inner = register_module("inner", torch::nn::Linear(6, 8));
  Norm norm = register_module("norm", Norm(8));
  torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout(.5));
  torch::nn::Linear outer = register_module("outer", torch::nn::Linear(8, 3));
};

template <class Norm>
struct Frozen : Normed<Norm> {
  Frozen() { this->norm->eval(); }
};

// In training it subtracts the mean of its batch, without torch's batch norm.
struct Centred : Net {
  torch::Tensor forward(const torch::Tensor& X) {
    const auto all = Net::forward(X);
    return is_training() ? all - all.mean(0) : all;
  }
};

// Divides the gradient by the rows, as if the loss were a mean.
struct MeanBackward : torch::autograd::Function<MeanBackward> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) { return x * 1; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list grad) {
    return {grad[0] / grad[0].size(0)};
  }
};

// Rows that depend on those beside them.
class CentredRows : public RowSource {
 public:
  using RowSource::RowSource;
  void gather(const torch::Tensor& rows, int64_t epoch, Batch& into) const override {
    RowSource::gather(rows, epoch, into);
    into[0] = into[0] - into[0].mean(0);
  }
};

template <class Source>
SourceFactory source_of() {
  return [](torch::Device) { return std::make_shared<Source>(kAll); };
}

// Expected: mean(rows) of the first kRows rows, and the sum of that of their two parts.
std::string means_text(const std::string& name, const Batch& all,
                       const std::function<torch::Tensor(Net&, const Batch&)>& mean) {
  Net net;
  net.to(torch::kFloat64);
  const auto of = [&](int64_t begin, int64_t rows) {
    return mean(net, all.narrow(begin, rows)).item<double>();
  };
  return fmt::format("{} of 9 rows is {:.4g}, of their two parts together {:.4g}", name, of(0, kRows),
                     of(0, kFirst) + of(kFirst, kRows - kFirst));
}

}  // namespace

TEST_CASE("losses that are sums over the rows pass") {
  const auto tokens = model_factory<Words>().loss(token_cross_entropy());
  const struct {
    const char* name;
    ModelFactory factory;
    SourceFactory data;
    BnPolicy bn = BnPolicy::kRoot;
  } cases[] = {
      {"classification", model_factory<Net>(), resident_rows(classes())},
      {"of known classes", model_factory<Net>().loss(classification(3)), resident_rows(classes())},
      {"LeNet", lenet_factory(), source(std::make_shared<RowSource>(kAll))},
      {"mse", model_factory<Net>().loss(mse()), resident_rows(numbers())},
      {"smooth L1", model_factory<Net>().loss(smooth_l1(.3)), resident_rows(numbers())},
      {"tokens", tokens, resident_rows(sentences())},
      {"weighted", masked_net([](const Batch& in) { return in["mask"].sum(); }), resident_rows(masked())},
      {"a mean times the rows",
       net_with([](Net& net, const Batch& in) { return Outcome{squares(net, in).mean() * in.rows()}; }),
       resident_rows(numbers())},
      {"a regulariser per row", net_with([](Net& net, const Batch& in) {
         return Outcome{squares(net, in).sum() + in.rows() * penalty(net)};
       }),
       resident_rows(numbers())},
      {"in float", net_with([](Net& net, const Batch& in) {
         return Outcome{squares(net, in).to(torch::kFloat32).sum()};
       }),
       resident_rows(numbers())},
      {"an RMS norm in float", model_factory<FloatNormed>(), resident_rows(classes())},
      {"a policy gradient whose terms cancel",
       net_with([](Net& net, const Batch& in) { return Outcome{policy_loss(net, in)}; }),
       resident_rows(games())},
      {"dropout", drawing_factory(), source(std::make_shared<RowSource>(kAll))},
      {"rows with noise", two_layers(), source_of<NoisySource>()},
      {"torch's batch norm, left out", model_factory<Normed<torch::nn::BatchNorm1d>>(),
       resident_rows(classes()), BnPolicy::kSync},
      {"lockstep's batch norm", model_factory<Normed<BatchNorm1d>>(), resident_rows(classes()),
       BnPolicy::kSync},
      {"a batch norm in evaluation mode", model_factory<Frozen<torch::nn::BatchNorm1d>>(),
       resident_rows(classes())}};
  for (const auto& [name, factory, data, bn] : cases) {
    for (const int64_t rows : {int64_t{5}, kRows, kAll}) {
      INFO(name << ", " << rows << " rows");
      CHECK(refusal_of<Error>([&, &f = factory, &d = data, b = bn] {
              check_split(f, d, first_rows(rows), b);
            }).empty());
    }
  }
}

TEST_CASE("what depends on the split is refused, with both values and what to do") {
  const auto of_module = [](const std::function<torch::Tensor(Net&, const Batch&)>& weight) -> ModelFactory {
    return [weight] {
      auto model = net_with([](Net& net, const Batch& in) { return Outcome{squares(net, in).sum()}; })();
      model.weight = [weight, net = model.module](const Batch& in) {
        const torch::NoGradGuard no_grad;
        return weight(*net->as<Net>(), in);
      };
      return model;
    };
  };
  const auto numbers_with = [](std::function<Outcome(Net&, const Batch&)> loss) {
    return net_with(std::move(loss)).metric("m");
  };
  const auto plain = resident_rows(numbers());
  const auto mean = [](Net& net, const Batch& in) { return squares(net, in).mean(); };
  const auto constant = [](Net& net, const Batch& in) { return squares(net, in).sum() + penalty(net); };
  const struct {
    const char* name;
    ModelFactory factory;
    SourceFactory data;
    std::string what;  // the message begins with it
    const char* then;  // and has that
    const char* hint;
    BnPolicy bn = BnPolicy::kRoot;
  } cases[] = {
      {"a mean", net_with([&](Net& net, const Batch& in) { return Outcome{mean(net, in)}; }), plain,
       means_text("the loss", numbers(), mean), ": it seems to be a mean", "at::Reduction::Sum"},
      {"a mean over tokens", model_factory<Words>().loss([](Words& net, const Batch& in) {
         return F::cross_entropy(net.forward(in.input()).flatten(0, 1), in.target().flatten());
       }),
       resident_rows(sentences()), "the loss of 9 rows is ", ": it seems to be a mean", ".weight()"},
      {"a regulariser once", net_with([&](Net& net, const Batch& in) { return Outcome{constant(net, in)}; }),
       plain, means_text("the loss", numbers(), constant), "", "in.rows()"},
      {"a metric that is a mean", numbers_with([&](Net& net, const Batch& in) {
         return Outcome{squares(net, in).sum(), {mean(net, in)}};
       }),
       plain, means_text("the metric m", numbers(), mean), ": it seems to be a mean", "own_weight"},
      {"a metric's weight that is none of the rows",
       net_with([&](Net& net, const Batch& in) {
         return Outcome{squares(net, in).sum(), {{squares(net, in).sum(), torch::ones({})}}};
       }).metric("m", {.own_weight = true}),
       plain, "the weight of the metric m of 9 rows is 1, of their two parts together 2", "", "own_weight"},
      {"a weight that is a mean",
       masked_net([](const Batch& in) { return in["mask"].to(torch::kFloat64).mean(); }),
       resident_rows(masked()), "the weight of the loss of 9 rows is ", ": it seems to be a mean",
       "in[\"mask\"].sum()"},
      {"a weight of the parameters",
       of_module([](Net& net, const Batch& in) { return net.forward(in.input()).square().sum(); }), plain,
       "the weight of the loss of 9 rows is ", " with other parameters", "batch alone"},
      {"a backward pass that knows the rows", net_with([](Net& net, const Batch& in) {
         return Outcome{(MeanBackward::apply(net.forward(in.input())) - in.target()).square().sum()};
       }),
       plain, "the loss's gradient in linear.weight of 9 rows is ", "parts together", "backward pass"},
      {"torch's batch norm", model_factory<Normed<torch::nn::BatchNorm1d>>(), resident_rows(classes()),
       "in training mode batch norm norm has the statistics of each replica's rows: the loss of 9 rows is ",
       "parts together", "BnPolicy::kSync"},
      {"lockstep's batch norm", model_factory<Normed<BatchNorm1d>>(), resident_rows(classes()),
       "in training mode batch norm norm has the statistics", "parts together", "check_split()"},
      {"a mean of no rows",
       model_factory<Normed<BatchNorm1d>>().loss([](Normed<BatchNorm1d>& net, const Batch& in) {
         return F::cross_entropy(net.forward(in.input()), in.target()) * in.rows();
       }),
       resident_rows(classes()), "the loss of 0 rows is nan", "", "NaN", BnPolicy::kSync},
      {"a layer that knows its batch", model_factory<Centred>().loss(mse()), plain,
       "in training mode, but not in evaluation mode, the loss of 9 rows is ", "parts together", "own rows"},
      {"draws in evaluation", drawing_factory(/*also_in_evaluation=*/true), source_of<RowSource>(),
       "the model draws random numbers in evaluation mode, too", "cannot be compared", "is_training()"},
      {"rows that depend on others", two_layers(), source_of<CentredRows>(), "the loss of 9 rows is ",
       "parts together", "depend on the others"},
      {"not finite", net_with([](Net& net, const Batch& in) {
         return Outcome{squares(net, in).sum() * std::numeric_limits<double>::infinity()};
       }),
       plain, "the loss of 9 rows is inf, of their two parts together inf", "", "finite"}};
  for (const auto& [name, factory, data, what, then, hint, bn] : cases) {
    INFO(name);
    const auto in_each = in_processes({1, 1}, {}, [&, &f = factory, &d = data, b = bn](int, const auto&) {
      return refusal_and_hint([&] { check_split(f, d, first_rows(kRows), b); });
    });
    CHECK_THAT(in_each[0], StartsWith(what));
    CHECK_THAT(in_each[0], ContainsSubstring(then));
    CHECK_THAT(in_each[0].substr(in_each[0].find(" | ")), ContainsSubstring(hint));
    CHECK(in_each[1] == in_each[0]);
  }
}

TEST_CASE("a check that cannot be made says why") {
  const auto data = resident_rows(numbers());
  const auto shaped = net_with([](Net& net, const Batch& in) { return Outcome{squares(net, in)}; });
  const auto throws = net_with([](Net&, const Batch&) -> Outcome { throw Mishap("my layer"); });
  const auto usual = model_factory<Net>().loss(mse());
  const struct {
    ModelFactory factory;
    SourceFactory data;
    Rows rows;
    ExitCode code;
    const char* what;
  } cases[] = {
      {usual, data, first_rows(4), ExitCode::kUsage, "a check of 4 rows"},
      {usual,
       data,
       {0, 1, 2, 3, kAll},
       ExitCode::kData,
       "row 20 does not exist: the data set has rows 0 to 19"},
      {{}, data, first_rows(5), ExitCode::kUsage, "the model factory is empty"},
      {usual, {}, first_rows(5), ExitCode::kUsage, "the factory of the training set is empty"},
      {shaped, data, first_rows(5), ExitCode::kUsage,
       "check_split: in the passes of 5 rows: the outcome's loss has the shape [5, 3] instead of []"},
      {throws, data, first_rows(5), ExitCode::kFailed, "check_split: in the passes of 5 rows: my layer"}};
  for (const auto& [factory, source, rows, code, what] : cases) {
    INFO(what);
    try {
      check_split(factory, source, rows);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.message() == what);
      CHECK(error.exit_code() == code);
    }
  }
}

TEST_CASE("a check changes neither torch's generator nor a trainer beside it") {
  const auto data = resident_rows(classes());
  const auto factory = model_factory<Normed<torch::nn::BatchNorm1d>>();
  const auto trained = [&](bool checks) {
    torch::manual_seed(7);
    Trainer trainer(factory, data, data, options_for(2));
    for (int step = 0; step < 3; ++step) {
      const auto before = at::detail::getDefaultCPUGenerator().get_state();
      if (checks) {
        check_split(factory, data, first_rows(kRows), BnPolicy::kSync);
        CHECK_THROWS_AS(check_split(factory, data, first_rows(kRows)), UsageError);
      }
      CHECK(at::detail::getDefaultCPUGenerator().get_state().equal(before));
      trainer.step(first_rows(kAll));
    }
    return trainer.weights();
  };
  check_same_tensors(trained(true), trained(false));
}
