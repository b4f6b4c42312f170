// The answers of a build without CUDA where CUDA would be needed.
#include <lockstep/tests/catch.h>

#include <lockstep/data/kernels/gather_images.h>
#include <lockstep/models/layers/batch_norm/batch_norm_kernels.h>
#include <lockstep/parallel/collectives/nccl_communicator.h>
#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/gradients/flat_fill.h>
#include <lockstep/parallel/optimizer/flat_sgd.h>
#include <lockstep/parallel/training/graphs/step_graph.h>
#include <lockstep/parallel/training/number_sums.h>
#include <lockstep/support/cuda/class_loss_kernels.h>
#include <lockstep/support/cuda/info.h>
#include <lockstep/tests/skip.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a build without CUDA says so wherever CUDA would be needed") {
  if (cuda_build() != "without CUDA") SKIP_CASE("this build has CUDA");
  const std::vector<torch::Device> two{{torch::kCUDA, 0}, {torch::kCUDA, 1}};
  const std::string expected = "this lockstep was built without CUDA";
  CHECK_THAT(refusal_and_hint<DeviceError>([] { StepGraph graph([] {}); }),
             ContainsSubstring(expected) && ContainsSubstring("LOCKSTEP_BUILD_CUDA=on"));
  CHECK_FALSE(StepGraph::available(two.front()));
  CHECK_THAT(refusal_and_hint<DeviceError>(
                 [] { gather_images(nullptr, nullptr, nullptr, 1, 1, nullptr, nullptr, nullptr); }),
             ContainsSubstring(expected));
  CHECK_THAT(refusal_and_hint<DeviceError>(
                 [] { flat_sgd(FlatSgdBuffers<float>{.size = 1}, {}, nullptr, nullptr, nullptr); }),
             ContainsSubstring(expected));
  CHECK_THAT(refusal_and_hint<DeviceError>([] { fill_flat(std::span<const FlatPiece<float>>(), nullptr); }),
             ContainsSubstring(expected));
  CHECK_THAT(refusal_and_hint<DeviceError>([] { add_numbers({}, nullptr); }), ContainsSubstring(expected));
  CHECK_THAT(refusal_and_hint<DeviceError>([] { class_loss_forward(ClassLossForward<float>(), nullptr); }),
             ContainsSubstring(expected));
  CHECK_FALSE(class_loss_kernels_take(/*gpu_memory=*/true));
  CHECK_FALSE(batch_norm_kernels_take(/*on_gpu=*/true));

  const std::string nccl = "this lockstep was built without NCCL";
  CHECK(nccl_version().empty());
  CHECK_THAT(refusal_and_hint<DeviceError>([] { make_nccl_id(); }),
             ContainsSubstring(nccl) && ContainsSubstring("use allreduce two_shot"));
  CHECK_THAT(refusal_and_hint<DeviceError>(
                 [&] { make_nccl_communicator({.devices = two, .world_size = 2, .id = {}}); }),
             ContainsSubstring(nccl));
  CHECK_THAT(refusal_and_hint<DeviceError>([&] { choose_allreduce(Allreduce::kNccl, two); }),
             ContainsSubstring(nccl));
  const std::vector<torch::Device> cpus(2, torch::kCPU);
  CHECK_THROWS_WITH(choose_allreduce(Allreduce::kNccl, cpus),
                    "NCCL works on GPUs only, but the devices include cpu");
  CHECK(choose_allreduce(Allreduce::kAuto, two) == Allreduce::kTwoShot);  // auto does without it
}
