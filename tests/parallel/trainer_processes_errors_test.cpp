// The Trainer in several processes: evaluations, sums, refusals and errors.
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <fmt/format.h>
#include <lockstep/tests/catch.h>

#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include <lockstep/models/lenet.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/mishap.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// One of its rows has pixels that are no numbers.
class PoisonedRows : public RowSource {
 public:
  PoisonedRows(int64_t rows, int64_t poisoned) : RowSource(rows), poisoned_(poisoned) {}

  void gather(const torch::Tensor& rows, int64_t epoch, Batch& into) const override {
    RowSource::gather(rows, epoch, into);
    into[0].masked_fill_(rows.eq(poisoned_).view({-1, 1, 1, 1}), std::numeric_limits<double>::quiet_NaN());
  }

 private:
  const int64_t poisoned_;
};

// The one error of trainers in three processes; empty if there is none. set_up: changes a process's options,
// and returns its model.
std::string refusal_of_trainers(const std::function<ModelFactory(int process, TrainerOptions& own)>& set_up) {
  const auto errors = in_processes({1, 2, 1}, {}, [&](int process, TrainerOptions own) {
    const auto model = set_up(process, own);
    const auto rows = source(std::make_shared<RowSource>(8));
    return refusal_of([&] { Trainer(model, rows, rows, own); });
  });
  CHECK(errors == std::vector<std::string>(3, errors[0]));
  return errors[0];
}

}  // namespace

TEST_CASE("evaluation gives the same bits in every process and on any layout") {
  const int64_t rows = GENERATE(1, 256, 600, 2000);
  const auto evaluated = [rows](int, const TrainerOptions& own) {
    const auto all = source(std::make_shared<RowSource>(rows));
    Trainer trainer(two_layers(), all, all, own);
    return trainer.evaluate();
  };
  const auto alone = in_processes({1}, {}, evaluated)[0];
  CHECK(alone.rows == rows);
  for (const auto& layout : kLayouts) {
    INFO(rows << " rows, " << text_of(layout));
    for (const auto& found : in_processes(layout, {}, evaluated)) check_same_sums(found, alone);
  }
}

TEST_CASE("processes with different models are refused, the same in each, with both tensors") {
  const auto error_of = [](const ModelFactory& first, const ModelFactory& other) {
    return refusal_of_trainers([&](int process, TrainerOptions&) { return process == 2 ? other : first; });
  };
  const auto lenet = [](torch::ScalarType dtype) { return model_factory<LeNetImpl>(uint64_t{0}, dtype); };
  CHECK(error_of(lenet(torch::kFloat32), lenet(torch::kFloat32)).empty());
  CHECK(
      error_of(lenet(torch::kFloat32), lenet(torch::kFloat64)) ==
      "the models differ: process 2 has W1 [20, 1, 3, 3] Double where process 0 has W1 [20, 1, 3, 3] Float");
  const auto layers = [](int64_t count) {
    return [count] {
      torch::nn::Sequential module;
      for (int64_t i = 0; i < count; ++i) module->push_back(torch::nn::Linear(2 + i, 3));
      return Model{module.ptr(), [](const Batch&) { return Outcome{}; }};
    };
  };
  CHECK(error_of(layers(2), layers(1)) ==
        "the models differ: process 2 has nothing more where process 0 has 1.weight [3, 3] Float");
}

TEST_CASE("trainers of other options are refused, the same in each process, with both values") {
  using Change = std::function<void(TrainerOptions&)>;
  const auto error_of = [](const Change& change) {
    return refusal_of_trainers([&](int process, TrainerOptions& own) {
      own.lr.total_steps = 5;
      own.replica.optimizer.momentum = .9;
      if (process == 1) change(own);
      return two_layers();
    });
  };
  CHECK(error_of([](auto& own) {  // these concern one process alone
          own.threads = 2;
          own.in_flight = 2;
          own.replica.wait_for_device = true;
          own.replica.cuda_graph = CudaGraph::kOff;
        })
            .empty());
  const std::tuple<const char*, const char*, Change> cases[] = {
      {"seed 1", "seed 0", [](auto& own) { own.seed = 1; }},
      {"optimizer adamw", "optimizer sgd",
       [](auto& own) { own.replica.optimizer = {.kind = OptimizerKind::kAdamW}; }},
      {"nesterov true", "nesterov false", [](auto& own) { own.replica.optimizer.nesterov = true; }},
      {"momentum 0.5", "momentum 0.9", [](auto& own) { own.replica.optimizer.momentum = .5; }},
      {"weight_decay 0.01", "weight_decay 0", [](auto& own) { own.replica.optimizer.weight_decay = .01; }},
      {"beta1 0.8", "beta1 0.9", [](auto& own) { own.replica.optimizer.beta1 = .8; }},
      {"beta2 0.99", "beta2 0.999", [](auto& own) { own.replica.optimizer.beta2 = .99; }},
      {"epsilon 1e-07", "epsilon 1e-08", [](auto& own) { own.replica.optimizer.epsilon = 1e-7; }},
      {"lr_function given", "lr_function none",
       [](auto& own) { own.lr.function = [](int64_t) { return .1; }; }},
      {"group a function", "group none",
       [](auto& own) { own.replica.optimizer.group = [](auto&, auto&) { return GroupOptions(); }; }},
      {"schedule cosine", "schedule constant", [](auto& own) { own.lr.schedule = Schedule::kCosine; }},
      {"lr 0.2", "lr 0.1", [](auto& own) { own.lr.lr = .2; }},
      {"total_steps 6", "total_steps 5", [](auto& own) { own.lr.total_steps = 6; }},
      {"warmup_steps 1", "warmup_steps 0", [](auto& own) { own.lr.warmup_steps = 1; }},
      {"pct_start 0.4", "pct_start 0.3", [](auto& own) { own.lr.one_cycle.pct_start = .4; }},
      {"div_factor 10", "div_factor 25", [](auto& own) { own.lr.one_cycle.div_factor = 10; }},
      {"final_div_factor 100", "final_div_factor 10000",
       [](auto& own) { own.lr.one_cycle.final_div_factor = 100; }},
      {"anneal linear", "anneal cosine", [](auto& own) { own.lr.one_cycle.anneal = Anneal::kLinear; }},
      {"gamma 0.5", "gamma 0.9", [](auto& own) { own.lr.exponential.gamma = .5; }},
      {"every 3", "every 1", [](auto& own) { own.lr.exponential.every = 3; }},
      {"factor 0.5", "factor 0.1", [](auto& own) { own.lr.plateau.factor = .5; }},
      {"patience 3", "patience 10", [](auto& own) { own.lr.plateau.patience = 3; }},
      {"threshold 0", "threshold 0.0001", [](auto& own) { own.lr.plateau.threshold = 0; }},
      {"clip_norm 1", "clip_norm 0", [](auto& own) { own.replica.clip_norm = 1; }},
      {"loss_scale 1024", "loss_scale 65536", [](auto& own) { own.replica.loss_scale.initial = 1024; }},
      {"growth_interval 5", "growth_interval 2000",
       [](auto& own) { own.replica.loss_scale.growth_interval = 5; }},
      {"ema 0.9", "ema 0", [](auto& own) { own.ema = .9; }},
      {"precision fp64", "precision fp32", [](auto& own) { own.replica.precision = Precision::kFp64; }},
      {"invariant true", "invariant false", [](auto& own) { own.replica.invariant = true; }},
      {"accumulate 2", "accumulate 1", [](auto& own) { own.accumulate = 2; }},
      {"split 1:2:1:1", "split even", [](auto& own) { own.split = {1, 2, 1, 1}; }},
      {"auto_split true", "auto_split false", [](auto& own) { own.auto_split = true; }},
      {"bn average", "bn root", [](auto& own) { own.bn = BnPolicy::kAverage; }},
      {"check_sync 7", "check_sync 0", [](auto& own) { own.check_sync = 7; }}};
  for (const auto& [own, first, change] : cases) {
    CHECK(error_of(change) ==
          fmt::format("the options differ: process 1 has {} where process 0 has {}", own, first));
  }
  CHECK(error_of([](auto& own) { own.replica.sync.bucket_bytes = 1; }) ==
        "the options differ: rank 1 has bucket_bytes 1 where rank 0 has bucket_bytes 26214400");
}

TEST_CASE("replicas that give a parameter other groups get one error with both") {
  const auto error = refusal_of_trainers([](int process, TrainerOptions& own) {
    own.replica.optimizer.group = [process](const std::string& name, auto&) {
      return GroupOptions{.lr_factor = process == 1 && name == "outer" ? .5 : 1};
    };
    return two_layers();
  });
  CHECK(error ==
        "the parameter groups differ: rank 1 has outer: lr_factor 0.5, weight_decay 0 where rank 0 has "
        "outer: lr_factor 1, weight_decay 0");
}

TEST_CASE("the progress of an evaluation counts the rows of its own process") {
  using Told = std::vector<std::pair<int64_t, int64_t>>;
  const auto told_in = [](const Layout& layout) {
    return in_processes(layout, {}, [](int, const TrainerOptions& own) {
      const auto rows = source(std::make_shared<RowSource>(600));  // three blocks of 200
      Trainer trainer(two_layers(), rows, rows, own);
      Told told;
      trainer.evaluate([&](int64_t done, int64_t all) { told.emplace_back(done, all); });
      return told;
    });
  };
  const auto two = told_in({1, 1});
  CHECK(two[0] == Told{{200, 400}, {400, 400}});
  CHECK(two[1] == Told{{200, 200}});
  const auto five = told_in({3, 2});
  CHECK(five[0].size() == 3);
  CHECK(five[0].back() == std::pair<int64_t, int64_t>{600, 600});
  CHECK(five[1].empty());  // there is no fourth block
}

TEST_CASE("a stopped evaluation is told to the other processes, and all can evaluate again") {
  const auto layout = GENERATE(Layout{1, 1}, Layout{2, 2}, Layout{1, 3});
  const int guilty = GENERATE(0, 1);
  struct Result {
    std::string error;
    RowSums before, after;
  };
  const auto found = in_processes(layout, {}, [&](int process, const TrainerOptions& own) {
    const auto rows = source(std::make_shared<RowSource>(2560));  // ten blocks
    Trainer trainer(two_layers(), rows, rows, own);
    Result result;
    result.before = trainer.evaluate();
    try {
      trainer.evaluate([&](int64_t, int64_t) {
        if (process == guilty) throw Mishap("enough");
      });
    } catch (const Mishap& error) {
      result.error = error.what();
    } catch (const PeerError& error) {
      result.error = error.message();
    }
    result.after = trainer.evaluate();
    return result;
  });
  for (int process = 0; process < 2; ++process) {
    INFO(text_of(layout) << ", process " << process << " of which " << guilty << " stops");
    const auto& own = found[static_cast<size_t>(process)];
    if (process == guilty) {
      CHECK(own.error == "enough");
    } else {
      CHECK_THAT(own.error, ContainsSubstring("another process ended the evaluation after ") &&
                                ContainsSubstring(" of 2560 rows"));
    }
    check_same_sums(own.after, own.before);
  }
}

TEST_CASE("a loss that is not finite is reported with its rank of the world, in every process") {
  for (const auto& layout : kLayouts) {
    const auto sums = in_processes(layout, {}, [](int, const TrainerOptions& own) {
      const auto rows = source(std::make_shared<PoisonedRows>(32, 31));
      Trainer trainer(two_layers(), rows, rows, own);
      trainer.step(first_rows(8));
      trainer.step(Rows{0, 1, 2, 3, 31, 4, 5, 6});  // the third replica gets row 31
      trainer.step(first_rows(8));
      return trainer.take_sums();
    });
    for (size_t process = 0; process < sums.size(); ++process) {
      INFO(text_of(layout) << ", process " << process);
      REQUIRE(sums[process].bad);
      CHECK(sums[process].bad->step == 1);
      CHECK(sums[process].bad->rank == 2);
    }
  }
}

TEST_CASE("options that do not suit the world are refused when it is known") {
  TrainerOptions options, invariant;
  options.split = {1, 1, 1};
  invariant.replica.invariant = true;
  const auto check = [](const Layout& layout, const TrainerOptions& given, const char* words) {
    for (const auto& text : trainer_refusals(layout, given, two_layers())) {
      CHECK_THAT(text, ContainsSubstring(words));
      CHECK(text.empty() == (*words == 0));
    }
  };
  check({1, 1}, options, "split cannot be used: 3 shares for 2 replicas");
  check({2, 1}, options, "");
  check({2, 1}, invariant, "3 replicas cannot share evenly");

  options = invariant;
  // validate() alone knows the number of this process's devices only.
  options.process_group = thread_process_groups(2)[0];
  options.devices = std::vector<torch::Device>(3, torch::kCPU);
  CHECK_NOTHROW(options.validate());
  CHECK_NOTHROW(options.validate(4));
  CHECK_THROWS_AS(options.validate(5), UsageError);
  options.process_group = nullptr;
  CHECK_THROWS_AS(options.validate(), UsageError);
}

TEST_CASE("a process whose replica fails throws its error, and ends the step of the others when it leaves") {
  const auto errors = in_processes({2, 1}, {}, [](int process, const TrainerOptions& own) -> std::string {
    auto factory = two_layers();
    int calls = 0;
    if (process == 1) {
      factory = [&calls, plain = factory] {
        auto model = plain();
        model.loss_sum = [&calls, loss = model.loss_sum](const Batch& rows) {
          if (++calls == 2) throw Mishap("in the second step");
          return loss(rows);
        };
        return model;
      };
    }
    const auto rows = source(std::make_shared<RowSource>(32));
    std::string error;
    try {
      Trainer trainer(factory, rows, rows, own);
      trainer.step(first_rows(16));
      trainer.step(first_rows(16));
    } catch (const FailedError& mishap) {
      error = mishap.message();
    } catch (const PeerError&) {
      error = "a peer";
    }
    return error;
  });
  CHECK(errors[0] == "a peer");
  CHECK(errors[1] == "rank 2 (cpu): in the forward pass of step 2: in the second step");
}
