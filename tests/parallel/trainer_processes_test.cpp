// The Trainer in several processes: the same training on any layout of the replicas.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/tests/catch.h>
#include <numeric>
#include <utility>

#include <lockstep/models/lenet.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Also some rows, but fewer than the four replicas.
const std::vector<Rows> kAllBatches = [] {
  auto batches = kBatches;
  batches.push_back({2, 4, 8});
  return batches;
}();

// All replicas' parameters, from the first local one on.
std::vector<Params> params_of(Trainer& trainer) {
  const torch::NoGradGuard no_grad;
  trainer.synchronize();
  std::vector<Params> all;
  for (int local = 0; local < trainer.local_size(); ++local) {
    auto& params = all.emplace_back();
    for (const auto& param : trainer.model(local).module->parameters()) params.push_back(param.clone());
  }
  return all;
}

// With a batch norm. Its numbers are the same whenever and wherever it is built, although torch's layers draw
// some first.
class NormedNet : public torch::nn::Module {
 public:
  NormedNet()
      : inner_(register_module("inner", torch::nn::Linear(784, 12))),
        norm_(register_module("norm", torch::nn::BatchNorm2d(4))),
        outer_(register_module("outer", torch::nn::Linear(12, 10))) {
    const torch::NoGradGuard no_grad;
    double phase = 0;
    for (auto& param : parameters()) {
      const auto numbers = torch::arange(param.numel(), torch::kFloat32).mul(.7).add(++phase).sin();
      param.copy_(numbers.mul(.2).view_as(param));
    }
  }

  torch::Tensor forward(const torch::Tensor& X) {
    const auto hidden = norm_(inner_(X.flatten(1)).view({-1, 4, 3, 1}));
    return outer_(hidden.relu().flatten(1));
  }

 private:
  torch::nn::Linear inner_;
  torch::nn::BatchNorm2d norm_;
  torch::nn::Linear outer_;
};

struct Trained {
  int world_size = 0;
  int first_rank = 0;
  std::vector<Params> params;  // [local replica]
  std::vector<NamedTensor> weights;
  TrainSums first, rest;  // of the first step, and of the others
  RowSums evaluation;
};

Trained train(int, const TrainerOptions& options) {
  const auto rows = source(std::make_shared<RowSource>(600));  // three blocks of an evaluation
  Trainer trainer(two_layers(), rows, rows, options);
  Trained result;
  result.world_size = trainer.world_size();
  result.first_rank = trainer.first_rank();
  for (const auto& batch : kAllBatches) {
    trainer.step(batch);
    if (trainer.steps_taken() == 1) result.first = trainer.take_sums();
  }
  result.rest = trainer.take_sums();
  result.evaluation = trainer.evaluate();
  result.params = params_of(trainer);
  result.weights = trainer.weights(trainer.local_size() - 1);
  return result;
}

// The parameters after the same training in plain torch, and how far rounding may move them.
struct Expected {
  Params params;
  Params largest;  // () each: sum of max |gradient| over the steps
  double loss = 0;
};

Expected train_whole(double lr) {
  const RowSource rows(600);
  WholeBatch whole(two_layers(), torch::optim::SGDOptions(lr).momentum(.9));
  Expected expected;
  for (const auto& batch : kAllBatches) {
    const auto gradients = whole.step(rows.batch(batch));
    expected.largest.resize(gradients.size(), torch::zeros({}, torch::kFloat64));
    for (size_t i = 0; i < gradients.size(); ++i) {
      expected.largest[i] = expected.largest[i] + gradients[i].abs().max();
    }
  }
  for (const auto& param : whole.module().parameters()) expected.params.push_back(param.detach().clone());
  expected.loss = whole.loss_sum();
  return expected;
}

void check_near(const Params& params, const Expected& expected, double lr) {
  REQUIRE(params.size() == expected.params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    const double bound = 1e-10 * lr * expected.largest[i].item<double>() + 1e-17;
    CHECK(max_difference(params[i], expected.params[i]) <= bound);
  }
}

}  // namespace

TEST_CASE("replicas in several processes train as the whole batch on one device, with the same sums") {
  constexpr double kRate = .2;
  const auto sync = GENERATE(SyncMode::kParameterwise, SyncMode::kBucketed, SyncMode::kOverlapped);
  TrainerOptions options;
  options.lr = {.lr = kRate};
  options.replica.precision = Precision::kFp64;
  options.replica.optimizer.momentum = .9;
  options.replica.sync = {.mode = sync, .bucket_bytes = 1000};
  if (sync == SyncMode::kBucketed) options.accumulate = 2;
  const auto expected = train_whole(kRate);
  const auto in_one = in_processes({4}, options, train);
  for (const auto& layout : kLayouts) {
    const auto found = in_processes(layout, options, train);
    int first_rank = 0;
    for (size_t process = 0; process < layout.size(); ++process) {
      INFO(text_of(layout) << ", process " << process << ", " << name_of(kSyncModeNames, sync));
      const auto& own = found[process];
      CHECK(own.world_size == 4);
      CHECK(own.first_rank == first_rank);
      first_rank += layout[process];
      REQUIRE(own.params.size() == static_cast<size_t>(layout[process]));
      for (const auto& params : own.params) {
        check_near(params, expected, kRate);
        for (size_t i = 0; i < params.size(); ++i) CHECK(params[i].equal(found[0].params[0][i]));
      }
      check_same_tensors(own.weights, found[0].weights);
      // Before the first update all layouts compute the same numbers, and they are added in the same order.
      check_same_sums(own.first, in_one[0].first);
      check_same_sums(own.rest, found[0].rest);
      CHECK(own.rest["top1"] == in_one[0].rest["top1"]);
      CHECK(own.rest.rows == 5 + 1 + 16 + 7 + 3);
      CHECK(own.first.loss + own.rest.loss == Approx(expected.loss).epsilon(1e-9));
      CHECK_FALSE(own.rest.bad);
      check_same_sums(own.evaluation, found[0].evaluation);
      CHECK(own.evaluation.rows == 600);
      for (const auto* name : {"top1", "top5"}) CHECK(own.evaluation[name] == in_one[0].evaluation[name]);
    }
  }
}

TEST_CASE("each process reads its own rows of a batch, each row once, by even shares or by a split") {
  const bool even = GENERATE(true, false);
  TrainerOptions options;
  options.lr = {.lr = .1};
  if (!even) options.split = {3, 1};
  const auto asked =
      in_processes(even ? Layout{1, 3} : Layout{1, 1}, options, [](int, const TrainerOptions& own) {
        const auto rows = std::make_shared<RowSource>(32);
        Trainer trainer(two_layers(), source(rows), source(rows), own);
        trainer.step(first_rows(16));
        return rows->asked();
      });
  const int64_t border = even ? 4 : 12;  // the first replica has the first rows
  for (int64_t row = 0; row < 16; ++row) {
    INFO("row " << row);
    CHECK(asked[0].count(row) == (row < border ? 1u : 0u));
    CHECK(asked[1].count(row) == (row < border ? 0u : 1u));
  }
  for (const auto& rows : asked) {
    for (const auto& [row, times] : rows) CHECK((row < 16 && times == 1));
  }
}

TEST_CASE("an uneven split over two processes gives the same steps") {
  constexpr double kRate = .2;
  TrainerOptions options;
  options.lr = {.lr = kRate};
  options.replica.precision = Precision::kFp64;
  options.replica.optimizer.momentum = .9;
  const auto expected = train_whole(kRate);
  for (const auto& [layout, split] : std::vector<std::pair<Layout, std::vector<double>>>{
           {{1, 1}, {3, 1}}, {{2, 1}, {5, 0, 2.5}}, {{1, 2}, {0, 0, 1}}}) {
    options.split = split;
    const auto found = in_processes(layout, options, train);
    for (const auto& own : found) {
      INFO(text_of(layout));
      for (const auto& params : own.params) check_near(params, expected, kRate);
    }
  }
}

TEST_CASE("invariant: the layout does not change a bit of the weights and statistics") {
  TrainerOptions options;
  options.lr = {.lr = .1};
  options.replica.invariant = true;
  options.replica.optimizer.momentum = .9;
  options.replica.clip_norm = 1;
  const auto trained = [](int, const TrainerOptions& own) {
    const auto rows = source(std::make_shared<RowSource>(67));
    Trainer trainer(model_factory<NormedNet>(), rows, rows, own);
    // 67 rows are micro-shards of 9 and 8; 5 rows leave some without any.
    for (const int64_t count : {67, 5, 16, 67}) trainer.step(first_rows(count));
    return trainer.weights(trainer.local_size() - 1);
  };
  const auto alone = in_processes({1}, options, trained)[0];
  auto layouts = kLayouts;
  layouts.push_back({1, 1});
  layouts.push_back({5, 3});
  for (const auto& layout : layouts) {
    INFO(text_of(layout));
    for (const auto& weights : in_processes(layout, options, trained)) check_same_tensors(weights, alone);
  }
  // The comparison notices a difference: without `invariant` there is one.
  options.replica.invariant = false;
  int same = 0;
  const auto free = in_processes({2, 2}, options, trained)[0];
  for (size_t i = 0; i < alone.size(); ++i) same += free[i].tensor.equal(alone[i].tensor) ? 1 : 0;
  CHECK(same < static_cast<int>(alone.size()) / 2);
}

TEST_CASE("batch-norm statistics follow their policy over all processes") {
  TrainerOptions options;
  options.lr = {.lr = .1};
  options.bn = GENERATE(BnPolicy::kRoot, BnPolicy::kAverage);
  options.replica.precision = Precision::kFp64;
  const auto trained = [](int, const TrainerOptions& own) {
    const auto rows = source(std::make_shared<RowSource>(32));
    Trainer trainer(model_factory<NormedNet>(), rows, rows, own);
    trainer.step(first_rows(16));
    trainer.step(Rows{31, 4, 15, 9, 26, 5, 3, 7, 2});  // shards of 3, 2, 2 and 2 rows
    return trainer.weights(trainer.local_size() - 1);
  };
  const auto in_one = in_processes({4}, options, trained)[0];
  for (const auto& layout : kLayouts) {
    INFO(text_of(layout));
    for (const auto& weights : in_processes(layout, options, trained)) {
      REQUIRE(weights.size() == in_one.size());
      for (size_t i = 0; i < weights.size(); ++i) {
        INFO(weights[i].name);
        // An absolute bound for biases before a batch norm, whose true gradient is zero.
        CHECK(max_difference(weights[i].tensor, in_one[i].tensor) <=
              1e-10 * max_abs(in_one[i].tensor) + 1e-12);
      }
    }
  }
}

TEST_CASE("all processes start from rank 0's weights") {
  const auto weights = in_processes({1, 2}, {}, [](int process, const TrainerOptions& own) {
    int built = 0;
    const ModelFactory differing = [&] {
      return model_factory<LeNetImpl>(static_cast<uint64_t>(10 * process + built++), torch::kFloat32)();
    };
    const auto rows = source(std::make_shared<RowSource>(4));
    Trainer trainer(differing, rows, rows, own);
    return trainer.weights(trainer.local_size() - 1);
  });
  const LeNet first(0);
  for (const auto& own : weights) {
    for (size_t i = 0; i < own.size(); ++i) CHECK(own[i].tensor.equal(first->parameters()[i]));
  }
}

TEST_CASE("auto_split gives the same shares in all processes, after every step") {
  struct Shares {
    std::vector<std::vector<double>> shares;  // [step]
    std::vector<int> settled;                 // [step]
  };
  const auto layout = GENERATE(Layout{1, 1}, Layout{2, 1});
  TrainerOptions options;
  options.auto_split = true;
  const auto found = in_processes(layout, options, [](int, const TrainerOptions& own) {
    const auto rows = source(std::make_shared<RowSource>(64));
    Trainer trainer(two_layers(), rows, rows, own);
    Shares result;
    for (int step = 0; step < 40; ++step) {
      trainer.step(first_rows(64));
      result.shares.push_back(trainer.split());
      result.settled.push_back(trainer.split_settled() ? 1 : 0);
    }
    return result;
  });
  const size_t world = static_cast<size_t>(world_of(layout));
  for (const auto& own : found) {
    CHECK(own.shares == found[0].shares);
    CHECK(own.settled == found[0].settled);
    CHECK(own.settled.back() == 1);
    CHECK(own.shares.back().size() == world);
    CHECK(std::accumulate(own.shares.back().begin(), own.shares.back().end(), 0.) == Approx(1));
  }
  CHECK(found[0].shares.back() != std::vector<double>(world, 1. / static_cast<double>(world)));
}
