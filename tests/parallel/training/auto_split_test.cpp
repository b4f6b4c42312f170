// TrainerOptions::auto_split end to end: a model whose loss takes a given time per row, longer on one
// replica. The model sleeps instead of computing, so that other load on the machine does not matter.
#include <lockstep/tests/catch.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <thread>

#include <lockstep/parallel/split_batch.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr int64_t kBatch = 256;
constexpr auto kSleepPerRow = std::chrono::milliseconds(1);  // far longer than its few flops
constexpr int kAttempts = 3;

// The model of replica 1, the second that is built, sleeps `slower` times as long.
ModelFactory resting_factory(int slower) {
  return [slower, built = std::make_shared<int>(0)] {
    const auto rest = kSleepPerRow * ((*built)++ == 1 ? slower : 1);
    const auto net = std::make_shared<torch::nn::LinearImpl>(784, 10);
    return Model{net,
                 [net, rest](const Batch& rows) {
                   std::this_thread::sleep_for(rest * rows.rows());
                   return classification_outcome(net->forward(rows.input().flatten(1)), rows.target());
                 },
                 classification(10).metrics};
  };
}

// Rows of each replica once the shares have settled.
std::vector<int64_t> settled_rows(int slower) {
  TrainerOptions options;
  options.devices = {torch::kCPU, torch::kCPU};
  options.auto_split = true;
  options.lr = {.lr = .1};
  const auto rows = std::make_shared<RowSource>(kBatch);
  Trainer trainer(resting_factory(slower), source(rows), source(rows), options);
  std::vector<int64_t> batch(kBatch);
  std::iota(batch.begin(), batch.end(), int64_t{0});
  while (!trainer.split_settled()) trainer.step(batch);
  return shard_sizes(kBatch, trainer.world_size(), trainer.split());
}

// Returns true if replica 0 settles near this number of rows. The tolerance is a quarter of the 64 rows
// between 128 and 192, for machines that wake sleepers late. Tries again after a long delay of the machine.
bool settles_near(int64_t rows, int slower) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto settled = settled_rows(slower)[0];
    UNSCOPED_INFO("attempt " << attempt << ": " << settled << " rows");
    if (std::abs(settled - rows) <= 16) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a replica that is three times slower settles at a quarter of the batch") {
  CHECK(settles_near(192, 3));
}

TEST_CASE("replicas of the same speed settle at halves") { CHECK(settles_near(128, 1)); }
