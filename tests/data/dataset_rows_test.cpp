// A torch::data Dataset as a source of batches. tests/parallel/programs/dataset_programs_test.cpp trains on
// one.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/data/transforms/stack.h>
#include <torch/utils.h>

#include <lockstep/tests/catch.h>
#include <atomic>
#include <latch>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/data/dataset_rows.h>
#include <lockstep/data/resident_rows.h>
#include <lockstep/support/error.h>
#include <lockstep/support/split_mix64.h>
#include <lockstep/tests/data/noisy_rows.h>
#include <lockstep/tests/support/no_threads.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Rows = std::vector<int64_t>;
using Source = std::shared_ptr<const BatchSource>;

template <class Dataset>
Source source_of(const Dataset& data_set, const DatasetRowsOptions& options = {}) {
  return dataset_rows(data_set, options)(torch::kCPU);
}

void gather(const Source& source, const Rows& rows, int64_t epoch, Batch& into) {
  source->gather(torch::tensor(rows, torch::kInt64), epoch, into);
}

Batch gathered(const Source& source, const Rows& rows, int64_t epoch = 0) {
  Batch batch(std::make_shared<const BatchSpec>(source->spec()));
  gather(source, rows, epoch, batch);
  return batch;
}

void check_same(const Batch& found, const Batch& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].dtype() == expected[i].dtype());
    CHECK(found[i].equal(expected[i]));
  }
}

// The rows of two tensors.
class Table : public torch::data::datasets::Dataset<Table> {
 public:
  Table(torch::Tensor X, torch::Tensor y) : X_(std::move(X)), y_(std::move(y)) {}

  Example get(size_t row) override {
    const auto i = static_cast<int64_t>(row);
    return {X_[i], y_[i]};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(X_.size(0)); }

 private:
  torch::Tensor X_, y_;
};

// Row i is i + 1 numbers and a mask of as many, in a vector.
struct Sentences : torch::data::datasets::Dataset<Sentences, std::vector<torch::Tensor>> {
  std::vector<torch::Tensor> get(size_t row) override {
    const auto length = static_cast<int64_t>(row) + 1;
    return {torch::arange(length), torch::ones({length}, torch::kBool), torch::tensor(length)};
  }
  std::optional<size_t> size() const override { return 6; }
};

const BatchSpec kSentences = {{.name = "ids", .dtype = torch::kInt64, .row_shape = {-1}},
                              {.name = "mask", .dtype = torch::kBool, .row_shape = {-1}},
                              {.name = "length", .dtype = torch::kInt64, .role = Role::kTarget}};

const BatchSpec kNoise = {{.name = "noise", .row_shape = {3}},
                          {.name = "row", .dtype = torch::kInt64, .role = Role::kTarget}};

// Eight rows, of which `count` reads are waited for, without anyone who asks for the rows.
struct AheadOf {
  explicit AheadOf(int64_t count) : read(count) {}

  void wait() {
    read.wait();
    waiting = false;
  }

  std::latch read;
  std::atomic<bool> waiting = true;
  NoisyRows rows{8, [this](size_t) {
                   if (waiting) read.count_down();
                 }};
};

// The numbers that rows of NoisyRows draw with seed 7.
torch::Tensor drawn_by(const Rows& rows, uint64_t epoch) {
  std::vector<torch::Tensor> drawn;
  auto generator = at::detail::createCPUGenerator();
  for (const auto row : rows) {
    generator.set_current_seed(SplitMix64(7, {4, epoch, static_cast<uint64_t>(row)}).next());
    drawn.push_back(torch::rand({3}, generator));
  }
  return torch::stack(drawn);
}

}  // namespace

TEST_CASE("a plain dataset gives the bits of resident rows, stacked or not, told before or not") {
  const auto X = torch::arange(48, torch::kFloat64).sin().view({8, 2, 3});
  const auto y = torch::arange(8).mul(3).to(torch::kInt32);
  const auto resident = resident_rows(Batch(X, y))(torch::kCPU);
  for (const int workers : {0, 1, 3}) {
    const DatasetRowsOptions options = {.workers = workers};
    for (const auto& source : {source_of(Table(X, y), options),
                               source_of(Table(X, y).map(torch::data::transforms::Stack<>()), options)}) {
      CHECK(source->size() == 8);
      CHECK((source->spec() == resident->spec()));
      CHECK_FALSE(source->can_be_captured());
      for (const Rows& rows : {Rows{3, 1, 1, 7, 0}, Rows{}, Rows{5}, Rows{0, 1, 2, 3, 4, 5, 6, 7}}) {
        for (const bool told : {true, false}) {
          INFO(workers << " workers, " << rows.size() << " rows, told " << told);
          if (told) source->will_need(rows, 0);
          check_same(gathered(source, rows), gathered(resident, rows));
        }
      }
    }
  }
}

TEST_CASE("a source's row draws the numbers of (seed, epoch, row), whichever thread reads it") {
  const NoisyRows rows(21, [](size_t) {
    if (c10::InferenceMode::is_enabled()) throw std::logic_error("the row is read in inference mode");
    if (at::get_num_threads() != 1) throw std::logic_error("the row is read with several threads");
  });
  const Rows asked = {4, 20, 0, 4, 13};
  const auto threads = at::get_num_threads();
  const auto default_state = at::detail::getDefaultCPUGenerator().get_state();
  for (const int workers : {0, 1, 3}) {
    const auto source = source_of(rows, {.seed = 7, .workers = workers});
    for (const bool told : {true, false}) {
      INFO(workers << " workers, told " << told);
      if (told) source->will_need(asked, 5);
      const c10::InferenceMode evaluating;
      const auto batch = gathered(source, asked, 5);
      CHECK(batch.input().equal(drawn_by(asked, 5)));
      CHECK(batch.target().equal(torch::tensor(asked, torch::kInt64)));
      CHECK(gathered(source, asked, 6).input().equal(drawn_by(asked, 6)));
    }
  }
  CHECK(at::get_num_threads() == threads);
  CHECK(at::detail::getDefaultCPUGenerator().get_state().equal(default_state));
  const auto flipped = gathered(source_of(augmented(rows), {.seed = 7, .workers = 0}), asked, 5);
  check_same(gathered(source_of(augmented(rows), {.seed = 7, .workers = 3}), asked, 5), flipped);
  CHECK(flipped.input().sum(1).allclose(drawn_by(asked, 5).sum(1)));
  CHECK_FALSE(flipped.input().equal(drawn_by(asked, 5)));
}

TEST_CASE("rows that are told are read by the workers, once each, and given once") {
  for (const int workers : {1, 3}) {
    INFO(workers << " workers");
    AheadOf ahead(4);
    const auto source = source_of(ahead.rows, {.spec = kNoise, .seed = 7, .workers = workers});
    CHECK((source->spec() == kNoise));
    CHECK(ahead.rows.asked->count() == 0);       // a spec that is declared needs no row
    source->will_need(Rows{5, 2, -1, 7, 8}, 1);  // two that there are not: the step of them is refused
    source->will_need(Rows{2, 3}, 1);
    ahead.wait();
    CHECK(gathered(source, {2, 5, 3}, 1)["noise"].equal(drawn_by({2, 5, 3}, 1)));
    CHECK(gathered(source, {7, 2}, 1)["noise"].equal(drawn_by({7, 2}, 1)));
    CHECK(ahead.rows.asked->count() == 4);
    gathered(source, {7, 2}, 1);
    CHECK(ahead.rows.asked->count() == 6);
  }
}

TEST_CASE("rows that nobody asks for are kept until two later epochs are told") {
  AheadOf ahead(12);
  const auto source = source_of(ahead.rows, {.spec = kNoise, .seed = 7});
  for (const int64_t epoch : {1, 2, 3}) source->will_need(Rows{0, 1, 2, 3}, epoch);
  ahead.wait();
  for (const int64_t epoch : {3, 2}) gathered(source, {0, 1, 2, 3}, epoch);
  CHECK(ahead.rows.asked->count() == 12);
  CHECK(gathered(source, {3, 0}, 1)["noise"].equal(drawn_by({3, 0}, 1)));
  CHECK(ahead.rows.asked->count() == 14);
}

TEST_CASE("several threads tell and gather at once") {
  const auto source = source_of(augmented(NoisyRows(64)), {.seed = 7, .workers = 3});
  const auto alone = source_of(augmented(NoisyRows(64)), {.seed = 7, .workers = 0});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t step = 0; step < 30; ++step) {
        const Rows rows = {thread * 16 + step % 16, step, 63 - step};  // the last two by all threads
        if (step % 3 != 0) source->will_need(rows, step % 2);
        const auto found = gathered(source, rows, step % 2), expected = gathered(alone, rows, step % 2);
        if (!found.input().equal(expected.input()) || !found.target().equal(expected.target())) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a batch is written in place where it fits") {
  const auto source = source_of(NoisyRows(8), {.seed = 7});
  Batch batch = gathered(source, {1, 2});
  const auto held = batch.input();
  gather(source, {3, 4}, 0, batch);
  CHECK(batch.input().is_same(held));
  CHECK(held.equal(drawn_by({3, 4}, 0)));
  batch[0] = torch::zeros({2, 3}, torch::kFloat64);
  gather(source, {3, 4}, 0, batch);
  CHECK(batch.input().dtype() == torch::kFloat32);
  CHECK(batch.input().equal(held));
}

TEST_CASE("rows of many tensors, and of sizes that differ between batches, are as the spec says") {
  for (const int workers : {0, 2}) {
    const auto source = source_of(Sentences(), {.spec = kSentences, .workers = workers});
    CHECK((source->spec() == kSentences));
    const auto batch = gathered(source, {4, 4});
    CHECK(batch["ids"].equal(torch::arange(5).expand({2, 5})));
    CHECK(batch["mask"].equal(torch::ones({2, 5}, torch::kBool)));
    CHECK(batch.target().equal(torch::tensor({5, 5}, torch::kInt64)));
    CHECK(gathered(source, {})["ids"].sizes() == torch::IntArrayRef({0, 0}));
    CHECK(refusal_of<DataError>([&] {
            gathered(source, {4, 2});
          }) == "rows 4 and 2 of the data set do not make a batch: ids Long [n, 5], and ids Long [n, 3]");
  }
}

TEST_CASE("an exception of the data set, or of its spec, names the row, and the next batch is read") {
  for (const int workers : {0, 3}) {
    for (const bool told : {true, false}) {
      INFO(workers << " workers, told " << told);
      const auto source = source_of(NoisyRows(8,
                                              [](size_t row) {
                                                if (row == 5) throw std::out_of_range("no such file");
                                              }),
                                    {.seed = 7, .workers = workers});
      if (told) source->will_need(Rows{2, 5, 3}, 4);
      try {
        gathered(source, {2, 5, 3}, 4);
        FAIL("nothing was thrown");
      } catch (const DataError& error) {
        CHECK(error.message() == "row 5 of the data set cannot be read in epoch 4: no such file");
        CHECK_THROWS_AS(std::rethrow_if_nested(error), std::out_of_range);
      }
      CHECK(gathered(source, {2, 3}, 4).input().equal(drawn_by({2, 3}, 4)));
    }
  }
  auto wrong = kSentences;
  wrong[0].row_shape = {3};
  wrong[1].dtype = torch::kFloat32;
  const std::vector<std::pair<BatchSpec, std::string>> refused = {
      {wrong, "it has ids Long [n, 2], not ids Long [n, 3]"},
      {{kSentences[0], wrong[1], kSentences[2]}, "it has mask Bool [n, 2], not mask Float [n, any]"},
      {{kSentences[0]}, "it has 3 tensors, not 1"}};
  for (const auto& [spec, what] : refused) {
    CHECK(refusal_of<DataError>([&, &own = spec] { gathered(source_of(Sentences(), {.spec = own}), {1}); }) ==
          "row 1 of the data set cannot be read in epoch 0: " + what);
  }
}

TEST_CASE("sources that make no sense are refused") {
  CHECK(refusal_of([] { dataset_rows(NoisyRows(4), {.workers = -1}); }) == "workers is -1");
  struct Endless : torch::data::datasets::Dataset<Endless, torch::Tensor> {
    torch::Tensor get(size_t) override { return torch::ones({}); }
    std::optional<size_t> size() const override { return std::nullopt; }
  };
  CHECK(refusal_of([] { dataset_rows(Endless()); }) == "the data set does not know its size");
  CHECK(refusal_of([] { source_of(Sentences()); }) == "a row of 3 tensors does not tell their names");
  CHECK(refusal_of([] { source_of(NoisyRows(0)); }) == "a data set of 0 rows does not tell what a row is");
  const BatchSpec spec = {{.name = "x", .row_shape = {3}}, {.name = "y", .dtype = torch::kInt64}};
  CHECK(source_of(NoisyRows(0), {.spec = spec})->size() == 0);
}

#ifndef __SANITIZE_THREAD__  // it starts threads with its own attributes
TEST_CASE("where no thread can start, batches are read all the same, and that is said once") {
  std::vector<std::string> notices;
  const auto source = source_of(
      NoisyRows(6), {.workers = 2, .notice = [&](const std::string& text) { notices.push_back(text); }});
  const auto expected = gathered(source_of(NoisyRows(6)), {4, 1, 5});
  const NoThreads none;
  source->will_need(std::vector<int64_t>{4, 1, 5}, 0);
  check_same(gathered(source, {4, 1, 5}), expected);
  check_same(gathered(source, {4, 1, 5}), expected);
  CHECK(notices == std::vector<std::string>{"no thread can be started to read rows ahead"});
}
#endif
