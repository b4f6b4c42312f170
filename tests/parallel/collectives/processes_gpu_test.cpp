// GPU replicas of several processes that NCCL cannot join: their sums go through the host.
#include <lockstep/tests/catch.h>
#include <future>
#include <memory>
#include <vector>

#include <lockstep/support/cuda/stream.h>
#include <lockstep/tests/parallel/collectives/between_processes.h>
#include <lockstep/tests/parallel/collectives/fake_nccl/fake_nccl.h>
#include <lockstep/tests/support/fake_gpu/fake_gpu.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Two processes share a GPU, and one has a CPU replica beside its GPU.
const std::vector<std::vector<torch::Device>> kDevices{
    {fake_gpu(0), fake_gpu(1), fake_gpu(1)}, {fake_gpu(0), torch::kCPU}, {fake_gpu(2)}};
constexpr int kWorld = 6;

std::vector<torch::Device> all_devices() {
  std::vector<torch::Device> devices;
  for (const auto& of_process : kDevices) devices.insert(devices.end(), of_process.begin(), of_process.end());
  return devices;
}

// Views of this host memory on the ranks' devices.
Tensors on_devices(const Tensors& host) {
  const auto devices = all_devices();
  Tensors tensors;
  for (size_t rank = 0; rank < host.size(); ++rank) {
    const auto& device = devices[rank];
    tensors.push_back(device.is_cpu() ? host[rank] : on_fake_gpu(host[rank], device.index()));
  }
  return tensors;
}

// Runs task(communicator) in each process, and waits for its GPUs.
void on_gpus(const std::function<void(Communicator&)>& task, Compress compress = Compress::kNone) {
  run_processes(static_cast<int>(kDevices.size()), [&](int process, const Group& group) {
    const auto& devices = kDevices[static_cast<size_t>(process)];
    const auto communicator =
        make_communicator({.devices = devices, .process_group = group, .compress = compress});
    task(*communicator);
    for (const auto& device : devices) {
      if (!device.is_cpu()) current_stream(device).synchronize();
    }
  });
}

}  // namespace

TEST_CASE("GPUs of several processes sum, broadcast and gather through the host") {
  reset_fake_nccl();
  break_gpus(0);
  for (const int64_t n : {0, 1, 5, 997, 20'011}) {
    INFO(n << " elements");
    const auto new_inputs = [&] { return inputs(kWorld, n, torch::kFloat32); };
    const auto sums = new_inputs(), from_2 = new_inputs(), from_4 = new_inputs(), sources = new_inputs();
    const auto gathered = room_for(sources);
    const auto expected = exact_sum(sums), of_gpu = from_2[2].clone(), of_cpu = from_4[4].clone();
    on_gpus([&, gpu_sums = on_devices(sums), gpu_2 = on_devices(from_2), gpu_4 = on_devices(from_4),
             gpu_sources = on_devices(sources),
             gpu_gathered = on_devices(gathered)](Communicator& communicator) {
      allreduce_all(communicator, gpu_sums);
      broadcast_all(communicator, gpu_2, 2);
      broadcast_all(communicator, gpu_4, 4);
      gather_all(communicator, gpu_sources, gpu_gathered);
    });
    CHECK(all_are(expected, sums));
    CHECK(all_are(of_gpu, from_2));
    CHECK(all_are(of_cpu, from_4));
    CHECK(all_are(torch::stack(sources), gathered));
  }
}

TEST_CASE("gradients of GPUs travel compressed, on every rank with the same bits") {
  reset_fake_nccl();
  break_gpus(0);
  for (const auto compress : {Compress::kBf16, Compress::kFp16}) {
    for (const int64_t n : {0, 1, 5, 997, 20'011}) {
      INFO(n << " elements in " << name_of(kCompressNames, compress));
      Tensors exact, rounded;  // numbers whose sums these types hold, and numbers that they do not
      for (int rank = 0; rank < kWorld; ++rank) {
        exact.push_back(whole_numbers(rank, n, torch::kBFloat16).to(torch::kFloat32));
        rounded.push_back(whole_numbers(rank, n, torch::kFloat32).to(torch::kFloat32) / 1'000);
      }
      const auto expected = exact_sum(exact), sum = exact_sum(rounded);
      const auto gpu_exact = on_devices(exact), gpu_rounded = on_devices(rounded);
      on_gpus(
          [&](Communicator& communicator) {
            allreduce_gradients_all(communicator, gpu_exact);
            allreduce_gradients_all(communicator, gpu_rounded);
          },
          compress);
      CHECK(all_are(expected, exact));
      CHECK(all_are(rounded[0], rounded));
      CHECK(torch::allclose(rounded[0], sum, /*rtol=*/0, /*atol=*/6 * 500 * 2.01 / 256));
      if (n > 5) CHECK_FALSE(rounded[0].equal(sum));
    }
  }
}

TEST_CASE("a sum through the host waits for the GPU's stream, and what follows waits for the sum") {
  const auto compress = GENERATE(Compress::kNone, Compress::kBf16);
  reset_fake_nccl();
  break_gpus(0);
  const Tensors host{torch::zeros({500}), torch::zeros({500})};
  Tensors seen(2);
  run_processes(2, [&](int process, const Group& group) {
    const auto p = static_cast<size_t>(process);
    const auto gpu = fake_gpu(process);
    const auto communicator = make_communicator(
        {.devices = {gpu}, .algorithm = Allreduce::kGloo, .process_group = group, .compress = compress});
    const auto stream = current_stream(gpu);
    std::promise<void> gate;
    launch(stream, [&, open = gate.get_future().share()] {  // the gradient is still being computed
      open.wait();
      host[p].fill_(process + 1);
    });
    auto work = communicator->endpoint(0).allreduce_gradients(on_fake_gpu(host[p], process));
    gate.set_value();
    work.wait();
    launch(stream, [&] { seen[p] = host[p].clone(); });
    stream.synchronize();
  });
  CHECK(all_are(torch::full({500}, 3.F), seen));
}
