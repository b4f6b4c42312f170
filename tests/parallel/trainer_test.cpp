#include <ATen/CPUGeneratorImpl.h>

#include <lockstep/tests/catch.h>
#include <atomic>
#include <latch>
#include <mutex>

#include <lockstep/models/lenet.h>
#include <lockstep/models/resnet18.h>
#include <lockstep/parallel/main_thread.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/classification.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/threads.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using Rows = std::vector<int64_t>;

// Full, uneven, fewer rows than replicas, a single row.
const std::vector<Rows> kBatches = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                    {30, 29, 7, 3, 1},
                                    {17},
                                    {2, 4, 8, 16, 31, 5, 6, 7, 20, 21, 22, 23, 24, 25, 26, 0},
                                    {9, 8, 7, 6, 5, 4, 3}};

struct Mishap : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TrainerOptions options_for(int world) {
  TrainerOptions options;
  options.devices = std::vector<torch::Device>(static_cast<size_t>(world), torch::kCPU);
  options.lr = {.lr = .2};
  return options;
}

Trainer make_trainer(const ModelFactory& factory, const TrainerOptions& options,
                     std::shared_ptr<RowSource> train = std::make_shared<RowSource>(32)) {
  return Trainer(factory, source(train), source(train), options);
}

ModelFactory lenet_factory() { return model_factory<LeNetImpl>(uint64_t{0}, torch::kFloat32); }

ModelFactory small_residual_factory(bool batch_norm = false) {
  ResNet18Options options;
  options.width = 8;
  options.batch_norm = batch_norm;
  options.initialization = Initialization::kTorch;
  return model_factory<ResNet18Impl>(options);
}

// Every parameter of every replica has changed as in training on the whole batch, up to 1e-10 of its largest
// gradient.
void check_moved_alike(Trainer& trainer, const WholeBatch& whole, const Params& largest, double lr) {
  const auto expected = whole.module().named_parameters();
  for (int rank = 0; rank < trainer.world_size(); ++rank) {
    for (const auto& [name, tensor] : trainer.weights(rank)) {
      const auto* param = expected.find(name);
      if (!param) continue;  // a buffer
      const auto i = static_cast<size_t>(std::distance(
          expected.begin(), std::find_if(expected.begin(), expected.end(),
                                         [&](const auto& item) { return item.key() == name; })));
      INFO("rank " << rank << ", " << name);
      CHECK(max_difference(tensor, *param) <= 1e-10 * lr * largest[i].item<double>() + 1e-17);
    }
  }
}

void check_against_whole_batch(const ModelFactory& factory, TrainerOptions options,
                               torch::optim::SGDOptions sgd) {
  options.replica.precision = Precision::kFp64;
  const auto rows = std::make_shared<RowSource>(32);
  auto trainer = make_trainer(factory, options, rows);
  WholeBatch whole(factory, sgd);
  Params largest;  // sum of max |g| over the steps so far, one per parameter
  for (const auto& batch : kBatches) {
    trainer.step(batch);
    const auto gradients = whole.step(rows->batch(batch));
    largest.resize(gradients.size(), torch::zeros({}, torch::kFloat64));
    for (size_t i = 0; i < gradients.size(); ++i) largest[i] = largest[i] + gradients[i].abs().max();
    check_moved_alike(trainer, whole, largest, options.lr.lr);
  }
  const auto sums = trainer.take_sums();
  CHECK(sums.rows == 16 + 5 + 1 + 16 + 7);
  CHECK(sums.loss == Approx(whole.loss_sum()).epsilon(1e-9));
  CHECK_FALSE(sums.bad);
}

void check_every_pair(const ModelFactory& factory) {
  const auto allreduce = GENERATE(Allreduce::kRoot, Allreduce::kTwoShot, Allreduce::kRing, Allreduce::kAuto);
  const auto sync = GENERATE(SyncMode::kParameterwise, SyncMode::kBucketed, SyncMode::kOverlapped);
  for (const int world : {1, 2, 3, 4, 8}) {
    INFO(world << " replicas, " << name_of(kAllreduceNames, allreduce) << ", "
               << name_of(kSyncModeNames, sync));
    auto options = options_for(world);
    options.allreduce = allreduce;
    options.replica.sync = {.mode = sync, .bucket_bytes = 300'000};  // several buckets
    check_against_whole_batch(factory, options, torch::optim::SGDOptions(.2));
  }
}

}  // namespace

TEST_CASE("k replicas take the same steps as the whole batch: every allreduce x every sync mode, LeNet") {
  check_every_pair(lenet_factory());
}

TEST_CASE(
    "k replicas take the same steps as the whole batch: every allreduce x every sync mode, residual "
    "network") {
  check_every_pair(small_residual_factory());
}

TEST_CASE("momentum, weight decay, Nesterov and micro-batches give the same steps as torch's SGD") {
  const int accumulate = GENERATE(1, 3);
  auto options = options_for(2);
  options.accumulate = accumulate;
  options.replica.optimizer = {.momentum = .9, .nesterov = true, .weight_decay = .01};
  check_against_whole_batch(lenet_factory(), options,
                            torch::optim::SGDOptions(.2).momentum(.9).nesterov(true).weight_decay(.01));
}

TEST_CASE("an uneven split gives the same steps") {
  auto options = options_for(3);
  options.split = {5, 0, 2.5};
  check_against_whole_batch(lenet_factory(), options, torch::optim::SGDOptions(.2));
}

TEST_CASE("the comparison fails for another learning rate") {
  auto options = options_for(2);
  options.replica.precision = Precision::kFp64;
  const auto rows = std::make_shared<RowSource>(32);
  auto trainer = make_trainer(lenet_factory(), options, rows);
  WholeBatch whole(lenet_factory(), torch::optim::SGDOptions(.2 * (1 + 1e-8)));
  trainer.step(kBatches[0]);
  const auto gradients = whole.step(rows->batch(kBatches[0]));
  bool noticed = false;
  const auto weights = trainer.weights();
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto bound = 1e-10 * .2 * max_abs(gradients[i]) + 1e-17;
    noticed |= max_difference(weights[i].tensor, whole.module().parameters()[i]) > bound;
  }
  CHECK(noticed);
}

TEST_CASE("replicas stay bit-identical, and the same steps give the same bits") {
  const int world = GENERATE(2, 3, 8);
  const auto allreduce = GENERATE(Allreduce::kRoot, Allreduce::kTwoShot, Allreduce::kRing, Allreduce::kAuto);
  auto options = options_for(world);
  options.allreduce = allreduce;
  options.replica.optimizer.momentum = .9;
  options.replica.clip_norm = .05;
  auto a = make_trainer(lenet_factory(), options), b = make_trainer(lenet_factory(), options);
  for (const auto& batch : kBatches) {
    a.step(batch);
    b.step(batch);
    const auto first = a.weights(0);
    for (int rank = 0; rank < world; ++rank) {
      const auto others = a.weights(rank), again = b.weights(rank);
      for (size_t i = 0; i < first.size(); ++i) {
        INFO("rank " << rank << ", " << first[i].name);
        CHECK(others[i].tensor.equal(first[i].tensor));
        CHECK(again[i].tensor.equal(first[i].tensor));
      }
    }
  }
}

TEST_CASE("replicas on one device share one source, and a step reads each of its rows once") {
  int factory_calls = 0;
  const auto rows = std::make_shared<RowSource>(32);
  const SourceFactory counting = [&](torch::Device) {
    ++factory_calls;
    return rows;
  };
  Trainer trainer(lenet_factory(), counting, counting, options_for(3));
  CHECK(factory_calls == 2);  // training and test
  const Rows batch{31, 0, 17, 18, 19, 30, 5};
  trainer.step(batch);
  const auto asked = rows->asked();
  CHECK(asked.size() == batch.size());
  for (const auto row : batch) CHECK(asked.at(row) == 1);
}

TEST_CASE("take_sums() returns the sums since its last call") {
  auto trainer = make_trainer(lenet_factory(), options_for(2));
  trainer.step(kBatches[0]);
  trainer.step(kBatches[1]);
  const auto sums = trainer.take_sums();
  CHECK(sums.rows == 21);
  CHECK(sums.loss / 21 ==
        Approx(std::log(10)).epsilon(.01));  // small initial weights: all classes equally likely
  CHECK(sums.top5 >= sums.top1);
  const auto none = trainer.take_sums();
  CHECK(none.rows == 0);
  CHECK(none.loss == 0);
}

TEST_CASE("evaluation counts the same rows on any number of replicas") {
  const int64_t rows = GENERATE(1, 255, 256, 600);
  const auto test = std::make_shared<RowSource>(rows);
  const auto model = lenet_factory()();
  const auto logits = std::dynamic_pointer_cast<LeNetImpl>(model.module)->forward(test->all().X);
  const auto right = (logits.argmax(1) == test->all().y).sum().item<int64_t>();
  const auto order = logits.argsort(1, /*descending=*/true).slice(1, 0, 5);
  const auto among_five = (order == test->all().y.unsqueeze(1)).any(1).sum().item<int64_t>();
  const auto loss = torch::cross_entropy_loss(logits, test->all().y).item<double>();
  double first_loss = 0;
  for (const int world : {1, 2, 3, 5}) {
    INFO(rows << " rows, " << world << " replicas");
    auto trainer = make_trainer(lenet_factory(), options_for(world), test);
    const auto result = trainer.evaluate();
    CHECK(result.rows == rows);
    CHECK(result.top1 == right);
    CHECK(result.top5 == among_five);
    CHECK(result.loss() == Approx(loss).epsilon(1e-5));
    if (world == 1) first_loss = result.loss_sum;
    CHECK(result.loss_sum == first_loss);  // the same bits
  }
}

TEST_CASE("evaluation reports its progress, to the last row") {
  const auto test = std::make_shared<RowSource>(600);  // blocks of 256, 256 and 88 rows
  for (const int world : {1, 2, 5}) {
    auto trainer = make_trainer(lenet_factory(), options_for(world), test);
    std::vector<int64_t> told;
    trainer.evaluate([&](int64_t done, int64_t rows) {
      CHECK(rows == 600);
      told.push_back(done);
    });
    CHECK(told.size() == 3);
    CHECK(std::is_sorted(told.begin(), told.end()));
    CHECK(told.back() == 600);
  }
}

TEST_CASE("an exception of the progress callback ends the evaluation, and the trainer can be used again") {
  struct Enough : std::exception {};
  const auto test = std::make_shared<RowSource>(2000);
  const int world = GENERATE(1, 2, 5);
  auto trainer = make_trainer(lenet_factory(), options_for(world), test);
  const auto whole = trainer.evaluate();
  int64_t calls = 0;
  CHECK_THROWS_AS(trainer.evaluate([&](int64_t, int64_t) {
    ++calls;
    throw Enough();
  }),
                  Enough);
  CHECK(calls == 1);
  const auto& module = *trainer.model(world - 1).module;
  CHECK(module.is_training());
  CHECK(trainer.evaluate().loss_sum == whole.loss_sum);
}

TEST_CASE("all replicas start from the first one's weights, and only its construction draws random numbers") {
  int built = 0;
  const ModelFactory differing = [&] {
    const auto drawn = torch::rand({1}).item<double>();
    CHECK(drawn >= 0);
    return model_factory<LeNetImpl>(static_cast<uint64_t>(built++), torch::kFloat32)();
  };
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(5);
  torch::rand({1});
  const auto expected = generator.get_state();
  generator.set_current_seed(5);
  auto trainer = make_trainer(differing, options_for(3));
  CHECK(built == 3);
  CHECK(generator.get_state().equal(expected));
  const LeNet first(0);
  for (int rank = 0; rank < 3; ++rank) {
    const auto weights = trainer.weights(rank);
    for (size_t i = 0; i < weights.size(); ++i) CHECK(weights[i].tensor.equal(first->parameters()[i]));
  }
}

TEST_CASE("an error in one replica ends the step on all, is thrown once, and leaves no thread behind") {
  const int guilty = GENERATE(0, 1, 2);
  const auto mode = GENERATE(SyncMode::kParameterwise, SyncMode::kOverlapped);
  leave_cores_to_replicas();  // otherwise torch would start a thread for this one and keep it
  const auto before = thread_count();
  {
    int built = 0;
    std::atomic<int> calls = 0;
    const ModelFactory failing = [&] {
      auto model = lenet_factory()();
      if (built++ != guilty) return model;
      auto loss = model.loss_sum;
      model.loss_sum = [&calls, loss](const Inputs& rows) {
        if (++calls == 2) throw Mishap("in the second step");
        return loss(rows);
      };
      return model;
    };
    auto options = options_for(3);
    options.replica.sync.mode = mode;
    auto trainer = make_trainer(failing, options);
    trainer.step(kBatches[0]);
    CHECK_THROWS_AS(trainer.step(kBatches[0]), Mishap);
    CHECK_THROWS(trainer.step(kBatches[0]));  // throws instead of hanging
  }
  CHECK(thread_count_down_to(before) == before);
}

TEST_CASE("a loss that is not finite is reported with its step and replica") {
  int built = 0;
  const ModelFactory poisoned = [&] {
    auto model = lenet_factory()();
    if (built++ != 1) return model;
    auto loss = model.loss_sum;
    auto calls = std::make_shared<int>(0);
    model.loss_sum = [loss, calls](const Inputs& rows) {
      auto outcome = loss(rows);
      if (++*calls == 3) outcome.loss = outcome.loss * std::numeric_limits<double>::quiet_NaN();
      return outcome;
    };
    return model;
  };
  auto trainer = make_trainer(poisoned, options_for(2));
  for (int step = 0; step < 5; ++step) trainer.step(kBatches[0]);
  const auto sums = trainer.take_sums();
  REQUIRE(sums.bad);
  CHECK(sums.bad->step == 2);
  CHECK(sums.bad->rank == 1);
}

TEST_CASE("gradients are summed once per step for any number of micro-batches") {
  for (const int accumulate : {1, 4}) {
    Trace trace;
    auto options = options_for(2);
    options.accumulate = accumulate;
    options.replica.trace = &trace;
    auto trainer = make_trainer(lenet_factory(), options);
    const auto count = [&](std::string_view what) {
      const auto events = trace.events();
      return std::count_if(events.begin(), events.end(), [&](const auto& event) {
        return event.rank == 0 && std::string_view(event.name).starts_with(what);
      });
    };
    const auto before = count("allreduce");
    trainer.step(kBatches[0]);
    CHECK(count("backward") == accumulate);
    CHECK(count("allreduce") - before == 1);  // LeNet fits in one bucket
  }
}

TEST_CASE("a batch of no rows is refused") {
  auto trainer = make_trainer(lenet_factory(), options_for(2));
  CHECK_THROWS_AS(trainer.step(Rows{}), UsageError);
}

TEST_CASE("the learning rate follows its schedule") {
  auto options = options_for(1);
  options.replica.precision = Precision::kFp64;
  options.lr = {.schedule = Schedule::kCosine, .lr = .2, .total_steps = 5, .warmup_steps = 2};
  const auto rows = std::make_shared<RowSource>(32);
  auto trainer = make_trainer(lenet_factory(), options, rows);
  WholeBatch whole(lenet_factory(), torch::optim::SGDOptions(1));
  const std::vector<double> expected = {.1, .2, .2, .15, .05};  // cosine of 0, 60 and 120 degrees
  for (const double lr : expected) {
    CHECK(trainer.lr() == Approx(lr));
    static_cast<torch::optim::SGDOptions&>(whole.optimizer().param_groups()[0].options()).lr(lr);
    trainer.step(kBatches[0]);
    whole.step(rows->batch(kBatches[0]));
  }
  CHECK(max_difference(trainer.weights()[0].tensor, whole.module().parameters()[0]) <= 1e-14);
}

TEST_CASE("in bf16 a model gets bf16 weights if it can use them, with the same bits as without") {
  const int world = GENERATE(1, 2);
  const auto plain = small_residual_factory(/*batch_norm=*/true);
  std::mutex mutex;
  std::vector<Params> bf16_weights;  // of all replicas, which have the same bits
  const ModelFactory without = [&] {
    auto model = plain();
    model.use_bf16_weights = {};
    return model;
  };
  const ModelFactory with = [&] {
    auto model = plain();
    model.use_bf16_weights = [&, use = model.use_bf16_weights](const Params& given) {
      use(given);
      const std::lock_guard lock(mutex);
      bf16_weights.push_back(given);
    };
    return model;
  };
  auto options = options_for(world);
  options.threads = 1;
  options.replica.precision = Precision::kBf16;
  options.replica.optimizer.momentum = .9;
  auto expected = make_trainer(without, options);
  auto found = make_trainer(with, options);
  CHECK(bf16_weights.size() == static_cast<size_t>(world));
  for (const auto& rows : kBatches) {
    if (rows.size() < 4) continue;  // a batch norm needs more than one value
    expected.step(rows);
    found.step(rows);
  }
  const auto weights = found.weights(0);
  const auto expected_weights = expected.weights(0);
  for (size_t i = 0; i < weights.size(); ++i) {
    INFO(weights[i].name);
    CHECK(weights[i].tensor.equal(expected_weights[i].tensor));
  }
  const auto params = found.model(0).module->parameters();
  REQUIRE(bf16_weights[0].size() == params.size());
  for (size_t i = 0; i < params.size(); ++i) CHECK(bf16_weights[0][i].equal(params[i].to(torch::kBFloat16)));

  auto fp32 = options_for(1);
  bf16_weights.clear();
  make_trainer(with, fp32);
  CHECK(bf16_weights.empty());
}

TEST_CASE("with two steps in flight training gives the same sums and weights") {
  const auto trained = [](int in_flight) {
    auto options = options_for(3);
    options.in_flight = in_flight;
    const auto rows = std::make_shared<RowSource>(32);
    auto trainer = make_trainer(lenet_factory(), options, rows);
    std::vector<double> losses;
    for (int round = 0; round < 3; ++round) {
      for (const auto& batch : kBatches) trainer.step(batch);
      losses.push_back(trainer.take_sums().loss);
      losses.push_back(trainer.evaluate().loss_sum);
    }
    CHECK(trainer.steps_taken() == 15);
    trainer.step(kBatches[0]);
    return std::pair(losses, trainer.weights());  // waits for that step
  };
  const auto [losses, weights] = trained(1);
  const auto [two_losses, two_weights] = trained(2);
  CHECK(losses == two_losses);
  for (size_t i = 0; i < weights.size(); ++i) {
    INFO(weights[i].name);
    CHECK(torch::equal(weights[i].tensor, two_weights[i].tensor));
  }
}

TEST_CASE("with two steps in flight step() returns while the replicas compute") {
  std::latch returned(1);  // no replica computes before step() has returned
  const ModelFactory waiting = [&] {
    auto model = lenet_factory()();
    model.loss_sum = [&returned, loss = model.loss_sum](const Inputs& rows) {
      returned.wait();
      return loss(rows);
    };
    return model;
  };
  auto options = options_for(2);
  options.in_flight = 2;
  auto trainer = make_trainer(waiting, options);
  Rows batch = kBatches[0];
  trainer.step(batch);
  batch.assign(16, 99);  // not rows of the data: the trainer has copied the batch
  returned.count_down();
  CHECK(trainer.take_times().compute > 0);
  CHECK(trainer.take_times().compute == 0);
  CHECK(trainer.take_sums().rows == 16);
}

TEST_CASE(
    "an error of a step in flight is thrown by a later call, and a trainer may be destroyed before its steps "
    "end") {
  leave_cores_to_replicas();  // otherwise torch would start a thread for this one and keep it
  const auto before = thread_count();
  {
    const ModelFactory failing = [] {
      auto model = lenet_factory()();
      model.loss_sum = [](const Inputs&) -> Outcome { throw Mishap("in flight"); };
      return model;
    };
    auto options = options_for(3);
    options.in_flight = 2;
    auto trainer = make_trainer(failing, options);
    trainer.step(kBatches[0]);
    CHECK_THROWS_AS(trainer.step(kBatches[0]), Mishap);
    auto unasked = make_trainer(failing, options);
    unasked.step(kBatches[0]);
    auto fine = make_trainer(lenet_factory(), options);
    fine.step(kBatches[0]);
  }
  CHECK(thread_count_down_to(before) == before);
}
