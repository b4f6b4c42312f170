// Training, evaluating, saving and going on again and again in one process takes no more memory, files or
// threads.
#include <lockstep/tests/catch.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <lockstep/app/train/checkpoint/contents.h>
#include <lockstep/data/dataset.h>
#include <lockstep/data/synthetic.h>
#include <lockstep/data/weights_hash.h>
#include <lockstep/models/factory.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/in_memory.h>

using namespace lockstep;
using namespace lockstep::testing;
namespace fs = std::filesystem;

// jemalloc's, with which this test is linked.
extern "C" int mallctl(const char* name, void* old_value, size_t* old_size, void* new_value, size_t new_size);

namespace {

constexpr int kCycles = 100;
constexpr int kFirst = 20;           // by then malloc and OpenMP have all that they keep
constexpr int64_t kSlack = 1 << 20;  // what threads keep for their next allocations varies
constexpr int kSteps = 3;
constexpr int64_t kBatch = 64;
constexpr int64_t kTrainRows = kSteps * kBatch;

struct Held {
  int64_t allocated = 0;
  int64_t files = 0;
  int64_t threads = 0;
};

int64_t count_in(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

// Bytes that are allocated and not freed. Pages that are resident tell less: jemalloc gives them back by the
// clock, and late on a busy machine.
int64_t allocated_bytes() {
  uint64_t epoch = 1;  // renews the statistics
  size_t bytes = 0, size = sizeof(bytes);
  REQUIRE(mallctl("epoch", nullptr, nullptr, &epoch, sizeof(epoch)) == 0);
  REQUIRE(mallctl("stats.allocated", &bytes, &size, nullptr, 0) == 0);
  return static_cast<int64_t>(bytes);
}

Held held_now() {
  return {.allocated = allocated_bytes(),
          .files = count_in("/proc/self/fd"),
          .threads = count_in("/proc/self/task")};
}

std::unique_ptr<Trainer> make_trainer(const Dataset& data) {
  TrainerOptions options;
  options.devices = {torch::kCPU, torch::kCPU};
  options.replica.optimizer.momentum = .9;
  options.lr = {.lr = .1};
  return std::make_unique<Trainer>(make_model_factory({.name = "lenet"}), resident_sources(data.train),
                                   resident_sources(data.test), options);
}

void train_and_evaluate(Trainer& trainer) {
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<int64_t> rows(kBatch);
    std::iota(rows.begin(), rows.end(), step * kBatch);
    trainer.step(rows);
  }
  trainer.take_sums();
  trainer.evaluate();
}

void save(Trainer& trainer, const fs::path& folder) {
  RunState state;
  state.trainer = trainer.state();
  state.plan = {{"model", "lenet"}};
  write_checkpoint(folder, to_checkpoint(std::move(state)));
  link_checkpoint(folder, "last");
}

}  // namespace

TEST_CASE("a hundred times training, saving and going on takes no more memory, files or threads") {
  const TempFolder folder(in_memory());
  const auto data = make_synthetic(/*seed=*/0, kTrainRows, /*test_rows=*/64);
  auto trainer = make_trainer(data);
  Held first;
  for (int cycle = 1; cycle <= kCycles; ++cycle) {
    train_and_evaluate(*trainer);
    const auto path = folder / ("step-" + std::to_string(cycle));
    save(*trainer, path);
    if (cycle > 1) remove_checkpoint(folder / ("step-" + std::to_string(cycle - 1)));
    trainer.reset();
    trainer = make_trainer(data);
    trainer->load(read_state(read_checkpoint(folder / "last")).trainer);
    REQUIRE(trainer->steps_taken() == cycle * kSteps);
    if (cycle == kFirst) first = held_now();
  }
  const auto last = held_now();
  INFO("after " << kFirst << " cycles " << first.allocated << " bytes, after " << kCycles << " "
                << last.allocated);
  CHECK(last.files == first.files);
  CHECK(last.threads == first.threads);
  CHECK(last.allocated > 1 << 20);  // the statistics are on
  CHECK(last.allocated <= first.allocated + first.allocated / 100 + kSlack);
}
