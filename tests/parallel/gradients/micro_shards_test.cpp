// Invariant training: the number of replicas does not change a bit of the result.
#include <lockstep/tests/catch.h>
#include <numeric>

#include <lockstep/models/lenet.h>
#include <lockstep/models/resnet18.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/error.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

Trainer trainer_of(const ModelFactory& factory, int world, bool invariant, std::shared_ptr<RowSource> rows,
                   Precision precision = Precision::kFp32) {
  TrainerOptions options;
  options.devices = std::vector<torch::Device>(static_cast<size_t>(world), torch::kCPU);
  options.threads = 1;
  options.lr = {.lr = .1};
  options.replica.invariant = invariant;
  options.replica.precision = precision;
  options.replica.optimizer.momentum = .9;
  options.replica.clip_norm = 1;
  return Trainer(factory, source(rows), source(rows), options);
}

// The weights after `steps` batches of 67 rows and one ragged batch of 5, which leaves micro-shards empty.
std::vector<NamedTensor> trained(const ModelFactory& factory, int world, bool invariant, int steps) {
  const auto rows = std::make_shared<RowSource>(134);
  auto trainer = trainer_of(factory, world, invariant, rows);
  std::vector<int64_t> order(134);
  std::iota(order.begin(), order.end(), 0);
  for (int step = 0; step + 1 < steps; ++step) {
    trainer.step(std::span(order).subspan(step % 2 == 0 ? 0 : 67, 67));
  }
  trainer.step(std::span(order).first(5));
  return trainer.weights(world - 1);
}

int differing(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  int count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += !a[i].tensor.equal(b[i].tensor);
  return count;
}

ModelFactory residual() {
  ResNet18Options options;
  options.width = 8;
  options.initialization = Initialization::kTorch;
  return model_factory<ResNet18Impl>(options);
}

}  // namespace

TEST_CASE("invariant: 1, 2, 4 and 8 replicas give bitwise the same LeNet after 20 steps") {
  const auto factory = model_factory<LeNetImpl>(uint64_t{0}, torch::kFloat32);
  const auto alone = trained(factory, 1, true, 20);
  for (const int world : {2, 4, 8}) {
    INFO(world << " replicas");
    CHECK(differing(trained(factory, world, true, 20), alone) == 0);
  }
  // The comparison notices a difference: without `invariant` there is one.
  CHECK(differing(trained(factory, 2, false, 20), trained(factory, 1, false, 20)) > 0);
}

TEST_CASE("invariant: batch-norm statistics do not depend on the number of replicas") {
  const auto alone = trained(residual(), 1, true, 3);
  for (const int world : {2, 8}) {
    INFO(world << " replicas");
    CHECK(differing(trained(residual(), world, true, 3), alone) == 0);
  }
}

TEST_CASE("an invariant step is the same as the whole batch's step") {
  const auto rows = std::make_shared<RowSource>(67);
  auto trainer =
      trainer_of(model_factory<LeNetImpl>(uint64_t{0}, torch::kFloat32), 2, true, rows, Precision::kFp64);
  WholeBatch whole(model_factory<LeNetImpl>(uint64_t{0}, torch::kFloat32), torch::optim::SGDOptions(.1));
  std::vector<int64_t> batch(67);
  std::iota(batch.begin(), batch.end(), 0);
  trainer.step(batch);
  const auto gradients = whole.step(rows->batch(batch));
  const auto weights = trainer.weights();
  for (size_t i = 0; i < gradients.size(); ++i) {
    INFO(weights[i].name);
    CHECK(max_difference(weights[i].tensor, whole.module().parameters()[i]) <=
          1e-10 * .1 * max_abs(gradients[i]) + 1e-17);
  }
}

// Compares the running averages with those of a batch norm that sees one micro-shard after the other.
TEST_CASE("invariant: running averages take the micro-shards in order") {
  const auto rows = std::make_shared<RowSource>(20);
  ResNet18Options options;
  options.width = 8;
  options.dtype = torch::kFloat64;
  const auto factory = model_factory<ResNet18Impl>(options);
  auto trainer = trainer_of(factory, 4, true, rows, Precision::kFp64);
  std::vector<int64_t> batch(20);
  std::iota(batch.begin(), batch.end(), 0);
  trainer.step(batch);

  auto by_hand = factory();  // plain torch, micro-shards of 3, 3, 3, 3, 2, 2, 2, 2 rows one after the other
  const torch::NoGradGuard no_grad;
  for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 3}, {3, 6}, {6, 9}, {9, 12}, {12, 14}, {14, 16}, {16, 18}, {18, 20}}) {
    by_hand.loss_sum(in_precision(rows->all().narrow(begin, end - begin), Precision::kFp64));
  }
  const auto buffers = by_hand.module->named_buffers();
  for (const auto& [name, tensor] : trainer.weights()) {
    const auto* buffer = buffers.find(name);
    if (!buffer) continue;
    INFO(name);
    CHECK(max_difference(tensor, *buffer) <= 1e-12 * max_abs(*buffer));
  }
}

TEST_CASE("invariant: a number of replicas that does not divide eight is refused") {
  const int world = GENERATE(3, 5, 6, 7);
  CHECK_THROWS_AS(trainer_of(model_factory<LeNetImpl>(uint64_t{0}, torch::kFloat32), world, true,
                             std::make_shared<RowSource>(4)),
                  UsageError);
}
