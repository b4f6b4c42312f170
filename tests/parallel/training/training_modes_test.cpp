#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <lockstep/tests/catch.h>

#include <array>

#include <lockstep/parallel/training/training_modes.h>

using namespace lockstep;

TEST_CASE("parts that two modules share have their own mode again after an evaluation") {
  torch::nn::Dropout shared(.5), still(.5);
  still->eval();
  torch::nn::Sequential actor(torch::nn::Linear(2, 2), shared),
      critic(shared, still, torch::nn::Linear(2, 1));
  {
    const EvaluationMode mode(std::array<torch::nn::Module*, 2>{actor.get(), critic.get()});
    for (const auto* net : {&actor, &critic}) {
      for (const auto& part : (*net)->modules()) CHECK_FALSE(part->is_training());
    }
  }
  CHECK(actor->is_training());
  CHECK(critic->is_training());
  CHECK(shared->is_training());
  CHECK_FALSE(still->is_training());
}
