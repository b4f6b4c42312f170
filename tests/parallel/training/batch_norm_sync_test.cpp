// BnPolicy::kSync: any number of replicas computes what torch computes on the whole batch.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/tests/catch.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/models/batch_norm.h>
#include <lockstep/models/resnet18.h>
#include <lockstep/parallel/batch_norm_sync.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/classification.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/collectives/gloo/joined.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/mishap.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// Batch norms of every rank, in the order of backward. looks: called between the first two of them.
class NormsImpl : public torch::nn::Module {
 public:
  explicit NormsImpl(std::function<void(const torch::Tensor&)> looks = {})
      : conv_(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 5).stride(4)))),
        norm2_(register_module("norm2", BatchNorm2d(4))),
        norm3_(register_module("norm3", BatchNorm3d(torch::nn::BatchNormOptions(2).momentum(std::nullopt)))),
        inner_(register_module("inner", torch::nn::Linear(144, 8))),
        norm1_(register_module("norm1", BatchNorm1d(8))),
        outer_(register_module("outer", torch::nn::Linear(8, 10))),
        looks_(std::move(looks)) {
    const torch::NoGradGuard no_grad;
    double phase = 0;
    for (auto& param : parameters()) {  // the same whenever it is built
      const auto numbers = torch::arange(param.numel(), torch::kFloat32).mul(.7).add(++phase).sin();
      param.copy_(numbers.mul(.3).add(param.dim() == 1 ? .5 : 0).view_as(param));
    }
  }

  torch::Tensor forward(const torch::Tensor& X) {
    auto h = norm2_(conv_(X)).relu();  // (n, 4, 6, 6)
    if (looks_) looks_(h);
    h = norm3_(h.view({-1, 2, 2, 6, 6})).relu();
    return outer_(norm1_(inner_(h.flatten(1))).relu());
  }

 private:
  torch::nn::Conv2d conv_;
  BatchNorm2d norm2_;
  BatchNorm3d norm3_;
  torch::nn::Linear inner_;
  BatchNorm1d norm1_;
  torch::nn::Linear outer_;
  const std::function<void(const torch::Tensor&)> looks_;
};

ModelFactory norms() { return model_factory<NormsImpl>(); }

ModelFactory residual(int64_t width = 4, torch::ScalarType type = torch::kFloat64) {
  ResNet18Options options;
  options.width = width;
  options.dtype = type;
  options.initialization = Initialization::kTorch;
  return model_factory<ResNet18Impl>(options);
}

TrainerOptions options_of(int world, BnPolicy policy = BnPolicy::kSync) {
  TrainerOptions options;
  options.devices.assign(static_cast<size_t>(world), torch::kCPU);
  options.lr = {.lr = 1};
  options.bn = policy;
  options.check_sync = 1;  // of the statistics, too
  options.replica.precision = Precision::kFp64;
  return options;
}

// By name: minus the gradients of parameters, as a step with a rate of 1 leaves them, and buffers.
using Tensors = std::vector<NamedTensor>;

Tensors start_of(const ModelFactory& factory) {
  Tensors tensors;
  const auto model = factory();
  for (const auto& item : model.module->named_parameters())
    tensors.push_back({item.key(), item.value().detach()});
  return tensors;
}

// What torch computes for the whole batch, in one module, with these numbers of rows per micro-batch.
struct Expected {
  Tensors gradients;
  Tensors buffers;
};

Expected whole_batch(const ModelFactory& factory, const Batch& batch, int micro_batches = 1) {
  const RowSource rows(32);
  const auto model = factory();
  model.module->to(torch::kFloat64);
  for (auto& buffer : model.module->named_buffers()) {  // which to() has converted, too
    if (buffer.key().ends_with("tracked")) buffer.value().set_data(buffer.value().to(torch::kInt64));
  }
  const auto n = static_cast<int64_t>(batch.size());
  auto next = batch.begin();
  for (const auto size : shard_sizes(n, micro_batches)) {
    if (size == 0) continue;
    const auto part = rows.batch(Batch(next, next + size));
    next += size;
    (model.loss_sum({part.X.to(torch::kFloat64), part.y}).loss / n).backward();
  }
  Expected expected;
  for (const auto& item : model.module->named_parameters())
    expected.gradients.push_back({item.key(), item.value().grad()});
  for (const auto& item : model.module->named_buffers())
    expected.buffers.push_back({item.key(), item.value()});
  return expected;
}

// One step of a trainer, from the model's own weights.
Tensors stepped(const ModelFactory& factory, const TrainerOptions& options, const Batch& batch) {
  const auto rows = source(std::make_shared<RowSource>(32));
  Trainer trainer(factory, rows, rows, options);
  trainer.step(batch);
  return trainer.weights(trainer.local_size() - 1);
}

const torch::Tensor& named(const Tensors& tensors, const std::string& name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& item) { return item.name == name; });
  if (found == tensors.end()) throw std::logic_error("no tensor " + name);
  return found->tensor;
}

// The largest max|d| / max|g| over the parameters, and max|d| where the true gradient is 0: of biases before
// a norm, whose gradients are rounding alone.
double gradient_error(const ModelFactory& factory, const Tensors& after, const Expected& expected) {
  double largest = 0;
  for (const auto& [name, before] : start_of(factory)) {
    const auto found = before.to(torch::kFloat64) - named(after, name);
    const auto& gradient = named(expected.gradients, name);
    const double scale = max_abs(gradient) < 1e-12 ? 1 : max_abs(gradient);
    largest = std::max(largest, max_difference(found, gradient) / scale);
  }
  return largest;
}

double buffer_error(const Tensors& after, const Expected& expected) {
  double largest = 0;
  for (const auto& [name, buffer] : expected.buffers) {
    INFO(name);
    CHECK(named(after, name).is_floating_point() == buffer.is_floating_point());
    largest = std::max(largest, max_difference(named(after, name), buffer) / max_abs(buffer));
  }
  return largest;
}

void check_step(const ModelFactory& factory, const TrainerOptions& options, const Batch& batch) {
  INFO(options.devices.size() << " replicas, " << batch.size() << " rows, " << options.accumulate
                              << " micro-batches, split of " << options.split.size());
  const auto after = stepped(factory, options, batch);
  const auto expected = whole_batch(factory, batch, options.accumulate);
  CHECK(gradient_error(factory, after, expected) <= 1e-10);
  CHECK(buffer_error(after, expected) <= 1e-12);
}

}  // namespace

// Rank 0 has 1, 2 and 3, rank 1 has 10, rank 2 no row: the mean is 4, the sum of squares about it 50.
TEST_CASE(
    "statistics of uneven shards are merged, forward and backward, with the numbers calculated by hand") {
  const std::vector<torch::Device> devices(3, torch::kCPU);
  const std::vector<std::vector<double>> values = {{1, 2, 3}, {10}, {}}, dys = {{1, 0, 0}, {2}, {}};
  ReplicaWorkers workers(devices, 1);
  const auto communicator = make_communicator({.devices = devices});
  std::vector<BatchNorm1d> layers;
  for (int i = 0; i < 3; ++i) {
    layers.emplace_back(torch::nn::BatchNormOptions(1).eps(0));
    layers.back()->to(torch::kFloat64);
    const torch::NoGradGuard no_grad;
    layers.back()->weight.fill_(2);
    layers.back()->bias.fill_(.5);
  }
  std::vector<torch::Tensor> ys(3), dxs(3);
  workers.run(*communicator, [&](int local, Endpoint& endpoint) {
    const auto i = static_cast<size_t>(local);
    const auto column = [](const auto& list) { return torch::tensor(list, torch::kFloat64).view({-1, 1}); };
    const BatchNormSync sync(*layers[i], endpoint);
    const auto x = column(values[i]).requires_grad_();
    ys[i] = layers[i]->forward(x);
    ys[i].backward(column(dys[i]));
    dxs[i] = x.grad();
  });
  const double deviation = std::sqrt(12.5);  // 50 / 4
  // dy sums to 3, dy x_hat to (-3 + 2 x 6) / deviation = 9 / deviation.
  const auto dx = [&](double x, double dy) { return 2 / deviation * (dy - 3. / 4 - (x - 4) / 12.5 * 9 / 4); };
  for (size_t i = 0; i < 3; ++i) {
    const auto& layer = *layers[i];
    REQUIRE(ys[i].size(0) == static_cast<int64_t>(values[i].size()));
    for (int64_t row = 0; row < ys[i].size(0); ++row) {
      const double x = values[i][static_cast<size_t>(row)], dy = dys[i][static_cast<size_t>(row)];
      CHECK(ys[i][row].item<double>() == Approx((x - 4) / deviation * 2 + .5));
      CHECK(dxs[i][row].item<double>() == Approx(dx(x, dy)));
    }
    CHECK(layer.running_mean.item<double>() == Approx(.4));
    CHECK(layer.running_var.item<double>() == Approx(.9 + .1 * 50 / 3));
    CHECK(layer.running_var.equal(layers[0]->running_var));
    CHECK(layer.num_batches_tracked.item<int64_t>() == 1);
    CHECK(layer.exchange() == nullptr);
  }
  // Sums over each replica's own rows.
  const std::vector<double> dweights = {-3 / deviation, 12 / deviation, 0}, dbiases = {1, 2, 0};
  for (size_t i = 0; i < 3; ++i) {
    CHECK(layers[i]->weight.grad().item<double>() == Approx(dweights[i]));
    CHECK(layers[i]->bias.grad().item<double>() == Approx(dbiases[i]));
  }
}

TEST_CASE(
    "with bn sync a step of 1 to 4 replicas is torch's of the whole batch, uneven and empty shards too") {
  const int world = GENERATE(1, 2, 3, 4);
  for (const int64_t rows : {16, 9, 3}) check_step(norms(), options_of(world), first_rows(rows));
  auto options = options_of(world);
  options.split = {1, 5, 0, 2};
  options.split.resize(static_cast<size_t>(world));
  check_step(norms(), options, {31, 4, 15, 9, 26, 5, 3, 7, 2});
}

TEST_CASE("with bn sync micro-batches hold the same rows for any number of replicas") {
  const int world = GENERATE(1, 2, 3, 4);
  auto options = options_of(world);
  options.accumulate = 3;
  for (const int64_t rows : {16, 7}) check_step(norms(), options, first_rows(rows));
}

TEST_CASE(
    "with bn sync ResNet-18 takes the step of the whole batch, and with the other policies it does not") {
  const auto batch = first_rows(GENERATE(7, 3));
  const auto expected = whole_batch(residual(), batch);
  for (const int world : {2, 4}) {
    const auto after = stepped(residual(), options_of(world), batch);
    CHECK(gradient_error(residual(), after, expected) <= 1e-10);
    CHECK(buffer_error(after, expected) <= 1e-12);
  }
  for (const auto policy : {BnPolicy::kRoot, BnPolicy::kAverage}) {
    const auto after = stepped(residual(), options_of(2, policy), batch);
    CHECK(gradient_error(residual(), after, expected) > 1e-3);
    CHECK(buffer_error(after, expected) > 1e-3);
  }
}

// A replica without rows computes by torch's operations, and its running statistics have the others' bits. In
// bf16 rounding alone changes a gradient by half.
TEST_CASE("with bn sync lockstep's kernels take the step of the whole batch, too") {
  const auto precision = GENERATE(Precision::kFp32, Precision::kBf16);
  const auto batch = first_rows(GENERATE(7, 3));
  const auto factory = residual(16, torch::kFloat32);
  const auto expected = whole_batch(residual(16), batch);
  const auto step = [&](TrainerOptions options) {
    options.replica.precision = precision;
    return stepped(factory, options, batch);
  };
  const bool fp32 = precision == Precision::kFp32;
  for (const int world : {2, 4}) {
    INFO(world << " replicas, " << batch.size() << " rows, " << name_of(kPrecisionNames, precision));
    const auto after = step(options_of(world));
    if (fp32) CHECK(gradient_error(factory, after, expected) <= 1e-4);
    CHECK(buffer_error(after, expected) <= (fp32 ? 1e-5 : .02));
    CHECK(named(after, "0.bias").equal(named(start_of(factory), "0.bias")));  // which the kernels leave out
  }
  const auto alone = step(options_of(2, BnPolicy::kRoot));
  if (fp32) CHECK(gradient_error(factory, alone, expected) > .1);
  CHECK(buffer_error(alone, expected) > .05);
}

TEST_CASE("with bn sync replicas in several processes take the step of the whole batch") {
  const auto batch = first_rows(9);
  const auto expected = whole_batch(norms(), batch);
  for (const auto& layout : std::vector<Layout>{{1, 1}, {2, 1}, {1, 3}}) {
    const auto found = in_processes(
        layout, options_of(1), [&](int, const TrainerOptions& own) { return stepped(norms(), own, batch); });
    for (const auto& after : found) {
      INFO(text_of(layout));
      CHECK(gradient_error(norms(), after, expected) <= 1e-10);
      CHECK(buffer_error(after, expected) <= 1e-12);
    }
  }
}

TEST_CASE("with bn sync two processes take the step of the whole batch over Gloo") {
  const auto batch = first_rows(5);
  const auto expected = whole_batch(norms(), batch);
  std::vector<Tensors> found(2);
  for (const auto& error : run_worlds(worlds_of(2), [&](int process, Processes&processes) {
         auto options = options_of(1);
         options.processes = std::shared_ptr<Processes>(&processes, [](Processes*) {});
         found[static_cast<size_t>(process)] = stepped(norms(), options, batch);
       })) {
    if (error) std::rethrow_exception(error);
  }
  for (const auto& after : found) {
    CHECK(gradient_error(norms(), after, expected) <= 1e-10);
    CHECK(buffer_error(after, expected) <= 1e-12);
  }
}

TEST_CASE("with bn sync a state goes on with any number of replicas as if nothing had changed") {
  const auto rows = source(std::make_shared<RowSource>(32));
  const std::vector<Batch> batches = {first_rows(8), {31, 4, 15, 9, 26}, {3, 1, 4, 0, 5, 9, 2}};
  const auto rate = [](TrainerOptions options) {
    options.lr = {.lr = .1};
    return options;
  };
  Trainer alone(norms(), rows, rows, rate(options_of(1)));
  Trainer two(norms(), rows, rows, rate(options_of(2)));
  for (size_t i = 0; i < 2; ++i) {
    alone.step(batches[i]);
    two.step(batches[i]);
  }
  Trainer three(norms(), rows, rows, rate(options_of(3)));
  three.load(two.state());
  alone.step(batches[2]);
  three.step(batches[2]);
  const auto expected = alone.weights(), found = three.weights(2);
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO(expected[i].name);
    CHECK(max_difference(found[i].tensor, expected[i].tensor) <= 1e-11);
  }
  CHECK(three.evaluate().loss_sum == Approx(alone.evaluate().loss_sum).epsilon(1e-9));
}

TEST_CASE("an error between two batch norms, or in backward, ends the other replicas' wait for statistics") {
  const bool backward = GENERATE(false, true);
  const auto thrower = [=](const torch::Tensor& h) {
    if (h.size(0) != 3) return;  // of three replicas only rank 0 has three rows
    if (!backward) throw Mishap("in a replica");
    h.register_hook([](const torch::Tensor&) { throw Mishap("in a replica"); });
  };
  const auto rows = source(std::make_shared<RowSource>(32));
  Trainer trainer(model_factory<NormsImpl>(thrower), rows, rows, options_of(3));
  trainer.step(first_rows(6));
  CHECK_THROWS_WITH(trainer.step(first_rows(7)), "in a replica");
  CHECK_THROWS_WITH(trainer.step(first_rows(6)), "in a replica");
}

TEST_CASE("an error in one process ends the other's wait for statistics") {
  const auto errors = in_processes({1, 2}, options_of(1), [](int, const TrainerOptions& own) -> std::string {
    const auto thrower = [](const torch::Tensor& h) {
      if (h.size(0) == 3) throw Mishap("in a replica");
    };
    const auto rows = source(std::make_shared<RowSource>(32));
    try {
      Trainer trainer(model_factory<NormsImpl>(thrower), rows, rows, own);
      trainer.step(first_rows(7));  // rank 0 has three rows
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  });
  CHECK(errors[0] == "in a replica");
  CHECK_THAT(errors[1], ContainsSubstring("process 0 left"));
}

TEST_CASE("with bn sync torch's own batch norms are refused by name, with any number of replicas") {
  struct OwnNorm : torch::nn::Module {
    OwnNorm() {
      features = register_module(
          "features",
          torch::nn::Sequential(torch::nn::Linear(784, 10), BatchNorm1d(10), torch::nn::BatchNorm1d(10)));
    }
    torch::Tensor forward(const torch::Tensor& X) { return features->forward(X.flatten(1)); }
    torch::nn::Sequential features = nullptr;
  };
  const int world = GENERATE(1, 2);
  try {
    stepped(model_factory<OwnNorm>(), options_of(world), first_rows(4));
    FAIL("it was not refused");
  } catch (const UsageError& error) {
    CHECK_THAT(error.what(), ContainsSubstring("features.2") && ContainsSubstring("torch's own"));
    CHECK_THAT(error.hint(), ContainsSubstring("lockstep::BatchNorm1d"));
  }
  CHECK_NOTHROW(stepped(model_factory<OwnNorm>(), options_of(world, BnPolicy::kRoot), first_rows(4)));
}

TEST_CASE("with bn sync a model without batch norms trains as ever, on fewer rows than replicas too") {
  struct Plain : torch::nn::Module {
    Plain() { linear = register_module("linear", torch::nn::Linear(784, 10)); }
    torch::Tensor forward(const torch::Tensor& X) {
      if (X.size(0) == 0) throw Mishap("it cannot take 0 rows");
      return linear(X.flatten(1));
    }
    torch::nn::Linear linear = nullptr;
  };
  CHECK_NOTHROW(stepped(model_factory<Plain>(), options_of(3), first_rows(2)));
}
