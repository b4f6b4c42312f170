// Any number of replicas trains a program alike.
#include <map>

#include <lockstep/data/resident_rows.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/catch.h>
#include <lockstep/tests/models/program/fixture.h>
#include <lockstep/tests/support/refusal.h>

namespace lockstep {
namespace {

using testing::Fixture;

TrainerOptions options_for(int replicas) {
  TrainerOptions options;
  options.devices = std::vector<torch::Device>(static_cast<size_t>(replicas), torch::kCPU);
  options.threads = 1;
  options.lr = {.lr = .05};
  options.replica.optimizer.momentum = .9;
  options.replica.precision = Precision::kFp64;
  return options;
}

struct ReplicasRun {
  std::vector<double> losses;
  double evaluation = 0;
  std::map<std::string, torch::Tensor> weights;
};

// Batches of 12, 7, 2 and 5 rows of a set of 24: a third replica has none of the two.
ReplicasRun train_replicas(const Fixture& fixture, const TrainerOptions& options,
                           Kernels kernels = Kernels::kAuto) {
  const auto rows = resident_rows(fixture.batch(0, 24));
  Trainer trainer(fixture.factory(kernels), rows, rows, options);
  ReplicasRun result;
  int64_t first = 0;
  for (const int64_t size : {12, 7, 2, 5, 12}) {
    std::vector<int64_t> batch(static_cast<size_t>(size));
    for (auto& row : batch) row = first++ % 24;
    trainer.step(batch);
    const auto sums = trainer.take_sums();
    result.losses.push_back(sums.mean_loss());
  }
  result.evaluation = trainer.evaluate().mean_loss();
  for (const auto& [name, tensor] : trainer.weights()) result.weights.emplace(name, tensor.clone());
  return result;
}

void require_alike(const ReplicasRun& one, const ReplicasRun& more, double tolerance) {
  REQUIRE(one.losses.size() == more.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i)
    CHECK_THAT(more.losses[i], Catch::Matchers::WithinRel(one.losses[i], tolerance));
  CHECK_THAT(more.evaluation, Catch::Matchers::WithinRel(one.evaluation, tolerance));
  REQUIRE(one.weights.size() == more.weights.size());
  for (const auto& [name, tensor] : one.weights) {
    INFO(name);
    const auto other = more.weights.at(name).to(torch::kFloat64);
    CHECK(torch::allclose(other, tensor.to(torch::kFloat64), 100 * tolerance, tolerance));
  }
}

TEST_CASE("Two and three replicas train programs as one does") {
  const std::string name =
      GENERATE("any_length", "constants", "dict_output", "encoder", "frozen_layers", "gru", "lm", "lstm",
               "mlp", "no_grad", "own_loss", "own_loss_rows", "two_inputs");
  INFO(name);
  const Fixture fixture(name);
  const auto one = train_replicas(fixture, options_for(1));
  for (const int replicas : {2, 3}) {
    INFO(replicas << " replicas");
    require_alike(one, train_replicas(fixture, options_for(replicas)), 1e-11);
  }
}

TEST_CASE(
    "With the whole batch's statistics two and three replicas train programs with batch norms as one does") {
  const std::string name = GENERATE("conv_bn", "frozen_norm", "norm_of_rows", "channels_last",
                                    "functional_norm", "root_norm", "counted_apart", "fused_norms");
  INFO(name);
  const Fixture fixture(name);
  auto options = options_for(1);
  options.bn = BnPolicy::kSync;
  const auto one = train_replicas(fixture, options);
  for (const int replicas : {2, 3}) {
    INFO(replicas << " replicas");
    auto more = options_for(replicas);
    more.bn = BnPolicy::kSync;
    require_alike(one, train_replicas(fixture, more), 1e-11);
  }
}

// The second norm of the block has another one, that of the shortcut, before its addition. With batches of 2
// rows the third replica has none: its norms are torch's, and must exchange in the order of the others.
TEST_CASE("Lockstep's kernels take the whole batch's statistics on any number of replicas") {
  const Fixture fixture("fused_norms");
  const auto trained = [&](int replicas, Precision precision, Kernels kernels) {
    auto options = options_for(replicas);
    options.bn = BnPolicy::kSync;
    options.replica.precision = precision;
    return train_replicas(fixture, options, kernels);
  };
  const auto exact = trained(1, Precision::kFp64, Kernels::kTorch);
  require_alike(exact, trained(1, Precision::kFp64, Kernels::kAuto), 1e-12);
  for (const int replicas : {1, 2, 3}) {
    INFO(replicas << " replicas");
    require_alike(exact, trained(replicas, Precision::kFp32, Kernels::kAuto), 1e-4);
  }
}

TEST_CASE("Replicas train a program with sequences of another length than its example") {
  Fixture fixture("any_length");
  for (const int64_t length : {1, 9}) {
    INFO(length << " words");
    fixture.numbers["inputs"][0]["shape"][1] = length;
    const auto one = train_replicas(fixture, options_for(1));
    for (const int replicas : {2, 3}) {
      INFO(replicas << " replicas");
      require_alike(one, train_replicas(fixture, options_for(replicas)), 1e-11);
    }
  }
}

TEST_CASE("The mean of the replicas' averages of instance norms is that of all rows") {
  const Fixture fixture("instance_norm");
  const auto rows = resident_rows(fixture.batch(0, 12));
  const auto evaluation = [&](int replicas) {
    auto options = options_for(replicas);
    options.bn = BnPolicy::kAverage;
    Trainer trainer(fixture.factory(), rows, rows, options);
    for (int step = 0; step < 3; ++step) {
      trainer.step(std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
      trainer.take_sums();
    }
    return trainer.evaluate().mean_loss();
  };
  const double one = evaluation(1);
  for (const int replicas : {2, 3}) CHECK_THAT(evaluation(replicas), Catch::Matchers::WithinRel(one, 1e-11));
}

TEST_CASE("Replicas without rows take part in a program's batch norms") {
  const Fixture fixture("conv_bn");
  const auto rows = resident_rows(fixture.batch(0, 8));
  const auto losses = [&](int replicas) {
    auto options = options_for(replicas);
    options.bn = BnPolicy::kSync;
    Trainer trainer(fixture.factory(), rows, rows, options);
    std::vector<double> all;
    for (int step = 0; step < 3; ++step) {
      trainer.step(std::vector<int64_t>{0, 1});  // the third replica has none, and the others one
      all.push_back(trainer.take_sums().mean_loss());
    }
    return all;
  };
  const auto one = losses(1), three = losses(3);
  for (size_t i = 0; i < one.size(); ++i) CHECK_THAT(three[i], Catch::Matchers::WithinRel(one[i], 1e-11));
}

TEST_CASE(
    "Each policy of batch norms, accumulation and an average of the weights train a program on two "
    "replicas") {
  const Fixture fixture("conv_bn");
  const auto bn = GENERATE(BnPolicy::kRoot, BnPolicy::kAverage, BnPolicy::kSync);
  auto options = options_for(2);
  options.bn = bn;
  options.accumulate = 2;
  options.ema = .9;
  const auto trained = train_replicas(fixture, options);
  for (const double loss : trained.losses) CHECK(std::isfinite(loss));
  CHECK(std::isfinite(trained.evaluation));
}

TEST_CASE("Bits do not depend on the number of replicas where they need not") {
  const std::string name = GENERATE("any_length", "channels_last", "constants", "conv_bn", "dict_output",
                                    "encoder", "frozen_layers", "frozen_norm", "fused_norms", "gru", "lm",
                                    "lstm", "mlp", "own_loss", "two_inputs");
  INFO(name);
  const Fixture fixture(name);
  const auto trained = [&](int replicas) {
    auto options = options_for(replicas);
    options.replica.precision = Precision::kFp32;
    options.replica.invariant = true;
    return train_replicas(fixture, options);
  };
  const auto one = trained(1);
  for (const int replicas : {2, 4}) {
    const auto more = trained(replicas);
    CHECK(more.losses == one.losses);
    for (const auto& [weight, tensor] : one.weights) CHECK(more.weights.at(weight).equal(tensor));
  }
}

TEST_CASE("Dropout of a replica draws what the seed, the step and its rank say") {
  const Fixture fixture("dropout");
  auto options = options_for(2);
  options.seed = 5;
  const auto first = train_replicas(fixture, options), again = train_replicas(fixture, options);
  CHECK(first.losses == again.losses);
  options.seed = 6;
  CHECK(train_replicas(fixture, options).losses != first.losses);
}

}  // namespace
}  // namespace lockstep
