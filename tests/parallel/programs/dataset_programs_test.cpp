// A Trainer on a torch::data Dataset with random augmentation.
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/example.h>
#include <torch/data/transforms/lambda.h>
#include <torch/data/transforms/stack.h>
#include <torch/utils.h>

#include <lockstep/tests/catch.h>

#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <lockstep/data/batch_order.h>
#include <lockstep/data/dataset_rows.h>
#include <lockstep/data/resident_rows.h>
#include <lockstep/parallel/train_epochs.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Example = torch::data::Example<>;
constexpr int64_t kImages = 30, kBatchRows = 8;  // 4 steps of an epoch; the last batch has 6 rows

torch::Tensor image(int64_t row) {
  return torch::arange(784, torch::kFloat32).add(row * 31).mul(.37).sin().view({1, 28, 28});
}

class Images : public torch::data::datasets::Dataset<Images> {
 public:
  explicit Images(std::optional<size_t> bad = {}) : bad_(bad) {}

  Example get(size_t row) override {
    if (row == bad_) throw std::runtime_error("the file is damaged");
    const auto number = static_cast<int64_t>(row);
    return {image(number), torch::tensor(number % 10)};
  }
  std::optional<size_t> size() const override { return size_t{kImages}; }

 private:
  std::optional<size_t> bad_;
};

// Noise on each image.
auto augmented() {
  return Images().map(torch::data::transforms::Lambda<Example>(
      [](Example row) { return Example(row.data + torch::randn_like(row.data), row.target); }));
}

SourceFactory augmented_rows(int workers) {
  return dataset_rows(augmented().map(torch::data::transforms::Stack<>()), {.seed = 3, .workers = workers});
}

TrainerOptions invariant(int world) {
  auto options = options_for(world);
  options.replica.invariant = true;
  return options;
}

// Epochs that stop after so many steps.
EpochOptions epochs(int64_t count, int64_t stop_after = -1) {
  return {.epochs = count,
          .batch_size = kBatchRows,
          .order = [](int64_t epoch) { return batch_order(/*seed=*/3, epoch, kImages); },
          .after_step =
              [stop_after](EpochRun& run) {
                if (run.epoch() * run.steps() + run.step() == stop_after) run.stop();
              }};
}

std::vector<NamedTensor> trained(const SourceFactory& train, const TrainerOptions& options) {
  Trainer trainer(lenet_factory(), train, train, options);
  CHECK(train_epochs(trainer, epochs(2)));
  return trainer.weights();
}

}  // namespace

TEST_CASE("a Trainer takes the same steps on a plain data set as on resident rows") {
  std::vector<torch::Tensor> images;
  for (int64_t row = 0; row < kImages; ++row) images.push_back(image(row));
  const auto resident = resident_rows(Batch(torch::stack(images), torch::arange(kImages) % 10));
  for (const int world : {1, 2}) {
    const auto expected = trained(resident, options_for(world));
    for (const int workers : {0, 3}) {
      INFO(world << " replicas, " << workers << " workers");
      check_same_tensors(trained(dataset_rows(Images(), {.workers = workers}), options_for(world)), expected);
    }
  }
}

TEST_CASE("augmented rows are the same for any number of replicas and workers") {
  const auto expected = trained(augmented_rows(/*workers=*/0), invariant(1));
  CHECK_FALSE(same_tensors(trained(dataset_rows(Images()), invariant(1)), expected));
  for (const int world : {1, 2, 4}) {
    INFO(world << " replicas");
    check_same_tensors(trained(augmented_rows(/*workers=*/3), invariant(world)), expected);
  }
}

TEST_CASE("augmented rows are the same after a resume in the middle of an epoch") {
  for (const int workers : {0, 3}) {
    const auto rows = augmented_rows(workers);
    const auto expected = trained(rows, options_for(2));
    for (const int64_t stop : {2, 5}) {
      INFO(workers << " workers, resumed after step " << stop);
      Trainer first(lenet_factory(), rows, rows, options_for(2));
      CHECK_FALSE(train_epochs(first, epochs(2, stop)));
      Trainer second(lenet_factory(), rows, rows, options_for(2));
      second.load(first.state());
      CHECK(second.steps_taken() == stop);
      CHECK(train_epochs(second, epochs(2)));
      check_same_tensors(second.weights(), expected);
    }
  }
}

TEST_CASE("an exception of the data set ends the step with a DataError that names the row") {
  for (const int workers : {0, 3}) {
    INFO(workers << " workers");
    const auto rows = dataset_rows(Images(/*bad=*/11), {.workers = workers});
    Trainer trainer(lenet_factory(), rows, rows, options_for(2));
    CHECK(refusal_of<DataError>([&] {
            trainer.step(Rows{2, 11, 4}, /*epoch=*/1);
          }) == "row 11 of the data set cannot be read in epoch 1: the file is damaged");
  }
}

TEST_CASE("processes whose rows are drawn with other seeds are refused") {
  const auto errors = in_processes({1, 1}, options_for(1), [](int process, const TrainerOptions& own) {
    const auto rows = dataset_rows(Images(), {.seed = 7 + static_cast<uint64_t>(process)});
    return refusal_of<UsageError>([&] { Trainer(lenet_factory(), rows, rows, own); });
  });
  for (const auto& error : errors) {
    CHECK_THAT(error,
               Catch::Matchers::ContainsSubstring("seed 7") && Catch::Matchers::ContainsSubstring("seed 8"));
  }
}
