// make_communicator() chooses NCCL between the processes' GPUs where it can. The GPUs are fakes without
// kernels: only the fake NCCL can have computed a sum.
#include <lockstep/tests/catch.h>

#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/collectives/between_processes.h>
#include <lockstep/tests/parallel/collectives/fake_nccl/fake_nccl.h>
#include <lockstep/tests/support/fake_gpu/fake_gpu.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using DeviceLists = std::vector<std::vector<torch::Device>>;  // by process

// The algorithm, or message and hint of the UsageError, that each process gets.
std::vector<std::string> chosen(Allreduce wanted, const DeviceLists& devices) {
  return by_process(static_cast<int>(devices.size()), [&](int process, const Group& group) {
    std::string name;
    const auto refusal = refusal_and_hint([&] {
      name = name_of(kAllreduceNames,
                     choose_allreduce(wanted, devices[static_cast<size_t>(process)], group.get()));
    });
    return name + refusal;
  });
}

}  // namespace

TEST_CASE("between processes auto is NCCL for distinct GPUs only, also for one in each") {
  const torch::Device cpu(torch::kCPU);
  const auto all = [](const std::string& name) { return std::vector<std::string>(2, name); };
  CHECK(chosen(Allreduce::kAuto, {{fake_gpu(0), fake_gpu(1)}, {fake_gpu(2)}}) == all("nccl"));
  CHECK(chosen(Allreduce::kAuto, {{fake_gpu(0)}, {fake_gpu(1)}}) == all("nccl"));
  CHECK(chosen(Allreduce::kAuto, {{fake_gpu(0), fake_gpu(1)}, {fake_gpu(1)}}) == all("gloo"));
  CHECK(chosen(Allreduce::kAuto, {{fake_gpu(0), fake_gpu(0)}, {fake_gpu(1)}}) == all("gloo"));
  CHECK(chosen(Allreduce::kAuto, {{fake_gpu(0)}, {cpu}}) == all("gloo"));
  CHECK(chosen(Allreduce::kGloo, {{fake_gpu(0)}, {fake_gpu(1)}}) == all("gloo"));
  // NCCL itself says whether these two are one GPU.
  CHECK(chosen(Allreduce::kNccl, {{fake_gpu(0)}, {fake_gpu(0)}}) == all("nccl"));
  CHECK(chosen(Allreduce::kNccl, {{fake_gpu(0)}, {cpu}}) ==
        all("NCCL cannot join process 1: NCCL works on GPUs only, but the devices include cpu | "
            "use allreduce gloo, which works on any devices"));
}

TEST_CASE("NCCL joins the GPUs of several processes, also uneven numbers of them") {
  reset_fake_nccl();
  const DeviceLists devices{{fake_gpu(0)}, {fake_gpu(1), fake_gpu(2)}, {fake_gpu(3)}};
  const auto host = inputs(4, 100, torch::kFloat32);
  const auto expected = exact_sum(host);
  Tensors tensors;
  for (int rank = 0; rank < 4; ++rank) tensors.push_back(on_fake_gpu(host[static_cast<size_t>(rank)], rank));
  std::vector<int> worlds(3);
  run_processes(3, [&](int process, const Group& group) {
    const auto p = static_cast<size_t>(process);
    const auto communicator = make_communicator({.devices = devices[p], .process_group = group});
    worlds[p] = communicator->world_size();
    allreduce_all(*communicator, tensors);
    for (const auto& device : devices[p]) current_stream(device).synchronize();
  });
  CHECK(worlds == std::vector<int>{4, 4, 4});
  CHECK(all_are(expected, host));
}

TEST_CASE("NCCL does not compress: who asks for both gets an error, and gloo works") {
  const auto found = by_process(2, [](int process, const Group& group) {
    const auto make = [&](Allreduce algorithm) {
      make_communicator({.devices = {fake_gpu(process)},
                         .algorithm = algorithm,
                         .process_group = group,
                         .compress = Compress::kBf16});
    };
    const auto refusal = refusal_and_hint([&] { make(Allreduce::kAuto); });
    make(Allreduce::kGloo);
    return refusal;
  });
  for (const auto& text : found) {
    CHECK(text ==
          "compress bf16 needs allreduce gloo, but it is nccl | use allreduce gloo, or compress none");
  }
}
