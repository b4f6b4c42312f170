// The loss scale of fp16. trainer_fp16_test.cpp compares steps with Python's GradScaler.
#include <torch/types.h>

#include <lockstep/tests/catch.h>

#include <cmath>
#include <vector>

#include <lockstep/parallel/training/loss_scale.h>

using namespace lockstep;

TEST_CASE("the scale halves after a bad step, and doubles after enough good ones in a row") {
  const LossScaleOptions options{.initial = 1024, .growth_interval = 3};
  LossScaleState state{.scale = 1024};
  const auto after = [&](bool finite) { return state = after_step(options, state, finite); };
  CHECK(after(true) == LossScaleState{.scale = 1024, .good_steps = 1, .updates = 1, .steps = 1});
  CHECK(after(true) == LossScaleState{.scale = 1024, .good_steps = 2, .updates = 2, .steps = 2});
  CHECK(after(false) == LossScaleState{.scale = 512, .good_steps = 0, .updates = 2, .steps = 3});
  CHECK(after(false) == LossScaleState{.scale = 256, .good_steps = 0, .updates = 2, .steps = 4});
  for (int i = 0; i < 2; ++i) after(true);
  CHECK(after(true) == LossScaleState{.scale = 512, .good_steps = 0, .updates = 5, .steps = 7});
}

TEST_CASE("the scale stays where twice as much is not a finite float") {
  const LossScaleState largest{.scale = 0x1p127};
  CHECK(after_step({.growth_interval = 1}, largest, true).scale == 0x1p127);
}

TEST_CASE("a scale is a float, with which the loss is multiplied and gradients are divided") {
  LossScale scale({.initial = 1000.1}, torch::kCPU);
  CHECK(scale.state().scale == static_cast<double>(1000.1f));
  scale.set_state({.scale = 3000.7, .good_steps = 2, .updates = 5});
  CHECK(scale.state() ==
        LossScaleState{.scale = static_cast<double>(3000.7f), .good_steps = 2, .updates = 5});
}

TEST_CASE("gradients are divided by the scale, or zero where one is not finite") {
  LossScale scale({.initial = 8}, torch::kCPU);
  CHECK(scale.scaled(torch::full({}, 3, torch::kFloat16)).equal(torch::full({}, 24.f)));
  CHECK(scale.scaled(torch::full({}, 60'000, torch::kFloat16)).item<float>() == 480'000);  // infinite in fp16
  const std::vector<torch::Tensor> gradients = {torch::arange(70'000).to(torch::kFloat32), torch::ones({3})};
  CHECK(scale.unscale(gradients));
  CHECK(gradients[0].equal(torch::arange(70'000).to(torch::kFloat32) / 8));
  CHECK(gradients[1].equal(torch::full({3}, .125f)));
  CHECK(scale.take_skipped() == 0);
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    gradients[0].fill_(1);
    gradients[1].fill_(1);
    gradients[1][2] = bad;
    CHECK_FALSE(scale.unscale(gradients));
    for (const auto& gradient : gradients) CHECK(gradient.count_nonzero().item<int64_t>() == 0);
  }
  CHECK(scale.state() == LossScaleState{.scale = 1, .good_steps = 0, .updates = 1, .steps = 4});
  CHECK(scale.take_skipped() == 3);
  CHECK(scale.take_skipped() == 0);
}
