// A trainer's replicas, sums, evaluations and errors.
#include <ATen/CPUGeneratorImpl.h>

#include <fmt/format.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/tests/catch.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include <lockstep/parallel/main_thread.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/threads.h>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("replicas stay bit-identical, and the same steps give the same bits") {
  const int world = GENERATE(2, 3, 8);
  const auto allreduce = GENERATE(Allreduce::kRoot, Allreduce::kTwoShot, Allreduce::kRing);
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
      INFO("rank " << rank);
      check_same_tensors(a.weights(rank), first);
      check_same_tensors(b.weights(rank), first);
    }
  }
}

TEST_CASE("a trainer without a model or data is refused") {
  const auto rows = source(std::make_shared<RowSource>(8));
  const auto of = [&](bool module, bool loss) {
    auto model = lenet_factory()();
    if (!module) model.module = nullptr;
    if (!loss) model.loss_sum = nullptr;
    return [model] { return model; };
  };
  const SourceFactory nothing = [](torch::Device) { return std::shared_ptr<const BatchSource>(); };
  const std::tuple<ModelFactory, SourceFactory, SourceFactory, const char*> cases[] = {
      {of(true, true), rows, rows, ""},
      {{}, rows, rows, "the model factory is empty"},
      {of(false, true), rows, rows, "the model factory returned a model without module"},
      {of(true, false), rows, rows, "the model factory returned a model without loss_sum"},
      {lenet_factory(), {}, rows, "the factory of the training set is empty"},
      {lenet_factory(), rows, {}, "the factory of the test set is empty"},
      {lenet_factory(), nothing, rows, "a factory of the data returned null on cpu"},
      {lenet_factory(), rows, nothing, "a factory of the data returned null on cpu"}};
  for (const auto& [model, train, test, words] : cases) {
    CHECK(refusal_of([&, &m = model, &a = train, &b = test] { Trainer(m, a, b, options_for(1)); }) == words);
  }
  CHECK_THAT(refusal_and_hint([&] { Trainer(of(true, false), rows, rows, options_for(1)); }),
             Catch::Matchers::ContainsSubstring(".output()"));
}

TEST_CASE("a factory that returns one module twice, or models with a part in common, is refused") {
  const auto refused = [](const ModelFactory& factory, int world) {
    return refusal_of([&] { make_trainer(factory, options_for(world)); });
  };
  const auto one = lenet_factory()();
  const torch::nn::Linear encoder(784, 10);
  const ModelFactory same = [&] { return one; }, in_common = [&] {
    auto model = lenet_factory()();
    model.module->register_module("encoder", encoder.ptr());
    return model;
  };
  const std::string text = ": the model factory returned one module twice, or models with a part in common";
  CHECK(refused(same, 1).empty());
  CHECK(refused(same, 2) == "two replicas have one tensor W1" + text);
  CHECK(refused(in_common, 3) == "two replicas have one tensor encoder.weight" + text);
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
  CHECK(sums["top5"] >= sums["top1"]);
  const auto none = trainer.take_sums();
  CHECK(none.rows == 0);
  CHECK(none.loss == 0);
}

TEST_CASE("evaluation counts the same rows on any number of replicas") {
  const int64_t rows = GENERATE(1, 255, 256, 600);
  const auto test = std::make_shared<RowSource>(rows);
  const auto model = lenet_factory()();
  const auto logits = std::dynamic_pointer_cast<LeNetImpl>(model.module)->forward(test->all().input());
  const auto right = (logits.argmax(1) == test->all().target()).sum().item<int64_t>();
  const auto order = logits.argsort(1, /*descending=*/true).slice(1, 0, 5);
  const auto among_five = (order == test->all().target().unsqueeze(1)).any(1).sum().item<int64_t>();
  const auto loss = torch::cross_entropy_loss(logits, test->all().target()).item<double>();
  double first_loss = 0;
  for (const int world : {1, 2, 3, 5}) {
    INFO(rows << " rows, " << world << " replicas");
    auto trainer = make_trainer(lenet_factory(), options_for(world), test);
    const auto result = trainer.evaluate();
    CHECK(result.rows == rows);
    CHECK(result.metrics.at(0).sum == static_cast<double>(right));
    CHECK(result.metrics.at(1).sum == static_cast<double>(among_five));
    CHECK(result["top1"] == static_cast<double>(right) / static_cast<double>(rows));
    CHECK(result.mean_loss() == Approx(loss).epsilon(1e-5));
    if (world == 1) first_loss = result.loss;
    CHECK(result.loss == first_loss);  // the same bits
  }
}

TEST_CASE("evaluation reports its progress, to the last row") {
  const auto test = std::make_shared<RowSource>(600);  // three blocks of 200
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
  CHECK(trainer.evaluate().loss == whole.loss);
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

TEST_CASE("trainers that several threads construct do not change each other's initial weights") {
  std::atomic<int> building = 0, most = 0;
  const ModelFactory watched = [&] {
    most = std::max(most.load(), ++building);
    std::this_thread::yield();
    auto model = small_residual_factory()();  // draws from the process's generator
    --building;
    return model;
  };
  constexpr int kThreads = 4;
  std::vector<std::vector<NamedTensor>> found(kThreads);
  {
    std::vector<std::jthread> threads;
    for (auto& weights : found) {
      threads.emplace_back([&] {
        for (int i = 0; i < 5; ++i) weights = make_trainer(watched, options_for(2)).weights();
      });
    }
  }
  CHECK(most == 1);
  const auto expected = make_trainer(small_residual_factory(), options_for(1)).weights();
  for (const auto& weights : found) CHECK(same_tensors(weights, expected));
}

TEST_CASE("an error in one replica ends the step on all, is thrown once, and leaves no thread behind") {
  const int guilty = GENERATE(0, 1, 2);
  const auto mode = GENERATE(SyncMode::kParameterwise, SyncMode::kOverlapped);
  leave_cores_to_replicas();  // otherwise torch would start a thread for this one and keep it
  const auto before = thread_count();
  {
    std::atomic<int> calls = 0;
    const auto failing = lenet_with([&](const Batch& rows, const Loss& loss, int replica) {
      if (replica == guilty && ++calls == 2) throw Mishap("in the second step");
      return loss(rows);
    });
    auto options = options_for(3);
    options.replica.sync.mode = mode;
    auto trainer = make_trainer(failing, options);
    trainer.step(kBatches[0]);
    CHECK_THROWS_WITH(
        trainer.step(kBatches[0]),
        fmt::format("rank {} (cpu): in the forward pass of step 2: in the second step", guilty));
    CHECK_THROWS(trainer.step(kBatches[0]));  // throws instead of hanging
  }
  CHECK(thread_count_down_to(before) == before);
}

TEST_CASE("a loss that is not finite is reported with its step and replica") {
  std::atomic<int> calls = 0;
  const auto poisoned = lenet_with([&](const Batch& rows, const Loss& loss, int replica) {
    auto outcome = loss(rows);
    if (replica == 1 && ++calls == 3) outcome.loss = outcome.loss * std::numeric_limits<double>::quiet_NaN();
    return outcome;
  });
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
  check_same_tensors(found.weights(0), expected.weights(0));
  const auto params = found.model(0).module->parameters();
  REQUIRE(bf16_weights[0].size() == params.size());
  for (size_t i = 0; i < params.size(); ++i) CHECK(bf16_weights[0][i].equal(params[i].to(torch::kBFloat16)));

  auto fp32 = options_for(1);
  bf16_weights.clear();
  make_trainer(with, fp32);
  CHECK(bf16_weights.empty());
}
