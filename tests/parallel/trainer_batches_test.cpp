// The rows that a Trainer asks a source for, and the tensors that it expects.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <lockstep/data/resident_rows.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/training/evaluated_blocks.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/training/layouts.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// Keeps what it is asked for and told.
class WatchedRows : public RowSource {
 public:
  using RowSource::RowSource;

  void gather(const torch::Tensor& rows, int64_t epoch, Batch& into) const override {
    RowSource::gather(rows, epoch, into);
    const std::span numbers(rows.const_data_ptr<int64_t>(), static_cast<size_t>(rows.numel()));
    note(gathered, numbers, epoch);
  }

  void will_need(std::span<const int64_t> rows, int64_t epoch) const override { note(told, rows, epoch); }

  using Parts = std::map<int64_t, std::multiset<Rows>>;  // by epoch, the rows of each call
  mutable Parts gathered, told;

 private:
  void note(Parts& parts, std::span<const int64_t> rows, int64_t epoch) const {
    const std::lock_guard lock(mutex_);
    parts[epoch].insert(Rows(rows.begin(), rows.end()));
  }

  mutable std::mutex mutex_;
};

}  // namespace

TEST_CASE(
    "a source is asked for each replica's rows with the epoch of the step, and told those of later steps") {
  const auto rows = std::make_shared<WatchedRows>(32);
  auto options = options_for(2);
  options.accumulate = 2;
  auto trainer = make_trainer(lenet_factory(), options, rows);
  const Rows first{0, 1, 2, 3, 4, 5, 6, 7}, second{8, 30, 9, 31};
  trainer.will_need(second, 4);
  CHECK((rows->told == WatchedRows::Parts{{4, {{8}, {30}, {9}, {31}}}}));
  CHECK(rows->gathered.empty());
  for (const int64_t outside : {-1, 32}) {
    CHECK(refusal_of<DataError>([&] {
            trainer.will_need(Rows{0, outside}, 4);
          }) == "row " + std::to_string(outside) + " does not exist: the data set has rows 0 to 31");
  }
  CHECK(rows->told.at(4).size() == 4);
  trainer.step(first);
  trainer.step(second, 4);
  CHECK((rows->gathered == WatchedRows::Parts{{0, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}}, {4, rows->told.at(4)}}));
  CHECK(rows->told.size() == 1);
  rows->gathered.clear();
  trainer.evaluate();
  CHECK((rows->gathered == WatchedRows::Parts{{0, {first_rows(32)}}}));
}

TEST_CASE("the sizes of blocks that are evaluated differ by at most one, and none has more than 256 rows") {
  using Sizes = std::map<int64_t, int64_t>;  // how many blocks there are of each
  const std::map<int64_t, Sizes> expected = {{0, {}},
                                             {1, {{1, 1}}},
                                             {256, {{256, 1}}},
                                             {257, {{129, 1}, {128, 1}}},
                                             {600, {{200, 3}}},
                                             {10'000, {{250, 40}}},
                                             {10'007, {{251, 7}, {250, 33}}}};
  for (const auto& [rows, sizes] : expected) {
    INFO(rows << " rows");
    const Blocks blocks{.rows = rows};
    Sizes found;
    int64_t next = 0;
    for (int64_t block = 0; block < blocks.count(); ++block) {
      CHECK(blocks.begin(block) == next);
      next += blocks.size(block);
      ++found[blocks.size(block)];
    }
    CHECK(next == rows);
    CHECK(found == sizes);
  }
}

// As on GPUs, where a search takes seconds for each shape.
TEST_CASE(
    "convolutions of a step with fewer rows than those before are not searched for, as of an epoch's last") {
  std::mutex mutex;
  std::map<int64_t, std::set<bool>> searched;  // by rows of a shard
  const auto factory =
      model_factory<LeNetImpl>(uint64_t{0}, torch::kFloat32).loss([&](LeNetImpl& net, const Batch& in) {
        const std::lock_guard lock(mutex);
        searched[in.rows()].insert(at::globalContext().benchmarkCuDNN());
        return net.forward(in.input()).sum();
      });
  auto options = options_for(2);
  options.in_flight = 2;
  for (const bool search : {true, false}) {
    searched.clear();
    auto trainer = make_trainer(factory, options, std::make_shared<RowSource>(32));
    at::globalContext().setBenchmarkCuDNN(search);
    const Rows numbers{0, 1, 2, 3, 4, 5, 6, 7};
    for (const size_t rows : {6, 6, 8, 8, 2, 8, 4, 8}) trainer.step(std::span(numbers).first(rows));
    trainer.synchronize();
    CHECK((searched ==
           std::map<int64_t, std::set<bool>>{{1, {false}}, {2, {false}}, {3, {search}}, {4, {search}}}));
    CHECK(at::globalContext().benchmarkCuDNN() == search);
  }
}

TEST_CASE("a test set with other tensors than the training set is refused, with both") {
  const auto images = source(std::make_shared<RowSource>(8));
  const auto ids = resident_rows({torch::zeros({8, 3}, torch::kInt64), torch::zeros({8}, torch::kInt64)});
  CHECK(refusal_of([&] { Trainer(lenet_factory(), images, ids, options_for(1)); }) ==
        "the training set gives input Float [n, 1, 28, 28], target target Long [n], the test set input Long "
        "[n, 3], "
        "target target Long [n]");
}

TEST_CASE("processes whose data sets give other tensors are refused, the same in each") {
  const auto refusals = in_processes({1, 1}, {}, [](int process, const TrainerOptions& own) {
    const auto type = process == 0 ? torch::kFloat32 : torch::kFloat64;
    const auto rows = resident_rows({torch::zeros({8, 1, 28, 28}, type), torch::zeros({8}, torch::kInt64)});
    return refusal_of([&] { Trainer(lenet_factory(), rows, rows, own); });
  });
  CHECK(refusals[0] ==
        "the batches differ: process 1 has input Double [n, 1, 28, 28] where process 0 has input Float [n, "
        "1, 28, 28]");
  CHECK(refusals[1] == refusals[0]);
}
