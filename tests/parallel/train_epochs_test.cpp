// The loop over epochs: the steps of a loop written by hand, on any replicas, and how it stops.
#include <lockstep/tests/catch.h>

#include <functional>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <lockstep/data/batch_order.h>
#include <lockstep/parallel/train_epochs.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/mishap.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr int64_t kRowCount = 22, kBatchRows = 6, kSteps = 4;  // of an epoch; the last batch has 4 rows

const std::vector<Layout> kEpochWorlds = {{1}, {2}, {3}, {8}, {1, 1}, {1, 2}, {1, 1, 1}};

std::vector<int64_t> order_of(int64_t epoch) { return batch_order(/*seed=*/5, epoch, kRowCount); }

EpochOptions epochs(int64_t count) { return {.epochs = count, .batch_size = kBatchRows, .order = order_of}; }

TrainerOptions with_momentum() {
  TrainerOptions options;
  options.lr = {.lr = .2};
  options.replica.optimizer.momentum = .9;
  return options;
}

Trainer trainer_of(const TrainerOptions& options) {
  return Trainer(two_layers(), rows_on_device(kRowCount), rows_on_device(kRowCount), options);
}

struct Trained {
  bool done = false;
  int64_t steps = 0;
  std::vector<std::string> seen = {};
  std::vector<NamedTensor> weights = {};
};

// Trains in all processes; stop(process, run, after a step) is asked by each callback.
using Stop = std::function<bool(int process, const EpochRun& run, bool after_step)>;
std::vector<Trained> train(const Layout& layout, int64_t count, const Stop& stop) {
  return in_processes(layout, with_momentum(), [&](int process, const TrainerOptions& own) {
    auto trainer = trainer_of(own);
    Trained found;
    auto options = epochs(count);
    options.after_step = [&](EpochRun& run) {
      found.seen.push_back(std::to_string(run.epoch()) + "/" + std::to_string(run.step()));
      if (stop(process, run, true)) run.stop();
    };
    options.after_epoch = [&](EpochRun& run) {
      found.seen.push_back(std::to_string(run.epoch()) + ": " + std::to_string(run.steps()));
      if (stop(process, run, false)) run.stop();
    };
    found.done = train_epochs(trainer, options);
    found.steps = trainer.steps_taken();
    found.weights = trainer.weights();
    return found;
  });
}

bool never(int, const EpochRun&, bool) { return false; }

// The weights after so many steps of a loop written by hand.
std::vector<NamedTensor> by_hand(const Layout& layout, int64_t steps) {
  return in_processes(layout, with_momentum(), [&](int, const TrainerOptions& own) {
    auto trainer = trainer_of(own);
    for (int64_t step = 0; step < steps; ++step) {
      const auto order = order_of(step / kSteps);
      const auto first = static_cast<size_t>(step % kSteps * kBatchRows);
      const auto size = step % kSteps == kSteps - 1 ? size_t{4} : size_t{kBatchRows};
      trainer.step(std::span(order).subspan(first, size), step / kSteps);
    }
    return trainer.weights();
  })[0];
}

}  // namespace

TEST_CASE("epochs are the steps of a loop written by hand, and callbacks see each of them") {
  for (const auto& layout : kEpochWorlds) {
    INFO(text_of(layout));
    const auto expected = by_hand(layout, 2 * kSteps);
    for (const auto& own : train(layout, 2, never)) {
      CHECK(own.done);
      CHECK(own.steps == 2 * kSteps);
      check_same_tensors(own.weights, expected);
      CHECK((own.seen == std::vector<std::string>{"0/1", "0/2", "0/3", "0/4", "0: 4", "1/1", "1/2", "1/3",
                                                  "1/4", "1: 4"}));
    }
  }
}

TEST_CASE("whichever process stops after a step, all stop after the same one") {
  for (const auto& layout : kEpochWorlds) {
    const auto processes = processes_of(layout);
    for (int stopper = 0; stopper < processes; ++stopper) {
      // The step at which it asks, and those that are taken: of several processes one more, but not into the
      // next epoch.
      for (const auto& [asked, taken] : std::vector<std::pair<int64_t, int64_t>>{
               {1, processes == 1 ? 1 : 2}, {3, processes == 1 ? 3 : 4}, {4, 4}}) {
        INFO(text_of(layout) << ", process " << stopper << " after step " << asked);
        const auto found =
            train(layout, 3, [&, a = asked](int process, const EpochRun& run, bool after_step) {
              return after_step && process == stopper && run.epoch() == 0 && run.step() == a;
            });
        const auto expected = by_hand(layout, taken);
        for (const auto& own : found) {
          CHECK_FALSE(own.done);
          CHECK(own.steps == taken);
          CHECK((own.seen.back() == "0: 4") == (taken == kSteps));  // a whole epoch has its callback
          check_same_tensors(own.weights, expected);
        }
      }
    }
  }
}

TEST_CASE("whichever process stops after an epoch, all stop there") {
  for (const auto& layout : std::vector<Layout>{{2}, {1, 1}, {1, 1, 1}}) {
    for (int stopper = 0; stopper < processes_of(layout); ++stopper) {
      INFO(text_of(layout) << ", process " << stopper);
      const auto found = train(layout, 3, [&](int process, const EpochRun& run, bool after_step) {
        return !after_step && process == stopper && run.epoch() == 1;
      });
      for (const auto& own : found) {
        CHECK_FALSE(own.done);
        CHECK(own.steps == 2 * kSteps);
        CHECK(own.seen.back() == "1: 4");
      }
    }
  }
}

TEST_CASE("another call goes on, and so does another trainer with the state, in the middle of an epoch") {
  for (const auto& layout : std::vector<Layout>{{2}, {1, 1}}) {
    INFO(text_of(layout));
    const auto expected = by_hand(layout, 3 * kSteps);
    const auto found = in_processes(layout, with_momentum(), [&](int, const TrainerOptions& own) {
      auto first = trainer_of(own), second = trainer_of(own);
      auto options = epochs(3);
      options.after_step = [](EpochRun& run) {
        if (run.epoch() == 1 && run.step() == 1) run.stop();
      };
      const bool stopped = !train_epochs(first, options);
      second.load(first.state());
      const bool both = train_epochs(first, epochs(3)) && train_epochs(second, epochs(3));
      const bool nothing_left = train_epochs(second, epochs(2));
      return std::tuple(stopped && both && nothing_left, first.weights(), second.weights());
    });
    for (const auto& [as_wanted, first, second] : found) {
      CHECK(as_wanted);
      check_same_tensors(first, expected);
      check_same_tensors(second, expected);
    }
  }
}

TEST_CASE("a callback that loads a state or leaves out a step moves the loop") {
  using Call = std::function<void(Trainer&, const TrainState& start)>;
  const auto back = [](Trainer& trainer, const TrainState& start) { trainer.load(start); };
  const auto on = [](Trainer& trainer, const TrainState&) { trainer.leave_out_step(); };
  const struct {
    const char* name;
    int64_t epoch, step;  // after which the callback makes the call, once
    Call call;
    std::vector<std::string> seen;
  } cases[] = {{"back to the start of the epoch",
                0,
                2,
                back,
                {"0/1", "0/2", "0/1", "0/2", "0/3", "0/4", "0: 4", "1/1", "1/2", "1/3", "1/4", "1: 4"}},
               {"back to the epoch before",
                1,
                1,
                back,
                {"0/1", "0/2", "0/3", "0/4", "0: 4", "1/1", "0/1", "0/2", "0/3", "0/4", "0: 4", "1/1", "1/2",
                 "1/3", "1/4", "1: 4"}},
               {"a step within the epoch",
                0,
                1,
                on,
                {"0/1", "0/3", "0/4", "0: 4", "1/1", "1/2", "1/3", "1/4", "1: 4"}},
               {"the last step of the epoch",
                0,
                3,
                on,
                {"0/1", "0/2", "0/3", "0: 4", "1/1", "1/2", "1/3", "1/4", "1: 4"}},
               {"the first step of the next epoch",
                0,
                4,
                on,
                {"0/1", "0/2", "0/3", "0/4", "0: 4", "1/2", "1/3", "1/4", "1: 4"}}};
  for (const auto& layout : std::vector<Layout>{{2}, {1, 1}}) {
    for (const auto& one : cases) {
      INFO(text_of(layout) << ": " << one.name);
      const auto found = in_processes(layout, with_momentum(), [&](int, const TrainerOptions& own) {
        auto trainer = trainer_of(own);
        const auto start = trainer.state();
        std::vector<std::string> seen;
        bool called = false;
        auto options = epochs(2);
        options.after_step = [&](EpochRun& run) {
          seen.push_back(std::to_string(run.epoch()) + "/" + std::to_string(run.step()));
          if (called || run.epoch() != one.epoch || run.step() != one.step) return;
          called = true;
          one.call(trainer, start);
        };
        options.after_epoch = [&](EpochRun& run) {
          seen.push_back(std::to_string(run.epoch()) + ": " + std::to_string(run.step()));
        };
        const bool done = train_epochs(trainer, options);
        return std::tuple(done && trainer.steps_taken() == 2 * kSteps, seen, trainer.weights());
      });
      for (const auto& [done, seen, weights] : found) {
        CHECK(done);
        CHECK(seen == one.seen);
        if (one.seen.size() > 10) check_same_tensors(weights, by_hand(layout, 2 * kSteps));  // it went back
      }
    }
  }
}

TEST_CASE("processes whose epochs differ are refused, the same in each") {
  const auto refused = [](const std::function<void(EpochOptions&)>& change) {
    const auto refusals = in_processes({1, 1}, with_momentum(), [&](int process, const TrainerOptions& own) {
      auto trainer = trainer_of(own);
      auto options = epochs(2);
      if (process == 1) change(options);
      return refusal_of([&] { train_epochs(trainer, options); });
    });
    CHECK(refusals[1] == refusals[0]);
    return refusals[0];
  };
  CHECK(refused([](auto&) {}).empty());
  CHECK(refused([](auto& own) { own.epochs = 3; }) ==
        "the epochs differ: process 1 has 3 epochs where process 0 has 2 epochs");
  CHECK(refused([](auto& own) { own.batch_size = 0; }) ==
        "the epochs differ: process 1 has batches of 0 rows where process 0 has batches of 6 rows");
  CHECK(refused([](auto& own) { own.order = {}; }) ==
        "the epochs differ: process 1 has no order where process 0 has 22 rows in an epoch");
  CHECK_THAT(
      refused([](auto& own) {
        own.order = [](int64_t epoch) { return batch_order(/*seed=*/5 + epoch, epoch, kRowCount); };
      }),
      Catch::Matchers::StartsWith("the orders of an epoch differ: process 1 has 22 rows with the digest "));
}

TEST_CASE("a step that an epoch does not have has no rows") {
  const auto order = first_rows(7);
  CHECK(batch_of(order, 2, 3).size() == 1);
  for (const auto& [step, size] : std::vector<std::pair<int64_t, int64_t>>{{3, 3}, {-1, 3}, {0, 0}}) {
    CHECK_THROWS_AS(batch_of(order, step, size), UsageError);
  }
  CHECK_THROWS_AS(batch_of({}, 0, 3), UsageError);
}

TEST_CASE("sources are told every batch of an epoch, and the next one before each step") {
  struct Told : RowSource {
    using RowSource::RowSource;
    void will_need(std::span<const int64_t> rows, int64_t epoch) const override {
      told.emplace_back(epoch, Rows(rows.begin(), rows.end()));
    }
    mutable std::vector<std::pair<int64_t, Rows>> told;
  };
  const auto rows = std::make_shared<Told>(kRowCount);
  auto trainer = make_trainer(two_layers(), options_for(1), rows);
  train_epochs(trainer, epochs(2));
  REQUIRE(rows->told.size() == 2 * kSteps);
  for (size_t i = 0; i < rows->told.size(); ++i) {
    const auto epoch = static_cast<int64_t>(i) / kSteps, step = static_cast<int64_t>(i) % kSteps;
    const auto order = order_of(epoch);
    const auto batch = batch_of(order, step, kBatchRows);
    CHECK((rows->told[i] == std::pair(epoch, Rows(batch.begin(), batch.end()))));
  }
}

TEST_CASE("an exception of a callback ends the call, and other processes notice") {
  for (const auto& layout : std::vector<Layout>{{2}, {1, 1}}) {
    const auto errors = in_processes(layout, with_momentum(), [&](int process, const TrainerOptions& own) {
      auto trainer = trainer_of(own);
      auto options = epochs(2);
      options.after_step = [process](EpochRun& run) {
        if (process == 0 && run.step() == 2) throw Mishap("enough");
      };
      try {
        train_epochs(trainer, options);
      } catch (const Mishap& error) {
        return std::string(error.what());
      } catch (const PeerError&) {
        return std::string("peer");
      }
      return std::string();
    });
    CHECK(errors[0] == "enough");
    if (errors.size() > 1) CHECK(errors[1] == "peer");
  }
}

TEST_CASE("an exception at the end of an epoch ends the other processes at once, and trainers go on") {
  struct Case {
    bool after_epoch, evaluates;  // the others, before they end the epoch
    std::vector<int> throwers;
    std::vector<std::string> errors;
  };
  const std::string left = "the process of rank 1 left train_epochs() by an exception";
  const Case cases[] = {{false, false, {1}, {left, "enough"}},
                        {true, false, {1}, {left, "enough"}},
                        {true, true, {1}, {left, "enough"}},
                        {false, false, {0, 1}, {"enough", "enough"}},
                        {true, true, {0, 1}, {"enough", "enough"}}};
  for (const auto& [after_epoch, evaluates, throwers, expected] : cases) {
    INFO(after_epoch << evaluates << throwers.size());
    const auto told = in_processes({1, 1}, with_momentum(),
                                   [&, &throwers = throwers, evaluates = evaluates,
                                    after_epoch = after_epoch](int process, const TrainerOptions& own) {
                                     auto trainer = trainer_of(own);
                                     auto options = epochs(2);
                                     const auto at_end = [&](EpochRun& run) {
                                       if (run.step() < kSteps) return;
                                       if (std::ranges::count(throwers, process) > 0) throw Mishap("enough");
                                       if (evaluates) trainer.evaluate();
                                     };
                                     (after_epoch ? options.after_epoch : options.after_step) = at_end;
                                     std::string error;
                                     try {
                                       train_epochs(trainer, options);
                                     } catch (const Mishap& mishap) {
                                       error = mishap.what();
                                     } catch (const PeerError& peer) {
                                       error = peer.message();
                                     }
                                     trainer.evaluate();  // all can still meet
                                     return error;
                                   });
    CHECK(told == expected);
  }
}

TEST_CASE("a call that one process alone makes in a callback is an error in all, and no wait") {
  struct Case {
    const char* name;
    std::function<void(Trainer&)> call;
  };
  const Case cases[] = {{"evaluate()", [](auto& trainer) { trainer.evaluate(); }},
                        {"take_sums()", [](auto& trainer) { trainer.take_sums(); }},
                        {"state()", [](auto& trainer) { trainer.state(); }},
                        {"load()", [](auto& trainer) { trainer.load({}); }},
                        {"predict()", [](auto& trainer) { trainer.predict(rows_on_device(8)); }}};
  for (const auto& [name, call] : cases) {
    for (const int64_t after : {int64_t{2}, kSteps, kSteps + 1}) {  // steps; the last one: after the epoch
      for (const int caller : {0, 1}) {
        INFO(name << " in process " << caller << " after " << after);
        const auto errors =
            in_processes({1, 1}, with_momentum(), [&, &call = call](int process, const TrainerOptions& own) {
              auto trainer = trainer_of(own);
              auto options = epochs(2);
              options.after_step = [&](EpochRun& run) {
                if (process == caller && run.step() == after) call(trainer);
              };
              options.after_epoch = [&](EpochRun&) {
                if (process == caller && after > kSteps) call(trainer);
              };
              try {
                train_epochs(trainer, options);
              } catch (const UsageError& error) {
                return error.message();
              } catch (const std::logic_error&) {  // of these processes: by Gloo it is a PeerError
                return std::string("other collectives");
              }
              return std::string();
            });
        const auto calls = std::string("calls ") + name, ends = std::string("is at the end of an epoch");
        const auto& first = caller == 0 ? calls : ends;
        const auto& other = caller == 0 ? ends : calls;
        const auto expected = after < kSteps
                                  ? std::string("other collectives")
                                  : "the process of rank 1 " + other + " where that of rank 0 " + first;
        CHECK(errors == std::vector(2, expected));
      }
    }
  }
}

TEST_CASE("epochs that make no sense are refused") {
  auto trainer = make_trainer(two_layers(), options_for(1));
  const std::tuple<EpochOptions, const char*> cases[] = {
      {{.batch_size = 0, .order = order_of}, "a batch of 0 rows"},
      {{.batch_size = 4}, "the epochs have no order"},
      {{.epochs = -1, .batch_size = 4, .order = order_of}, "a training of -1 epochs"},
      {{.batch_size = 4, .order = [](int64_t) { return Rows(); }}, "an epoch of 0 rows"},
      {{.epochs = 2, .batch_size = 4, .order = [](int64_t epoch) { return first_rows(8 - epoch); }},
       "epoch 2 has 7 rows, the first one 8"}};
  for (const auto& [options, words] : cases) {
    CHECK(refusal_of([&, &o = options] { train_epochs(trainer, o); }) == words);
  }
  CHECK(trainer.steps_taken() == 2);  // of the last case's first epoch
}

TEST_CASE("epochs without end go on until they are stopped, and a batch may be larger than the data set") {
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  auto trainer = trainer_of(options_for(2));
  auto options = epochs(kMost);
  options.after_epoch = [](EpochRun& run) {
    if (run.epoch() == 2) run.stop();
  };
  CHECK_FALSE(train_epochs(trainer, options));
  CHECK(trainer.steps_taken() == 3 * kSteps);

  auto whole = trainer_of(options_for(2));
  options = epochs(2);
  options.batch_size = kMost;
  CHECK(train_epochs(whole, options));
  CHECK(whole.steps_taken() == 2);
}
