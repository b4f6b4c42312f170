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

// As on GPUs, where a search takes seconds for each shape.
TEST_CASE(
    "convolutions of a number of rows that is rare are not searched for, as those of an epoch's last batch") {
  std::mutex mutex;
  std::map<int64_t, std::vector<bool>> searched;  // by rows of a shard, in turn
  const auto factory =
      model_factory<LeNetImpl>(uint64_t{0}, torch::kFloat32).loss([&](LeNetImpl& net, const Batch& in) {
        const std::lock_guard lock(mutex);
        searched[in.rows()].push_back(at::globalContext().benchmarkCuDNN());
        if (in.rows() == 1) throw Mishap("in the last batch");
        return net.forward(in.input()).sum();
      });
  auto options = options_for(1);
  options.in_flight = 2;
  for (const bool search : {true, false}) {
    searched.clear();
    auto trainer = make_trainer(factory, options);
    at::globalContext().setBenchmarkCuDNN(search);
    const auto step = [&](int64_t rows) { trainer.step(first_rows(rows)); };
    for (const int64_t rows : {3, 3, 4, 4}) step(rows);
    for (int i = 0; i < 51; ++i) {
      step(2);
      step(4);
    }
    trainer.synchronize();
    CHECK(at::globalContext().benchmarkCuDNN() == search);
    CHECK(searched[3] == std::vector<bool>(2, search));  // the most rows so far
    CHECK(searched[4] == std::vector<bool>(53, search));
    auto of_two = std::vector<bool>(50, false);
    of_two.push_back(search);  // no longer rare
    CHECK(searched[2] == of_two);
    CHECK_THROWS_AS((step(1), trainer.synchronize()), std::exception);
    CHECK(at::globalContext().benchmarkCuDNN() == search);
  }
}

TEST_CASE("what a step cannot take is refused before anything is computed, and the trainer can be used") {
  auto trainer = make_trainer(lenet_factory(), options_for(2));
  auto same = make_trainer(lenet_factory(), options_for(2));
  CHECK(refusal_of([&] { trainer.step(Rows{}); }) == "a batch of 0 rows cannot be trained on");
  CHECK(refusal_of([&] { trainer.step(first_rows(4), /*epoch=*/-1); }) == "epoch is -1");
  for (const int64_t outside : {-1, 32}) {
    CHECK_THAT(refusal_of<DataError>([&] {
                 trainer.step(Rows{0, 1, outside});
               }),
               ContainsSubstring("row " + std::to_string(outside)));
  }
  for (const int local : {-1, 2}) {
    CHECK(refusal_of([&] { trainer.model(local); }) ==
          "this process has no replica " + std::to_string(local));
    CHECK_THAT(refusal_of([&] { trainer.weights(local); }), ContainsSubstring("has no replica"));
  }
  trainer.step(first_rows(8));
  same.step(first_rows(8));
  CHECK(same_tensors(trainer.weights(), same.weights()));
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
