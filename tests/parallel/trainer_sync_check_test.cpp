// Trainer::check_sync(), and TrainerOptions::check_sync: replicas that train as they should, and replicas of
// which one has been changed.
#include <torch/nn/module.h>

#include <lockstep/tests/catch.h>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/training/sync_check.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/parallel/batch_norm/normed_layers.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// A change of one element of one replica.
struct Change {
  int rank = 0;
  std::string tensor = {};
  int64_t element = 0;
  double by = 1;
};

void apply(const Change& change, Trainer& trainer) {
  const int local = change.rank - trainer.first_rank();
  if (local < 0 || local >= trainer.local_size()) return;
  const auto& module = *trainer.model(local).module;
  for (const auto& tensors : {module.named_parameters(), module.named_buffers()}) {
    if (const auto* tensor = tensors.find(change.tensor)) {
      tensor->detach().view({-1})[change.element].add_(change.by);
    }
  }
}

// The message of an OutOfSyncError, which must have a hint.
std::string told_by(const std::function<void()>& call) {
  const auto words = refusal_and_hint<OutOfSyncError>(call);
  return words.ends_with(" | ") ? words + "without a hint" : words.substr(0, words.find(" | "));
}

// Returns what the processes of a layout tell of a training of five steps, with these changes after the first
// one. "" where the training ends well.
std::vector<std::string> told(const Layout& layout, int64_t check_sync, const std::vector<Change>& changes,
                              const ModelFactory& factory = two_layers(), TrainerOptions options = {}) {
  options.lr = {.lr = .1};
  options.check_sync = check_sync;
  return in_processes(layout, options, [&](int, const TrainerOptions& own) -> std::string {
    const auto rows = source(std::make_shared<RowSource>(32));
    Trainer trainer(factory, rows, rows, own);
    return told_by([&] {
      for (const int64_t count : {16, 5, 1, 3, 32}) {
        trainer.step(first_rows(count));
        trainer.synchronize();
        if (trainer.steps_taken() > 1) continue;
        for (const auto& change : changes) apply(change, trainer);
      }
    });
  });
}

void check_all_tell(const std::vector<std::string>& told, const std::string& expected) {
  for (const auto& text : told) CHECK(text == expected);
}

// "rank 3 (cpu of process 1)"
std::string place_of(int rank, const Layout& layout) {
  int process = 0, before = 0;
  while (rank >= before + layout[static_cast<size_t>(process)]) {
    before += layout[static_cast<size_t>(process++)];
  }
  const auto where = layout.size() == 1 ? "cpu" : "cpu of process " + std::to_string(process);
  return std::to_string(rank) + " (" + where + ")";
}

}  // namespace

TEST_CASE("replicas that train as they should pass at every interval, on any layout") {
  auto layouts = kLayouts;
  layouts.insert(layouts.end(), {{1}, {3}, {1, 1}});
  for (const auto& layout : layouts) {
    for (const int64_t check_sync : {1, 2, 5, 9}) {
      INFO(text_of(layout) << ", every " << check_sync);
      check_all_tell(told(layout, check_sync, {}), "");
    }
  }
}

TEST_CASE("replicas pass in every precision, with momentum, with two steps in flight and with other shares") {
  TrainerOptions options;
  options.replica.optimizer.momentum = .9;
  options.replica.precision = GENERATE(Precision::kFp32, Precision::kFp64, Precision::kBf16);
  options.in_flight = 2;
  check_all_tell(told({2, 1}, 1, {}, two_layers(), options), "");
  options.split = {3, 1, 0};
  check_all_tell(told({2, 1}, 1, {}, two_layers(), options), "");
  options.split.clear();
  options.auto_split = true;
  check_all_tell(told({2, 1}, 1, {}, two_layers(), options), "");
}

// With a rate of 0 the weights stay alike, whatever the gradients are.
TEST_CASE("a hook that leaves other numbers on one replica splits the loss scale of fp16, which is named") {
  TrainerOptions options;
  options.lr = {.lr = 0};
  options.replica.precision = Precision::kFp16;
  options.replica.loss_scale.initial = 1;
  options.replica.sync.hook = [](Endpoint& endpoint, const GradientBucket& bucket) {
    return endpoint.allreduce_gradients(bucket.gradients).then([bucket, rank = endpoint.rank()] {
      if (rank == 1) bucket.gradients.fill_(std::numeric_limits<double>::infinity());
    });
  };
  for (const auto& layout : std::vector<Layout>{{2}, {1, 1}}) {
    const auto found = in_processes(layout, options, [](int, const TrainerOptions& own) {
      const auto rows = source(std::make_shared<RowSource>(32));
      Trainer trainer(two_layers(), rows, rows, own);
      trainer.step(first_rows(16));
      return told_by([&] { trainer.check_sync(); });
    });
    check_all_tell(found, "after step 1 the replicas differ: the loss scale of rank " + place_of(1, layout) +
                              " is not that of rank 0");
  }
}

TEST_CASE("one changed element of one replica is named in every process") {
  auto layouts = kLayouts;
  layouts.push_back({3});
  layouts.push_back({1, 1, 1});
  for (const auto& layout : layouts) {
    const int world = world_of(layout);
    for (int rank = 0; rank < world; ++rank) {
      const auto usual = rank == 0 ? "1" : "0";
      INFO(text_of(layout) << ", rank " << rank);
      check_all_tell(told(layout, 2, {{.rank = rank, .tensor = "outer", .element = 59}}),
                     "after step 2 the replicas differ: outer of rank " + place_of(rank, layout) +
                         " is not that of rank " + usual);
    }
  }
}

TEST_CASE("of two replicas the second one is named") {
  for (const int rank : {0, 1}) {
    check_all_tell(told({1, 1}, 4, {{.rank = rank, .tensor = "inner_bias", .element = 0}}),
                   "after step 4 the replicas differ: inner_bias of rank 1 (cpu of process 1) is not that of "
                   "rank 0");
  }
}

TEST_CASE("several changes: the first tensor in the module's order, with all of its ranks") {
  const Change late = {.rank = 1, .tensor = "outer_bias", .element = 9};
  const Change early = {.rank = 2, .tensor = "inner", .element = 4703};
  const Change also = {.rank = 3, .tensor = "inner", .element = 0, .by = 2};
  check_all_tell(
      told({2, 2}, 1, {late, early}),
      "after step 2 the replicas differ: inner of rank 2 (cpu of process 1) is not that of rank 0");
  check_all_tell(told({2, 2}, 1, {late, early, also}),
                 "after step 2 the replicas differ: inner of ranks 2 (cpu of process 1) and 3 (cpu of "
                 "process 1) is not that of rank 0");
  check_all_tell(told({3}, 3, {late, early}),
                 "after step 3 the replicas differ: inner of rank 2 (cpu) is not that of rank 0");
}

TEST_CASE("a parameter that is not trained is compared, too") {
  const ModelFactory frozen = [plain = two_layers()] {
    auto model = plain();
    model.module->named_parameters()["inner"].requires_grad_(false);
    return model;
  };
  check_all_tell(told({1, 1}, 1, {}, frozen), "");
  check_all_tell(
      told({1, 1}, 1, {{.rank = 1, .tensor = "inner", .element = 7}}, frozen),
      "after step 2 the replicas differ: inner of rank 1 (cpu of process 1) is not that of rank 0");
}

TEST_CASE("batch-norm statistics are compared with invariant, where they are alike; own buffers never are") {
  const auto factory = model_factory<NormedLayersImpl>();
  TrainerOptions options;
  options.replica.invariant = GENERATE(false, true);
  check_all_tell(told({2, 2}, 1, {}, factory, options), "");
  check_all_tell(told({2, 2}, 1, {{.rank = 1, .tensor = "own", .element = 0}}, factory, options), "");
  const std::string expected =
      options.replica.invariant
          ? "after step 2 the replicas differ: norm.running_var of rank 3 (cpu of process 1) is not that of "
            "rank 0"
          : "";
  check_all_tell(told({2, 2}, 2, {{.rank = 3, .tensor = "norm.running_var", .element = 1}}, factory, options),
                 expected);
}

TEST_CASE(
    "without an interval, or with a longer one than the run, nothing is compared unless it is asked for") {
  for (const int64_t check_sync : {0, 6, 1000}) {
    TrainerOptions options;
    options.check_sync = check_sync;
    const auto errors = in_processes({2, 1}, options, [](int, const TrainerOptions& own) {
      const auto rows = source(std::make_shared<RowSource>(32));
      Trainer trainer(two_layers(), rows, rows, own);
      trainer.check_sync();
      apply({.rank = 2, .tensor = "outer", .element = 1, .by = 1e-3}, trainer);
      for (int step = 0; step < 5; ++step) trainer.step(first_rows(7));
      return told_by([&] { trainer.check_sync(); });
    });
    check_all_tell(errors,
                   "after step 5 the replicas differ: outer of rank 2 (cpu of process 1) is not that "
                   "of rank 0");
  }
}

TEST_CASE("a sign of zero is a difference") {
  const auto errors = in_processes({1, 2}, {}, [](int, const TrainerOptions& own) {
    const auto rows = source(std::make_shared<RowSource>(4));
    Trainer trainer(two_layers(), rows, rows, own);
    if (trainer.first_rank() == 1) {
      trainer.model(0).module->named_parameters()["outer_bias"].detach()[4].fill_(-0.0);
    }
    return told_by([&] { trainer.check_sync(); });
  });
  check_all_tell(errors,
                 "after step 0 the replicas differ: outer_bias of rank 1 (cpu of process 1) is not "
                 "that of rank 0");
}

TEST_CASE("an interval below 0 is refused") {
  TrainerOptions options;
  options.devices = {torch::kCPU};
  options.check_sync = -1;
  CHECK_THROWS_WITH(options.validate(), "check_sync is -1");
}
