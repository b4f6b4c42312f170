#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include <lockstep/tests/catch.h>

#include <lockstep/models/resnet18.h>
#include <lockstep/parallel/batch_norm/norms.h>
#include <lockstep/parallel/batch_norm/shared_buffers.h>
#include <lockstep/parallel/replica_workers.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

struct Buffers : torch::nn::Module {
  explicit Buffers(int rank) {
    mean = register_buffer("mean", torch::tensor({1.f, 10.f}) * (rank + 1));
    count = register_buffer("count", torch::tensor(100 + rank));
  }
  torch::Tensor mean, count;
};

ModelFactory residual(int64_t width) {
  ResNet18Options options;
  options.width = width;
  options.dtype = torch::kFloat64;
  options.initialization = Initialization::kTorch;
  return model_factory<ResNet18Impl>(options);
}

TrainerOptions in_double(int world) {
  TrainerOptions options;
  options.devices.assign(static_cast<size_t>(world), torch::kCPU);
  options.lr = {.lr = .1};
  options.replica.precision = Precision::kFp64;
  return options;
}

}  // namespace

TEST_CASE(
    "shared buffers are the root's or the mean by rows, and afterwards each replica has its own again") {
  const auto policy = GENERATE(BnPolicy::kRoot, BnPolicy::kAverage);
  const bool any_rows = GENERATE(true, false);
  const std::vector<torch::Device> devices(3, torch::kCPU);
  ReplicaWorkers workers(devices, 1);
  const auto communicator = make_communicator({.devices = devices});
  const std::vector<int64_t> rows = any_rows ? std::vector<int64_t>{6, 0, 2} : std::vector<int64_t>{0, 0, 0};
  std::vector<Params> during(3), after(3);
  workers.run([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    Buffers module(rank);
    {
      const SharedBuffers shared(module, communicator->endpoint(rank), policy, rows[r]);
      during[r] = {module.mean.clone(), module.count.clone()};
    }
    after[r] = {module.mean.clone(), module.count.clone()};
  });
  // Ranks hold 1, 2 and 3 times (1, 10): (6 x 1 + 2 x 3) / 8 = 1.5, or (1 + 2 + 3) / 3 = 2.
  const float mean = policy == BnPolicy::kRoot ? 1 : any_rows ? 1.5f : 2;
  for (size_t r = 0; r < 3; ++r) {
    CHECK(max_difference(during[r][0], torch::tensor({mean, 10 * mean})) <= 1e-6);
    CHECK(during[r][0].equal(during[0][0]));
    CHECK(during[r][1].item<int64_t>() == 100);
    CHECK(after[r][0].equal(torch::tensor({1.f, 10.f}) * static_cast<int>(r + 1)));
    CHECK(after[r][1].item<int64_t>() == static_cast<int64_t>(100 + r));
  }
}

// Each half is normalised with its own statistics, the gradients are added, and each replica's running
// averages are those of its half. LibTorch's data_parallel loses them (pytorch/pytorch#21144).
TEST_CASE("two replicas with batch norm match two halves computed by hand, with either policy") {
  const auto policy = GENERATE(BnPolicy::kRoot, BnPolicy::kAverage);
  const auto rows = std::make_shared<RowSource>(12);
  auto options = in_double(2);
  options.bn = policy;
  Trainer trainer(residual(8), source(rows), source(rows), options);

  std::vector<Model> halves = {residual(8)(), residual(8)()};
  torch::optim::SGD sgd(halves[0].module->parameters(), torch::optim::SGDOptions(.1));
  // 12 rows: 6 and 6; 9 rows: 5 and 4.
  const std::vector<std::vector<int64_t>> batches = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
                                                     {3, 1, 4, 0, 5, 9, 2, 6, 8}};
  for (const auto& batch : batches) {
    trainer.step(batch);
    sgd.zero_grad();
    const auto n = static_cast<int64_t>(batch.size()), first = (n + 1) / 2;
    const auto all = in_precision(rows->batch(batch), Precision::kFp64);
    (halves[0].loss_sum(all.narrow(0, first)).loss / n).backward();
    (halves[1].loss_sum(all.narrow(first, n - first)).loss / n).backward();
    const torch::NoGradGuard no_grad;
    const auto params = halves[0].module->parameters(), others = halves[1].module->parameters();
    for (size_t i = 0; i < params.size(); ++i) params[i].mutable_grad().add_(others[i].grad());
    sgd.step();
    for (size_t i = 0; i < params.size(); ++i) {
      others[i].copy_(params[i]);
      others[i].mutable_grad().zero_();
    }
  }

  const auto weights = trainer.weights(1);
  const auto params = halves[0].module->named_parameters();
  for (const auto& [name, tensor] : weights) {
    INFO(name);
    if (const auto* param = params.find(name)) {
      // An absolute bound for biases before a batch norm, whose true gradient is zero.
      CHECK(max_difference(tensor, *param) <= 1e-10 * max_abs(*param) + 1e-12);
      continue;
    }
    const auto a = halves[0].module->named_buffers()[name], b = halves[1].module->named_buffers()[name];
    if (!a.is_floating_point()) {
      CHECK(tensor.item<int64_t>() == 2);
      continue;
    }
    // By rows: 6 + 5 against 6 + 4.
    const auto expected = policy == BnPolicy::kRoot ? a : (11 * a + 10 * b) / 21;
    CHECK(max_difference(tensor, expected) <= 1e-10 * max_abs(expected));
    CHECK(max_difference(a, b) > 1e-6);  // the halves do differ
  }
}

TEST_CASE("after a stopped evaluation each replica has its own statistics again") {
  const auto rows = std::make_shared<RowSource>(12);
  Trainer trainer(residual(8), source(rows), source(rows), in_double(2));
  trainer.step(std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  const auto mean = trainer.model(1).module->named_buffers()["1.running_mean"];
  trainer.synchronize();
  const auto own = mean.clone();
  bool shared = false;
  const auto stop = [&](int64_t, int64_t) {
    shared = !mean.equal(own);
    throw std::runtime_error("enough");
  };
  CHECK_THROWS_WITH(trainer.evaluate(stop), "enough");
  CHECK(shared);
  CHECK(mean.equal(own));
}

TEST_CASE("batch norms that are set to eval() stay so in every step, also after an evaluation") {
  const int world = GENERATE(1, 2);
  const bool invariant = GENERATE(false, true);
  const bool by_factory = GENERATE(true, false);
  INFO(world << " replicas" << (invariant ? ", invariant" : "") << (by_factory ? ", by the factory" : ""));
  const auto rows = std::make_shared<RowSource>(12);
  const auto freeze = [](torch::nn::Module& module) {
    for (const auto& part : module.modules()) {
      if (is_batch_norm(*part)) part->eval();
    }
    for (auto& item : module.named_buffers()) {
      if (item.key().ends_with("running_mean")) item.value().fill_(.25);
    }
  };
  const ModelFactory frozen = [&] {
    auto model = residual(8)();
    freeze(*model.module);
    return model;
  };
  auto options = in_double(world);
  options.replica.invariant = invariant;
  Trainer trainer(by_factory ? frozen : residual(8), source(rows), source(rows), options);
  for (int local = 0; local < world && !by_factory; ++local) freeze(*trainer.model(local).module);
  WholeBatch whole(frozen, torch::optim::SGDOptions(.1));
  const std::vector<int64_t> batch = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  for (int step = 0; step < 3; ++step) {
    trainer.step(batch);
    trainer.evaluate();
    whole.step(rows->batch(batch));
  }
  const auto params = whole.module().named_parameters(), buffers = whole.module().named_buffers();
  for (const auto& [name, tensor] : trainer.weights(world - 1)) {
    INFO(name);
    const auto* buffer = buffers.find(name);
    if (buffer) CHECK(tensor.equal(*buffer));
    if (!buffer) CHECK(max_difference(tensor, params[name]) <= 1e-10 * max_abs(params[name]) + 1e-12);
  }
}

TEST_CASE("a whole model in eval mode is set to training when a trainer takes it") {
  const auto rows = std::make_shared<RowSource>(12);
  const ModelFactory factory = [] {
    auto model = residual(8)();
    model.module->eval();
    return model;
  };
  Trainer trainer(factory, source(rows), source(rows), in_double(1));
  trainer.step(std::vector<int64_t>{0, 1, 2, 3});
  CHECK(trainer.model(0).module->named_buffers()["1.num_batches_tracked"].item<int64_t>() == 1);
}

TEST_CASE("one replica with batch norm matches plain torch, and evaluation uses the running averages") {
  const auto rows = std::make_shared<RowSource>(12);
  Trainer trainer(residual(8), source(rows), source(rows), in_double(1));
  WholeBatch whole(residual(8), torch::optim::SGDOptions(.1));
  const std::vector<int64_t> batch = {0, 1, 2, 3, 4, 5, 6};
  for (int step = 0; step < 3; ++step) {
    trainer.step(batch);
    whole.step(rows->batch(batch));
  }
  const auto params = whole.module().named_parameters();
  for (const auto& [name, tensor] : trainer.weights()) {
    INFO(name);
    const auto* param = params.find(name);
    const auto expected = param ? *param : whole.module().named_buffers()[name];
    CHECK(max_difference(tensor, expected) <= 1e-10 * max_abs(expected) + 1e-12);
  }
}
