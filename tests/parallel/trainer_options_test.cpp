// The values that TrainerOptions::validate() refuses. tests/app/train/plan/combinations_test.cpp has the
// combinations, with their flags.
#include <lockstep/tests/catch.h>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <lockstep/models/lenet.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/error.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

using Change = std::function<void(TrainerOptions&)>;

TrainerOptions two_replicas() {
  TrainerOptions options;
  options.devices = {torch::kCPU, torch::kCPU};
  return options;
}

// The message of validate() for these options after the change. Empty: they are accepted.
std::string refusal(const Change& change) {
  auto options = two_replicas();
  change(options);
  try {
    options.validate();
  } catch (const UsageError& error) {
    CHECK_FALSE(error.hint().empty());
    CHECK_THAT(error.message() + error.hint(), !ContainsSubstring("--"));  // a library knows no flags
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("options that make sense are accepted") {
  CHECK(refusal([](auto&) {}).empty());
  CHECK(refusal([](auto& options) { options.split = {3, 1}; }).empty());
  CHECK(refusal([](auto& options) { options.auto_split = true; }).empty());
  CHECK(refusal([](auto& options) { options.in_flight = 1; }).empty());
  CHECK(refusal([](auto& options) { options.in_flight = 2; }).empty());
  CHECK(refusal([](auto& options) { options.replica.invariant = true; }).empty());
  CHECK(refusal([](auto& options) { options.replica.optimizer.kind = OptimizerKind::kAdamW; }).empty());
  CHECK(
      refusal([](auto& options) { options.replica.optimizer = {.momentum = .9, .nesterov = true}; }).empty());
  CHECK(refusal([](auto& options) { options.replica.sync.unused = UnusedParameters::kZero; }).empty());
  CHECK(refusal([](auto& options) { options.replica.sync.hook = bf16_hook(); }).empty());
  Trace trace;
  CHECK(refusal([&](auto& options) { options.replica.trace = &trace; }).empty());  // kAuto: no graphs
}

TEST_CASE("the number of threads follows from the cores, unless it is given or bits depend on it") {
  auto options = two_replicas();
  CHECK(replica_threads(options) == default_threads(2));
  options.devices.resize(1, torch::kCPU);
  CHECK(replica_threads(options) == default_threads(1));
  options.replica.invariant = true;
  CHECK(replica_threads(options) == 1);
  options.threads = 3;
  CHECK(replica_threads(options) == 3);
}

TEST_CASE("values out of range are refused") {
  CHECK_THAT(refusal([](auto& options) { options.devices.clear(); }), ContainsSubstring("no device"));
  CHECK(refusal([](auto& options) { options.threads = 0; }) == "a replica cannot have 0 threads");
  CHECK(refusal([](auto& options) { options.accumulate = 0; }) == "accumulate is 0");
  CHECK(refusal([](auto& options) { options.replica.sync.bucket_bytes = 0; }) == "bucket_bytes is 0");
  CHECK(refusal([](auto& options) { options.in_flight = 0; }) == "in_flight is 0");
  CHECK(refusal([](auto& options) { options.in_flight = 3; }) == "in_flight is 3");
  CHECK(refusal([](auto& options) { options.replica.clip_norm = -1; }) == "clip_norm is -1");
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  CHECK_THAT(refusal([](auto& options) { options.replica.clip_norm = kNan; }),
             ContainsSubstring("clip_norm is nan"));
  for (const double wrong : {.5, kNan, kInfinity, 0x1p65}) {
    CHECK_THAT(refusal([&](auto& options) { options.replica.loss_scale.initial = wrong; }),
               ContainsSubstring("loss_scale is "));
  }
  CHECK(refusal([](auto& options) { options.replica.loss_scale.growth_interval = 0; }) ==
        "growth_interval is 0");
  for (const double wrong : {-.1, 1., 2., kNan}) {
    CHECK_THAT(refusal([&](auto& options) { options.ema = wrong; }), ContainsSubstring("ema is "));
  }
  CHECK(refusal([](auto& options) { options.ema = .9999; }).empty());
  for (const double wrong : {-1., kNan, kInfinity}) {
    CHECK_THAT(refusal([&](auto& options) { options.lr.lr = wrong; }), ContainsSubstring("lr is "));
    CHECK_THAT(refusal([&](auto& options) { options.replica.optimizer.momentum = wrong; }),
               ContainsSubstring("momentum is "));
    CHECK_THAT(refusal([&](auto& options) { options.replica.optimizer.weight_decay = wrong; }),
               ContainsSubstring("weight_decay is "));
  }
}

TEST_CASE("values that torch's optimizers or Trainer would not take are refused") {
  const auto with_adam = [](double OptimizerOptions::*member, double value) {
    return refusal([&](auto& options) {
      options.replica.optimizer.kind = OptimizerKind::kAdam;
      options.replica.optimizer.*member = value;
    });
  };
  for (const double wrong : {-.1, 1., std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THAT(with_adam(&OptimizerOptions::beta1, wrong), StartsWith("beta1 is "));
    CHECK_THAT(with_adam(&OptimizerOptions::beta2, wrong), StartsWith("beta2 is "));
  }
  CHECK(with_adam(&OptimizerOptions::beta1, 0).empty());
  CHECK(with_adam(&OptimizerOptions::epsilon, -1) == "epsilon is -1");
  CHECK(refusal([](auto& options) { options.replica.optimizer.beta1 = 1; }).empty());  // SGD has none
  CHECK(refusal([](auto& options) { options.replica.ema = .9; }) == "replica.ema is 0.9");
  CHECK(refusal([](auto& options) { options.replica.in_flight = 2; }) == "replica.in_flight is 2");
  CHECK(refusal([](auto& options) { options.lr.warmup_steps = -1; }) == "warmup_steps is -1");
}

TEST_CASE(
    "values of a schedule that it cannot have are refused, and those of other schedules do not matter") {
  struct Wrong {
    Schedule schedule;
    const char* words;
    std::function<void(LrSchedule&, double)> set;
    std::vector<double> values;
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Wrong wrong[] = {
      {Schedule::kOneCycle,
       "pct_start is ",
       [](auto& lr, double value) { lr.one_cycle.pct_start = value; },
       {-.1, 1.1, kNan}},
      {Schedule::kOneCycle,
       "div_factor is ",
       [](auto& lr, double value) { lr.one_cycle.div_factor = value; },
       {0, -1, kNan, kInfinity}},
      {Schedule::kOneCycle,
       "final_div_factor is ",
       [](auto& lr, double value) { lr.one_cycle.final_div_factor = value; },
       {0, -1, kNan, kInfinity}},
      {Schedule::kExponential,
       "gamma is ",
       [](auto& lr, double value) { lr.exponential.gamma = value; },
       {0, -1, kNan, kInfinity}},
      {Schedule::kExponential, "every is 0", [](auto& lr, double) { lr.exponential.every = 0; }, {0}},
      {Schedule::kPlateau,
       "factor is ",
       [](auto& lr, double value) { lr.plateau.factor = value; },
       {0, -1, 1, kNan}},
      {Schedule::kPlateau, "patience is -1", [](auto& lr, double) { lr.plateau.patience = -1; }, {-1}},
      {Schedule::kPlateau,
       "threshold is ",
       [](auto& lr, double value) { lr.plateau.threshold = value; },
       {-.1, 1, kNan}},
  };
  for (const auto& row : wrong) {
    for (const double value : row.values) {
      const auto with = [&](Schedule schedule) {
        return refusal([&](auto& options) {
          options.lr = {.schedule = schedule, .total_steps = 10};
          row.set(options.lr, value);
        });
      };
      CHECK_THAT(with(row.schedule), StartsWith(row.words));
      CHECK(with(Schedule::kConstant).empty());
    }
  }
  for (const auto& [name, schedule] : kScheduleNames) {
    INFO(name);
    CHECK(refusal([&](auto& options) {
            options.lr = {.schedule = schedule, .total_steps = spans_run(schedule) ? 1 : 0};
          }).empty());
  }
  CHECK(refusal([](auto& options) { options.lr.function = [](int64_t) { return .1; }; }).empty());
}

TEST_CASE("a split needs one share per replica, and some must give rows") {
  const std::vector<std::vector<double>> splits = {{1, 1, 1}, {1, -1}, {0, 0}};
  for (const auto& split : splits) {
    CHECK_THAT(refusal([&](auto& options) { options.split = split; }), StartsWith("split cannot be used: "));
  }
}

TEST_CASE("TF32 needs a GPU among the devices") {
  const auto tf32 = [](auto& options) { options.replica.precision = Precision::kTf32; };
  CHECK(refusal(tf32) == "Precision::kTf32 needs a GPU, but the devices are [cpu, cpu]");
  CHECK(refusal([&](auto& options) {
          tf32(options);
          options.devices.emplace_back(torch::kCUDA, 0);
        }).empty());
}

TEST_CASE("a Trainer validates its options before it builds anything") {
  auto options = two_replicas();
  options.replica.invariant = true;
  options.accumulate = 2;
  int built = 0;
  const ModelFactory counting = [&] {
    ++built;
    return model_factory<LeNetImpl>(uint64_t{0}, torch::kFloat32)();
  };
  const auto rows = std::make_shared<RowSource>(4);
  CHECK_THROWS_AS(Trainer(counting, source(rows), source(rows), options), UsageError);
  CHECK(built == 0);
}
