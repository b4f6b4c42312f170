// A run on GPUs goes on from its state. A process of its own: cuBLAS reads its setting for determinism once.
#include <lockstep/tests/catch.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <lockstep/data/dataset.h>
#include <lockstep/data/synthetic.h>
#include <lockstep/models/lenet.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/trainer_states.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr int64_t kBatch = 37;

void take_steps(Trainer& trainer, int64_t first, int64_t last) {
  for (int64_t step = first; step < last; ++step) {
    std::vector<int64_t> rows(kBatch);
    std::iota(rows.begin(), rows.end(), step * kBatch);
    trainer.step(rows);
  }
}

}  // namespace

TEST_CASE("a run on a GPU goes on from its state with the same bits, captured or not", "[cuda]") {
  set_arithmetic(Precision::kFp32, /*deterministic=*/true);
  const auto data = make_synthetic(/*seed=*/3, /*train_rows=*/12 * kBatch, /*test_rows=*/1).train;
  TrainerOptions options;
  options.devices = parse_devices(GENERATE(as<std::string>(), "cuda:0", "cuda:0x2"));
  options.lr = {.lr = .1};
  options.replica.optimizer.momentum = .9;
  options.replica.cuda_graph = GENERATE(CudaGraph::kOff, CudaGraph::kAuto);
  const auto new_trainer = [&] {
    return Trainer(model_factory<LeNetImpl>(uint64_t{0}, torch::kFloat32), resident_sources(data),
                   resident_sources(data), options);
  };
  auto whole = new_trainer();
  take_steps(whole, 0, 6);
  const auto state = whole.state();
  take_steps(whole, 6, 12);

  auto other = new_trainer();
  take_steps(other, 3, 9);  // is forgotten, but for its captured steps
  CHECK_FALSE(same_tensors(other.weights(), whole.weights()));
  other.load(state);
  take_steps(other, 6, 12);
  for (int local = 0; local < other.local_size(); ++local) {
    CHECK(same_tensors(other.weights(local), whole.weights(local)));
  }
}

TEST_CASE("a state whose GPU generator is none is refused before anything is written", "[cuda]") {
  const auto data = make_synthetic(/*seed=*/3, /*train_rows=*/4 * kBatch, /*test_rows=*/1).train;
  TrainerOptions options;
  options.devices = parse_devices("cuda:0");
  options.lr = {.lr = .1};
  Trainer trainer(model_factory<LeNetImpl>(uint64_t{0}, torch::kFloat32), resident_sources(data),
                  resident_sources(data), options);
  take_steps(trainer, 0, 1);
  auto state = trainer.state();
  auto& generator = state.replicas[0].device_generator;  // a seed and an offset, which is a multiple of 4
  generator = generator.clone();
  generator[8] = 1;
  take_steps(trainer, 1, 2);
  const auto before = trainer.weights();
  CHECK_THROWS_AS(trainer.load(state), WeightsError);
  CHECK(same_tensors(trainer.weights(), before));
}
