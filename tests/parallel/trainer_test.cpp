
#include <catch2/catch.hpp>
#include <map>
#include <mutex>

#include <lockstep/models/lenet.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/support/stock_lenet.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// A source of made-up rows that remembers which were asked for.
class RecordingSource : public BatchSource {
 public:
  explicit RecordingSource(int64_t rows)
      : X_(torch::rand({rows, 1, 28, 28}, at::detail::createCPUGenerator(11),
                       torch::TensorOptions(torch::kFloat32))),
        y_(torch::arange(rows).mul(3).remainder(10)) {}

  int64_t size() const override { return X_.size(0); }
  void gather(std::span<const int64_t> rows, Inputs& into) const override {
    const auto index = torch::tensor(at::ArrayRef<int64_t>(rows.data(), rows.size()), torch::kInt64);
    into = {X_.index_select(0, index), y_.index_select(0, index)};
    const std::lock_guard lock(mutex_);
    for (const auto row : rows) ++asked_[row];
  }

  std::map<int64_t, int> asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  const torch::Tensor& X() const { return X_; }
  const torch::Tensor& y() const { return y_; }

 private:
  torch::Tensor X_, y_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, int> asked_;
};

struct Bench {
  explicit Bench(int world, int64_t rows = 600)
      : train(std::make_shared<RecordingSource>(rows)),
        test(std::make_shared<RecordingSource>(rows)),
        trainer(LeNet(0)->parameters(), lenet, counting(train), counting(test),
                {.devices = std::vector<torch::Device>(static_cast<size_t>(world), torch::kCPU),
                 .threads = 1,
                 .lr = .2}) {}

  SourceFactory counting(std::shared_ptr<RecordingSource> source) {
    return [this, source](torch::Device) {
      ++factory_calls;
      return source;
    };
  }

  int factory_calls = 0;
  std::shared_ptr<RecordingSource> train, test;
  Trainer trainer;
};

}  // namespace

TEST_CASE("replicas of one device share one source, and a step asks for each of its rows once") {
  Bench bench(3);
  CHECK(bench.factory_calls == 2);  // training and test
  const std::vector<int64_t> rows{599, 0, 17, 18, 19, 301, 5};
  bench.trainer.step(rows);
  const auto asked = bench.train->asked();
  CHECK(asked.size() == rows.size());
  for (const auto row : rows) CHECK(asked.at(row) == 1);
}

TEST_CASE("a step is one step of the whole batch, and its sums are read once") {
  const int world = GENERATE(1, 2, 5);
  INFO(world << " replicas");
  Bench bench(world);
  const std::vector<int64_t> rows{4, 3, 2, 1, 599, 300, 7};
  bench.trainer.step(rows);
  bench.trainer.step(rows);

  // Two steps of torch's own layers and optimizer on the same rows.
  auto net = stock_lenet(torch::kFloat32);
  copy_into(net, LeNet(0)->parameters());
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(.2));
  const auto index = torch::tensor(at::ArrayRef<int64_t>(rows), torch::kInt64);
  double loss_sum = 0;
  for (int step = 0; step < 2; ++step) {
    sgd.zero_grad();
    const auto logits = net->forward(bench.train->X().index_select(0, index));
    const auto loss = torch::nn::functional::cross_entropy(logits, bench.train->y().index_select(0, index));
    loss.backward();
    sgd.step();
    loss_sum += 7 * loss.item<double>();
  }
  for (int rank = 0; rank < world; ++rank) {
    for (size_t i = 0; i < 8; ++i) {
      CHECK(max_difference(bench.trainer.params(rank)[i], as_stock(net->parameters()[i])) <= 1e-6);
    }
  }
  const auto sums = bench.trainer.take_sums();
  CHECK(sums.rows == 14);
  CHECK(sums.loss == Approx(loss_sum).epsilon(1e-5));
  const auto none = bench.trainer.take_sums();
  CHECK(none.rows == 0);
  CHECK(none.loss == 0);
}

TEST_CASE("evaluation counts the same rows on any number of replicas") {
  const int64_t rows = GENERATE(1, 255, 256, 600);
  const auto expected = [&] {
    const Bench bench(1, rows);
    auto net = stock_lenet(torch::kFloat32);
    copy_into(net, LeNet(0)->parameters());
    const auto logits = net->forward(bench.test->X());
    return std::pair((logits.argmax(1) == bench.test->y()).sum().item<int64_t>(),
                     torch::nn::functional::cross_entropy(logits, bench.test->y()).item<double>());
  }();
  double first_loss = 0;
  for (const int world : {1, 2, 3, 5}) {
    INFO(rows << " rows, " << world << " replicas");
    Bench bench(world, rows);
    const auto result = bench.trainer.evaluate();
    CHECK(result.rows == rows);
    CHECK(result.correct == expected.first);
    CHECK(result.loss() == Approx(expected.second).epsilon(1e-5));
    if (world == 1) first_loss = result.loss_sum;
    CHECK(result.loss_sum == first_loss);  // to the last bit
    const auto asked = bench.test->asked();
    CHECK(asked.size() == static_cast<size_t>(rows));
    for (const auto& [row, times] : asked) CHECK(times == 1);
  }
}
