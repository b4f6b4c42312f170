// Replicas and the verbs on a GPU. Skipped without one.
#include <c10/core/impl/VirtualGuardImpl.h>

#include <lockstep/tests/catch.h>
#include <numeric>
#include <set>

#include <lockstep/models/lenet.h>
#include <lockstep/parallel/allreduce.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/get_params.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/parallel/train_batch.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/torch_lenet.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const torch::Device kGpu(torch::kCUDA, 0);

Batch make_batch(int64_t rows) {
  auto generator = at::detail::createCPUGenerator(5);
  return {torch::rand({rows, 1, 28, 28}, generator, torch::TensorOptions(torch::kFloat64)),
          torch::arange(rows).mul(7).remainder(10)};
}

std::vector<Params> replicas(std::span<const torch::Device> devices) {
  const LeNet net(0, torch::kFloat64);
  std::vector<Params> params;
  for (const auto& device : devices) params.push_back(get_params(net->parameters(), device));
  return params;
}

}  // namespace

TEST_CASE("every replica on a GPU has its own stream", "[cuda]") {
  ReplicaWorkers workers(parse_devices("cuda:0x4"), 1);
  std::vector<c10::StreamId> streams(4);
  const c10::impl::VirtualGuardImpl guard(torch::kCUDA);
  workers.run([&](int rank) { streams[static_cast<size_t>(rank)] = guard.getStream(kGpu).id(); });
  CHECK(std::set(streams.begin(), streams.end()).size() == 4);
  CHECK(std::find(streams.begin(), streams.end(), guard.getStream(kGpu).id()) == streams.end());
}

TEST_CASE("the replicas' work in run() follows the caller's earlier work and precedes its later work",
          "[cuda]") {
  ReplicaWorkers workers(parse_devices("cuda:0x3"), 1);
  constexpr int64_t kSize = int64_t{1} << 24;  // large, so that a kernel still runs when the next is queued
  for (int round = 0; round < 20; ++round) {
    auto data = torch::zeros({3, kSize}, kGpu);
    for (int i = 0; i < 10; ++i) data.add_(1);
    workers.run([&](int rank) { data[rank].mul_(rank + 2); });
    CHECK(data.sum(1, /*keepdim=*/false, torch::kFloat64)
              .cpu()
              .equal(torch::tensor({20., 30., 40.}, torch::kFloat64) * kSize));
  }
}

TEST_CASE("allreduce between a GPU and the host", "[cuda]") {
  std::vector<torch::Tensor> tensors{torch::arange(1000, kGpu), torch::arange(1000) * 10,
                                     torch::arange(1000, kGpu) * 100};
  allreduce(tensors);
  for (const auto& tensor : tensors) CHECK(tensor.cpu().equal(torch::arange(1000) * 111));
  CHECK(tensors[0].device() == kGpu);
  CHECK(tensors[1].is_cpu());
}

TEST_CASE("replicas on a GPU take the same step as the whole batch and stay bit-identical", "[cuda]") {
  const auto spec = GENERATE(as<std::string>(), "cuda:0", "cuda:0x2", "cuda:0x3", "cuda:0,cpu");
  const int64_t rows = GENERATE(1, 7, 257);
  INFO(spec << ", " << rows << " rows");
  const auto devices = parse_devices(spec);
  const auto batch = make_batch(rows);
  ReplicaWorkers workers(devices, 1);
  auto params = replicas(devices);
  train_batch(split_batch(batch, devices), params, lenet, .2, workers);

  const LeNet initial(0, torch::kFloat64);
  const auto gradients = torch_gradients(initial->parameters(), batch.input(), batch.target());
  for (size_t i = 0; i < gradients.size(); ++i) {
    INFO("parameter " << i);
    const double step = .2 / static_cast<double>(rows);
    const auto expected = initial->parameters()[i].detach() - step * gradients[i];
    for (const auto& replica : params) {
      CHECK(max_difference(replica[i].cpu(), expected) <= 1e-10 * step * max_abs(gradients[i]) + 1e-16);
      if (spec.find("cpu") == std::string::npos) CHECK(replica[i].equal(params[0][i]));
    }
  }
}
