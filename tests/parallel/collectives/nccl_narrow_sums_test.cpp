// Collectives over NCCL that need torch's kernels beside it: sums of dtypes that it does not add.
#include <lockstep/tests/catch.h>

#include <vector>

#include <lockstep/parallel/collectives/nccl_communicator.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/tests/parallel/collectives/collectives.h>
#include <lockstep/tests/parallel/collectives/fake_nccl/fake_nccl.h>
#include <lockstep/tests/support/fake_gpu/fake_gpu.h>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("NCCL adds integers of 16 bits, which it does not know") {
  reset_fake_nccl();
  break_gpus(0);
  for (int world = 1; world <= 3; ++world) {
    std::vector<torch::Device> devices;
    for (int i = 0; i < world; ++i) devices.push_back(fake_gpu(i));
    const auto communicator =
        make_nccl_communicator({.devices = devices, .world_size = world, .id = make_nccl_id()});
    for (const int64_t n : {0, 1, 997}) {
      for (const auto dtype : {torch::kInt16, torch::kUInt16}) {
        INFO("world " << world << ", " << n << " of " << dtype);
        const auto host = inputs(world, n, dtype);
        const auto expected = exact_sum(host);
        Tensors tensors;
        for (int i = 0; i < world; ++i) tensors.push_back(on_fake_gpu(host[static_cast<size_t>(i)], i));
        allreduce_all(*communicator, tensors);
        for (const auto& device : devices) current_stream(device).synchronize();
        CHECK(all_are(expected, host));
      }
    }
  }
}
