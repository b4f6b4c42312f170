// Precision::kFp16: steps with a loss scale, some of which are skipped.
#include <torch/nn/modules/linear.h>

#include <lockstep/tests/catch.h>

#include <cmath>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include <lockstep/data/resident_rows.h>
#include <lockstep/parallel/train_epochs.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/trainer_states.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// A step of torch_fp16.py: its mean loss, and the scale and the good steps in a row behind it.
struct TorchStep {
  double loss, scale;
  int64_t good_steps;
};

struct TorchRun {
  std::string optimizer;
  std::vector<TorchStep> steps;
  std::vector<double> weights;  // at the end
};

// clang-format off
const std::vector<TorchRun> kTorchRuns = {
#include <lockstep/tests/parallel/training/torch_fp16.inc>
};
// clang-format on

constexpr int64_t kWaveSteps = 12, kStepRows = 4;
constexpr int64_t kFar = 5;  // the step whose targets are far away: its gradients overflow

torch::Tensor wave(std::vector<int64_t> sizes, double factor) {
  return (torch::arange(c10::multiply_integers(sizes), torch::kFloat64) * factor)
      .sin()
      .view(sizes)
      .to(torch::kFloat32);
}

class WaveNetImpl : public torch::nn::Module {
 public:
  WaveNetImpl()
      : inner_(register_module("inner", torch::nn::Linear(6, 5))),
        outer_(register_module("outer", torch::nn::Linear(5, 3))) {
    const torch::NoGradGuard no_grad;
    const auto params = parameters();
    for (size_t k = 0; k < params.size(); ++k) {
      params[k].copy_(wave(params[k].sizes().vec(), .7 + static_cast<double>(k)) * .5);
    }
  }

  torch::Tensor forward(const torch::Tensor& X) { return outer_(inner_(X).tanh()); }

 private:
  torch::nn::Linear inner_, outer_;
};

// The sum of the squared errors, in float, times a factor.
ModelFactory wave_net(double factor = 1) {
  return model_factory<WaveNetImpl>().loss([factor](WaveNetImpl& net, const Batch& in) {
    return (net.forward(in.input()).to(torch::kFloat32) - in.target()).square().sum() * factor;
  });
}

SourceFactory wave_rows() {
  const auto targets = wave({kWaveSteps * kStepRows, 3}, .53);
  targets.narrow(0, kFar * kStepRows, kStepRows).fill_(1000);
  return resident_rows({wave({kWaveSteps * kStepRows, 6}, .37), targets});
}

Trainer wave_trainer(const TrainerOptions& options, double factor = 1) {
  return Trainer(wave_net(factor), wave_rows(), wave_rows(), options);
}

Rows rows_of(int64_t step) {
  Rows rows;
  for (int64_t i = 0; i < kStepRows; ++i) rows.push_back(step * kStepRows + i);
  return rows;
}

TrainerOptions fp16_options(int world) {
  auto options = options_for(world);
  options.lr.lr = .05;
  options.replica.precision = Precision::kFp16;
  options.replica.loss_scale = {.initial = 8192, .growth_interval = 3};
  options.replica.optimizer.momentum = .9;
  return options;
}

torch::Tensor flattened(const std::vector<NamedTensor>& weights) {
  std::vector<torch::Tensor> parts;
  for (const auto& [name, tensor] : weights) parts.push_back(tensor.flatten());
  return torch::cat(parts);
}

LossScaleState scale_of(Trainer& trainer) {
  const auto scale = trainer.loss_scale();
  REQUIRE(scale);
  return *scale;
}

}  // namespace

TEST_CASE("steps in fp16, one of them skipped, have the numbers of Python's GradScaler") {
  for (const auto& run : kTorchRuns) {
    for (const int world : {1, 2, 3}) {
      auto options = fp16_options(world);
      options.replica.clip_norm = 2;
      if (run.optimizer == "adam") {
        options.replica.optimizer = {.kind = OptimizerKind::kAdam};
        options.lr.lr = .01;
      }
      auto trainer = wave_trainer(options);
      for (int64_t step = 0; step < kWaveSteps; ++step) {
        INFO(run.optimizer << ", " << world << " replicas, step " << step);
        const auto& expected = run.steps[static_cast<size_t>(step)];
        trainer.step(rows_of(step));
        const auto sums = trainer.take_sums();
        CHECK(sums.mean_loss() == Approx(expected.loss).epsilon(2e-3));
        CHECK(sums.skipped == (step == kFar ? 1 : 0));
        CHECK_FALSE(sums.bad);
        CHECK(scale_of(trainer).scale == expected.scale);
        CHECK(scale_of(trainer).good_steps == expected.good_steps);
        CHECK(scale_of(trainer).updates == (step < kFar ? step + 1 : step));
      }
      CHECK(trainer.steps_taken() == kWaveSteps);
      const auto expected = torch::tensor(run.weights, torch::kFloat64);
      CHECK(max_difference(flattened(trainer.weights()), expected) <= 1e-3);
      for (int local = 1; local < world; ++local) {
        check_same_tensors(trainer.weights(local), trainer.weights(0));
      }
    }
  }
}

TEST_CASE("a skipped step changes neither weights nor optimizer nor average, and counts for the rate") {
  auto options = fp16_options(2);
  options.ema = .5;
  options.lr = {.schedule = Schedule::kCosine, .lr = .05, .total_steps = kWaveSteps};
  auto trainer = wave_trainer(options);
  for (int64_t step = 0; step < kFar; ++step) trainer.step(rows_of(step));
  const auto before = trainer.state();
  trainer.step(rows_of(kFar));
  const auto after = trainer.state();
  check_same_tensors(after.model, before.model);
  check_same_tensors(after.optimizer, before.optimizer);
  check_same_tensors(after.average, before.average);
  CHECK(after.steps == before.steps + 1);
  CHECK(trainer.lr() == lr_at(options.lr, kFar + 1));
  CHECK(after.loss_scale->updates == before.loss_scale->updates);
  // Nothing of its gradients is left: the next step is that of a trainer that has not met it.
  auto other = wave_trainer(options);
  auto state = before;
  state.loss_scale = after.loss_scale;
  other.load(state);
  other.leave_out_step();
  trainer.step(rows_of(kFar + 1));
  other.step(rows_of(kFar + 1));
  check_same_tensors(trainer.weights(), other.weights());
}

TEST_CASE("a run in fp16 that is loaded before every step goes on bit by bit, with its scale") {
  for (const int world : {1, 2}) {
    auto options = fp16_options(world);
    options.replica.optimizer = {.kind = OptimizerKind::kAdam};
    options.ema = .9;
    auto whole = wave_trainer(options);
    TrainState state = wave_trainer(options).state();
    for (int64_t step = 0; step < kWaveSteps; ++step) {
      INFO(world << " replicas, step " << step);
      whole.step(rows_of(step));
      auto broken = wave_trainer(options);
      broken.load(state);
      broken.step(rows_of(step));
      state = broken.state();
      check_same_tensors(state.model, whole.weights());
      check_same_tensors(broken.averaged_weights(), whole.averaged_weights());
      CHECK(state.loss_scale == whole.loss_scale());
    }
  }
}

TEST_CASE("a state without a loss scale begins with the first one, and a wrong one is refused") {
  const auto options = fp16_options(1);
  auto trainer = wave_trainer(options);
  for (int64_t step = 0; step < 4; ++step) trainer.step(rows_of(step));
  auto state = trainer.state();
  state.loss_scale.reset();
  trainer.load(state);
  CHECK(scale_of(trainer) == LossScaleState{.scale = 8192});
  for (const auto& wrong :
       {LossScaleState{.scale = 0}, LossScaleState{.scale = NAN}, LossScaleState{.scale = 1e300},
        LossScaleState{.scale = 1e-40}, LossScaleState{.scale = 0x1p-17}, LossScaleState{.good_steps = -1},
        LossScaleState{.updates = -1}, LossScaleState{.steps = -1},
        LossScaleState{.updates = 2, .steps = 1}}) {
    INFO(wrong.scale);
    state.loss_scale = wrong;
    CHECK_THROWS_AS(trainer.load(state), WeightsError);
  }
  state.loss_scale = LossScaleState{.scale = 0x1p-16};
  CHECK_NOTHROW(trainer.load(state));
  auto in_fp32 = options;
  in_fp32.replica.precision = Precision::kFp32;
  CHECK_FALSE(wave_trainer(in_fp32).loss_scale());
  CHECK_FALSE(wave_trainer(in_fp32).state().loss_scale);
}

// The product of the loss and any scale is finite in float, those of the layers' gradients are not in fp16.
TEST_CASE("a run that skips every step ends with an error in every process, after the same step") {
  struct End {
    int64_t steps = 0, skipped = 0, updates = 0;
    std::string message = {}, hint = {};
    bool same_weights = false;
    double scale = 0;
  };
  const auto options = fp16_options(1);
  for (const auto& layout : {Layout{1}, Layout{2}, Layout{1, 2}}) {
    const auto found = in_processes(layout, options, [](int, const TrainerOptions& own) {
      auto trainer = wave_trainer(own, /*factor=*/1e20);
      const auto before = trainer.weights();
      End end;
      try {
        for (int64_t step = 0; step < 100; ++step) trainer.step(rows_of(step % kFar));
      } catch (const NumericError& error) {
        end = {.message = error.message(), .hint = error.hint()};
      }
      end.steps = trainer.steps_taken();
      end.skipped = trainer.take_sums().skipped;
      end.updates = trainer.loss_scale()->updates;
      end.same_weights = same_tensors(trainer.weights(), before);
      trainer.load(trainer.state());  // what has ended the steps ends nothing else
      end.scale = trainer.loss_scale()->scale;
      return end;
    });
    for (const auto& end : found) {
      CHECK(end.steps == 30);  // the last scale is 8192 / 2^29 = 2^-16
      CHECK(end.skipped == 30);
      CHECK(end.updates == 0);
      CHECK_THAT(end.message, ContainsSubstring("step 30") && ContainsSubstring("loss scale of 1.5e-05"));
      CHECK_THAT(end.hint, ContainsSubstring("Precision::kBf16"));
      CHECK(end.same_weights);
      CHECK(end.scale == 0x1p-16);
    }
  }
}

TEST_CASE("epochs of which every step was skipped end with an error, and more of them train") {
  auto options = fp16_options(1);
  options.replica.loss_scale.initial = 0x1p40;  // 2^28 after an epoch of 12 steps, in which nothing fits
  for (const auto& layout : {Layout{2}, Layout{1, 1}}) {
    const auto found = in_processes(layout, options, [](int, const TrainerOptions& own) {
      auto trainer = wave_trainer(own);
      EpochOptions epochs{.epochs = 1, .batch_size = kStepRows, .order = [](int64_t) {
                            Rows rows;
                            for (int64_t row = 0; row < kWaveSteps * kStepRows; ++row) rows.push_back(row);
                            return rows;
                          }};
      const auto refused = refusal_and_hint<NumericError>([&] { train_epochs(trainer, epochs); });
      epochs.epochs = 4;
      const bool done = train_epochs(trainer, epochs);
      return std::tuple(refused, done, trainer.loss_scale()->updates);
    });
    for (const auto& [refused, done, updates] : found) {
      CHECK_THAT(refused, ContainsSubstring("nothing was trained") && ContainsSubstring("Precision::kBf16"));
      CHECK(done);
      CHECK(updates > 0);
    }
  }
}

TEST_CASE(
    "a trainer in fp16 that has taken no step since a state of fp32, or left it out, has nothing to be "
    "told") {
  auto options = fp16_options(1);
  options.replica.precision = Precision::kFp32;
  auto in_fp32 = wave_trainer(options);
  in_fp32.step(rows_of(0));
  CHECK_NOTHROW(in_fp32.require_updates());
  auto trainer = wave_trainer(fp16_options(1), /*factor=*/1e20);
  trainer.load(in_fp32.state());
  CHECK_NOTHROW(trainer.require_updates());
  trainer.load(trainer.state());  // nothing that was trained in fp32 is forgotten here
  CHECK_NOTHROW(trainer.require_updates());
  trainer.leave_out_step();
  CHECK_NOTHROW(trainer.require_updates());
  trainer.step(rows_of(1));
  trainer.load(trainer.state());
  CHECK_THROWS_AS(trainer.require_updates(), NumericError);
}

TEST_CASE("a loss that is not finite is told, and its step is skipped") {
  auto options = fp16_options(2);
  auto trainer = wave_trainer(options, /*factor=*/INFINITY);
  const auto before = trainer.weights();
  trainer.step(rows_of(0));
  const auto sums = trainer.take_sums();
  REQUIRE(sums.bad);
  CHECK(sums.bad->step == 0);
  CHECK(sums.skipped == 1);
  check_same_tensors(trainer.weights(), before);
}

// A sum that does not fit between processes is infinite there, and the scale falls until it fits.
TEST_CASE("a sum that overflows between processes skips the step in all of them") {
  for (const auto compress : {Compress::kNone, Compress::kFp16, Compress::kBf16}) {
    auto options = fp16_options(1);
    options.compress = compress;
    options.replica.loss_scale = {.initial = 16384};
    const auto found = in_processes(Layout{1, 1}, options, [](int, const TrainerOptions& own) {
      auto trainer = wave_trainer(own, /*factor=*/8);
      for (int64_t step = 0; step < kWaveSteps; ++step) trainer.step(rows_of(step));
      return trainer.state();
    });
    for (const auto& state : found) CHECK(state.loss_scale == found.front().loss_scale);
    CHECK(found.front().loss_scale->updates > 0);
    CHECK(found.front().loss_scale->updates < kWaveSteps);
  }
}

TEST_CASE("fp16 is invariant where that is asked for, skipped steps too") {
  const auto train = [](int world) {
    auto options = fp16_options(world);
    options.replica.invariant = true;
    auto trainer = wave_trainer(options);
    for (int64_t step = 0; step < kWaveSteps; ++step) trainer.step(rows_of(step));
    return std::pair(trainer.weights(), trainer.loss_scale());
  };
  const auto [expected, scale] = train(1);
  CHECK(scale->updates == kWaveSteps - 1);
  for (const int world : {2, 4}) {
    const auto [weights, other] = train(world);
    check_same_tensors(weights, expected);
    CHECK(other == scale);
  }
}

// A power of two changes no bits where nothing is rounded to fp16.
TEST_CASE("lockstep's LeNet computes in fp32 under fp16, with the bits of fp32") {
  auto options = options_for(2);
  options.replica.optimizer.momentum = .9;
  auto in_fp32 = make_trainer(lenet_factory(), options);
  options.replica.precision = Precision::kFp16;
  auto in_fp16 = make_trainer(lenet_factory(), options);
  for (const auto& rows : kBatches) {
    in_fp32.step(rows);
    in_fp16.step(rows);
  }
  CHECK(in_fp16.take_sums().skipped == 0);
  check_same_tensors(in_fp16.weights(), in_fp32.weights());
}

// lockstep's kernels take fp32 and bf16.
TEST_CASE("torch's kernels compute a residual network in fp16") {
  const auto weights_by = [](Kernels kernels) {
    ResNet18Options network;
    network.width = 16;
    network.kernels = kernels;
    network.initialization = Initialization::kTorch;
    auto options = options_for(1);
    options.replica.precision = Precision::kFp16;
    options.replica.loss_scale.initial = 8;
    auto trainer = make_trainer(model_factory<ResNet18Impl>(network), options);
    trainer.step(Rows{3, 5});
    CHECK(trainer.take_sums().skipped == 0);
    return trainer.weights();
  };
  check_same_tensors(weights_by(Kernels::kAuto), weights_by(Kernels::kTorch));
}
