// Replicas take the same steps as plain torch on the whole batch.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/support/compare.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Every parameter of every replica has changed as in training on the whole batch, up to 1e-10 of its largest
// gradient.
void check_moved_alike(Trainer& trainer, const WholeBatch& whole, const Params& largest, double lr) {
  const auto expected = whole.module().named_parameters();
  for (int rank = 0; rank < trainer.world_size(); ++rank) {
    for (const auto& [name, tensor] : trainer.weights(rank)) {
      const auto* param = expected.find(name);
      if (!param) continue;  // a buffer
      const auto i = static_cast<size_t>(std::distance(
          expected.begin(), std::find_if(expected.begin(), expected.end(),
                                         [&](const auto& item) { return item.key() == name; })));
      INFO("rank " << rank << ", " << name);
      CHECK(max_difference(tensor, *param) <= 1e-10 * lr * largest[i].item<double>() + 1e-17);
    }
  }
}

void check_against_whole_batch(const ModelFactory& factory, TrainerOptions options,
                               torch::optim::SGDOptions sgd) {
  options.replica.precision = Precision::kFp64;
  const auto rows = std::make_shared<RowSource>(32);
  auto trainer = make_trainer(factory, options, rows);
  WholeBatch whole(factory, sgd);
  Params largest;  // sum of max |g| over the steps so far, one per parameter
  for (const auto& batch : kBatches) {
    trainer.step(batch);
    const auto gradients = whole.step(rows->batch(batch));
    largest.resize(gradients.size(), torch::zeros({}, torch::kFloat64));
    for (size_t i = 0; i < gradients.size(); ++i) largest[i] = largest[i] + gradients[i].abs().max();
    check_moved_alike(trainer, whole, largest, options.lr.lr);
  }
  const auto sums = trainer.take_sums();
  CHECK(sums.rows == 16 + 5 + 1 + 16 + 7);
  CHECK(sums.loss == Approx(whole.loss_sum()).epsilon(1e-9));
  CHECK_FALSE(sums.bad);
}

void check_every_pair(const ModelFactory& factory, const std::vector<int>& worlds) {
  // On CPUs auto is two_shot.
  const auto allreduce = GENERATE(Allreduce::kRoot, Allreduce::kTwoShot, Allreduce::kRing);
  const auto sync = GENERATE(SyncMode::kParameterwise, SyncMode::kBucketed, SyncMode::kOverlapped);
  for (const int world : worlds) {
    INFO(world << " replicas, " << name_of(kAllreduceNames, allreduce) << ", "
               << name_of(kSyncModeNames, sync));
    auto options = options_for(world);
    options.allreduce = allreduce;
    options.replica.sync = {.mode = sync, .bucket_bytes = 300'000};  // several buckets
    check_against_whole_batch(factory, options, torch::optim::SGDOptions(.2));
  }
}

}  // namespace

TEST_CASE("k replicas take the same steps as the whole batch: every allreduce x every sync mode, LeNet") {
  check_every_pair(lenet_factory(), {1, 2, 3, 8});
}

// Slow with AddressSanitizer, whose allocator gives torch's convolutions new pages each time.
TEST_CASE(
    "k replicas take the same steps as the whole batch: every allreduce x every sync mode, residual "
    "network",
    "[cpu][slow]") {
  check_every_pair(small_residual_factory(), {3});
}

TEST_CASE("momentum, weight decay, Nesterov and micro-batches give the same steps as torch's SGD") {
  const int accumulate = GENERATE(1, 3);
  auto options = options_for(2);
  options.accumulate = accumulate;
  options.replica.optimizer = {.momentum = .9, .nesterov = true, .weight_decay = .01};
  check_against_whole_batch(lenet_factory(), options,
                            torch::optim::SGDOptions(.2).momentum(.9).nesterov(true).weight_decay(.01));
}

TEST_CASE("an uneven split gives the same steps") {
  auto options = options_for(3);
  options.split = {5, 0, 2.5};
  check_against_whole_batch(lenet_factory(), options, torch::optim::SGDOptions(.2));
}

TEST_CASE("the comparison fails for another learning rate") {
  auto options = options_for(2);
  options.replica.precision = Precision::kFp64;
  const auto rows = std::make_shared<RowSource>(32);
  auto trainer = make_trainer(lenet_factory(), options, rows);
  WholeBatch whole(lenet_factory(), torch::optim::SGDOptions(.2 * (1 + 1e-8)));
  trainer.step(kBatches[0]);
  const auto gradients = whole.step(rows->batch(kBatches[0]));
  bool noticed = false;
  const auto weights = trainer.weights();
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto bound = 1e-10 * .2 * max_abs(gradients[i]) + 1e-17;
    noticed |= max_difference(weights[i].tensor, whole.module().parameters()[i]) > bound;
  }
  CHECK(noticed);
}

TEST_CASE("the learning rate follows its schedule") {
  auto options = options_for(1);
  options.replica.precision = Precision::kFp64;
  options.lr = {.schedule = Schedule::kCosine, .lr = .2, .total_steps = 5, .warmup_steps = 2};
  const auto rows = std::make_shared<RowSource>(32);
  auto trainer = make_trainer(lenet_factory(), options, rows);
  WholeBatch whole(lenet_factory(), torch::optim::SGDOptions(1));
  const std::vector<double> expected = {.1, .2, .2, .15, .05};  // cosine of 0, 60 and 120 degrees
  for (const double lr : expected) {
    CHECK(trainer.lr() == Approx(lr));
    static_cast<torch::optim::SGDOptions&>(whole.optimizer().param_groups()[0].options()).lr(lr);
    trainer.step(kBatches[0]);
    whole.step(rows->batch(kBatches[0]));
  }
  CHECK(max_difference(trainer.weights()[0].tensor, whole.module().parameters()[0]) <= 1e-14);
}
