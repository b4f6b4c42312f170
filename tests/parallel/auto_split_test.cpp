// Row N4 end to end, in a small program whose second replica computes its loss three times: `--split auto`
// finds that it is three times slower. Nothing in the product knows of it: the model does it.
#include <catch2/catch.hpp>
#include <numeric>

#include <lockstep/models/lenet.h>
#include <lockstep/parallel/cpu_cores.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/classification.h>
#include <lockstep/tests/skip.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr int64_t kBatch = 256;

// The model of replica 1, the second that is built, computes everything `slower` times.
ModelFactory uneven_factory(int slower) {
  return [slower, built = std::make_shared<int>(0)] {
    auto model = model_factory<LeNetImpl>(uint64_t{0}, torch::kFloat32)();
    if ((*built)++ != 1) return model;
    model.loss_sum = [slower, once = model.loss_sum](const Inputs& rows) {
      auto sum = once(rows);
      for (int i = 1; i < slower; ++i) sum.loss = sum.loss + once(rows).loss;
      sum.loss = sum.loss / slower;
      return sum;
    };
    return model;
  };
}

// Rows of each replica once the shares have settled.
std::vector<int64_t> settled_rows(int slower) {
  TrainerOptions options;
  options.devices = {torch::kCPU, torch::kCPU};
  options.auto_split = true;
  options.lr = {.lr = .1};
  const auto rows = std::make_shared<RowSource>(kBatch);
  Trainer trainer(uneven_factory(slower), source(rows), source(rows), options);
  std::vector<int64_t> batch(kBatch);
  std::iota(batch.begin(), batch.end(), int64_t{0});
  while (!trainer.split_settled()) trainer.step(batch);
  return shard_sizes(kBatch, trainer.world_size(), trainer.split());
}

// Another program may hold a core for a while, which makes a replica slower in earnest. Shares that depend on
// nothing would not come near by chance: even ones are 64 rows away.
bool finds(int slower, int64_t first) {
  constexpr int kAttempts = 5;
  constexpr auto kTolerance = static_cast<int64_t>(.05 * kBatch);
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    const auto rows = settled_rows(slower);
    UNSCOPED_INFO("attempt " << attempt << ": " << rows[0] << " : " << rows[1]);
    if (std::abs(rows[0] - first) <= kTolerance) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a replica that is three times slower settles at a quarter of the batch") {
  if (allowed_cores().size() < 2) SKIP_CASE("two replicas on one core have no speeds of their own");
  CHECK(finds(3, 192));
}

TEST_CASE("replicas of the same speed settle at halves") {
  if (allowed_cores().size() < 2) SKIP_CASE("two replicas on one core have no speeds of their own");
  CHECK(finds(1, 128));
}
