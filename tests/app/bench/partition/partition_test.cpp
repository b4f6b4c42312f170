// The schemes that partition a network, in process: all compute what plain torch computes on the whole
// network, and cost what a calculation by hand gives.
#include <lockstep/tests/catch.h>

#include <lockstep/app/bench/partition/allocation_meter.h>
#include <lockstep/app/bench/partition/scheme.h>
#include <lockstep/models/lenet.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/cpus.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::cpus;

namespace {

using Make = std::function<std::unique_ptr<PartitionScheme>(Mesh& mesh, const PartitionTask& task)>;

// Rows in [0, 1], all different.
Batch made_up_rows(int64_t rows, torch::ScalarType dtype) {
  const auto X = torch::arange(rows * 784, torch::kFloat64).mul(37).remainder(251) / 251;
  return {X.view({rows, 1, 28, 28}).to(dtype), torch::arange(rows).mul(3).remainder(10)};
}

// 784-24-17-10: like the benchmark's, but small. Only the first width divides by two, three and four devices.
LayeredNetwork small_mlp() {
  const auto linear = [](int64_t inputs, int64_t outputs) {
    return Layer{.kind = LayerKind::kLinear, .inputs = inputs, .outputs = outputs};
  };
  return {"small", {linear(784, 24), Layer{}, linear(24, 17), Layer{}, linear(17, 10)}};
}

PartitionTask task_of(const LayeredNetwork& network, int64_t rows,
                      torch::ScalarType dtype = torch::kFloat64) {
  return {network, initial_parameters(network, /*seed=*/7, dtype), made_up_rows(rows, dtype)};
}

// Plain torch on the whole network and batch.
Params expected_gradients(const LayeredNetwork& network, const Params& params, const Batch& batch) {
  Params leaves;
  for (const auto& param : params) leaves.push_back(param.clone().requires_grad_());
  torch::Tensor logits;
  if (network.name == "lenet") {
    logits = lenet(batch.input(), leaves);
  } else {
    auto h = torch::relu(torch::mm(batch.input().flatten(1), leaves[0]) + leaves[1]);
    h = torch::relu(torch::mm(h, leaves[2]) + leaves[3]);
    logits = torch::mm(h, leaves[4]) + leaves[5];
  }
  torch::cross_entropy_loss(logits, batch.target()).backward();
  Params gradients;
  for (const auto& leaf : leaves) gradients.push_back(leaf.grad());
  return gradients;
}

// Every copy of the network agrees to 1e-10 of the largest element of each tensor.
void check_same(const std::vector<Params>& copies, const Params& expected) {
  for (const auto& gradients : copies) {
    REQUIRE(gradients.size() == expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      REQUIRE(gradients[i].sizes() == expected[i].sizes());
      CHECK(testing::max_difference(gradients[i], expected[i]) <= 1e-10 * testing::max_abs(expected[i]));
    }
  }
}

// Compares the gradients of the first step and those of the step after an update.
void check_scheme(const LayeredNetwork& network, int devices, int64_t rows, const Make& make) {
  CAPTURE(network.name, devices, rows);
  constexpr double kRate = .5;
  Mesh mesh(cpus(devices), /*threads=*/1);
  auto task = task_of(network, rows);
  const auto scheme = make(mesh, task);
  const auto first = expected_gradients(network, task.params, task.batch);
  check_same(step_gradients(mesh, *scheme), first);
  take_step(mesh, *scheme, kRate);
  for (size_t i = 0; i < first.size(); ++i) task.params[i] = task.params[i] - kRate * first[i];
  check_same(step_gradients(mesh, *scheme), expected_gradients(network, task.params, task.batch));
}

void check_scheme_on_all(const LayeredNetwork& network, const Make& make) {
  for (const int devices : {2, 3, 4}) {
    for (const int64_t rows : {1, 5, 7, 32}) check_scheme(network, devices, rows, make);
  }
}

std::vector<size_t> even_stages(const LayeredNetwork& network, int devices) {
  return balanced_stages(std::vector(network.layers.size(), 1.0), static_cast<size_t>(devices));
}

Make in_stages(int micro_batches) {
  return [=](Mesh& mesh, const PartitionTask& task) {
    return pipeline_parallel(mesh, task, even_stages(task.network, mesh.size()), micro_batches);
  };
}

Make cut_at(std::vector<size_t> starts, int micro_batches) {
  return [=](Mesh& mesh, const PartitionTask& task) {
    return pipeline_parallel(mesh, task, starts, micro_batches);
  };
}

StepCost cost_of(int devices, const PartitionTask& task, const Make& make) {
  Mesh mesh(cpus(devices), /*threads=*/1);
  const auto scheme = make(mesh, task);
  take_step(mesh, *scheme, .1);
  return cost_of_step(mesh, *scheme, .1);
}

}  // namespace

TEST_CASE("partition: one device computes what plain torch does") {
  for (const auto& network : {layered_network("lenet"), layered_network("mlp"), small_mlp()}) {
    check_scheme(network, 2, 5, one_device);
  }
}

TEST_CASE("partition: pipeline parallel gives plain torch's gradients, with any number of micro-batches") {
  for (const int micro_batches : {1, 2, 3, 4}) {
    CAPTURE(micro_batches);
    for (const int devices : {2, 3, 4}) {
      for (const int64_t rows : {1, 5, 7, 32}) {
        if (rows < micro_batches) continue;
        check_scheme(small_mlp(), devices, rows, in_stages(micro_batches));
        if (rows < 32 || micro_batches == 3)
          check_scheme(layered_network("lenet"), devices, rows, in_stages(micro_batches));
      }
    }
  }
}

TEST_CASE("partition: pipeline parallel gives the same wherever LeNet is cut in two") {
  for (size_t cut = 1; cut < 9; ++cut) {
    CAPTURE(cut);
    check_scheme(layered_network("lenet"), 2, 5, cut_at({0, cut, 9}, 2));
  }
}

TEST_CASE("partition: tensor parallel gives plain torch's gradients") {
  check_scheme_on_all(small_mlp(), tensor_parallel);
  check_scheme_on_all(layered_network("lenet"), tensor_parallel);
}

TEST_CASE("partition: data parallel gives plain torch's gradients on every device, with empty shards too") {
  check_scheme_on_all(small_mlp(), data_parallel);
  check_scheme_on_all(layered_network("lenet"), data_parallel);
}

TEST_CASE("partition: the benchmark's mlp with every scheme") {
  for (const auto& make : {in_stages(2), Make(tensor_parallel), Make(data_parallel)}) {
    check_scheme(layered_network("mlp"), 2, 5, make);
  }
}

TEST_CASE("partition: the networks have the numbers of parameters stated") {
  const auto count = [](const char* name) {
    int64_t parameters = 0;
    for (const auto& param : initial_parameters(layered_network(name), 3, torch::kFloat32))
      parameters += param.numel();
    return parameters;
  };
  CHECK(count("lenet") == 129'068);
  CHECK(count("mlp") == 784 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 10 + 10);
  const auto lenet_params = initial_parameters(layered_network("lenet"), 3, torch::kFloat32);
  CHECK(torch::equal(lenet_params[4], LeNetImpl(3).parameters()[4]));
  const auto mlp = initial_parameters(layered_network("mlp"), 3, torch::kFloat32);
  CHECK(mlp[2].std().item<double>() == Approx(std::sqrt(2. / 1024)).epsilon(.01));
  CHECK_FALSE(torch::equal(mlp[2], initial_parameters(layered_network("mlp"), 4, torch::kFloat32)[2]));
}

// LeNet's layers: 0 convolution, 1 relu, 2 pool (20 x 13 x 13 = 3380 per row), 3 convolution, 4 relu, 5 pool
// (50 x 4 x 4 = 800), 6 linear (128), 7 relu, 8 linear (10).
TEST_CASE("partition: bytes and synchronisations of LeNet, by hand") {
  constexpr int64_t kRows = 6;
  const auto task = task_of(layered_network("lenet"), kRows, torch::kFloat32);
  const auto traffic = [&](int devices, const Make& make) { return cost_of(devices, task, make).traffic; };

  SECTION("one device") {
    const auto alone = traffic(2, one_device);
    CHECK(alone.bytes == 0);
    CHECK(alone.synchronisations == 0);
  }
  SECTION("pipeline parallel: each boundary's activations go forward, their gradients back") {
    for (const int m : {1, 3}) {
      const auto two = traffic(2, cut_at({0, 3, 9}, m));
      CHECK(two.bytes == 2 * kRows * 3380 * 4);
      CHECK(two.synchronisations == 2 * m);
      const auto three = traffic(3, cut_at({0, 3, 6, 9}, m));
      CHECK(three.bytes == 2 * kRows * (3380 + 800) * 4);
      CHECK(three.synchronisations == 4 * m);
    }
  }
  SECTION("tensor parallel: n-1 devices read each part of four outputs, and of three gradients of inputs") {
    for (const int n : {2, 3, 4}) {
      const auto moved = traffic(n, tensor_parallel);
      CHECK(moved.bytes == (n - 1) * kRows * ((3380 + 800 + 128 + 10) + (3380 + 800 + 128)) * 4);
      CHECK(moved.synchronisations == 4 + 3);
    }
  }
  SECTION("data parallel: one bucket, whose tensors begin at multiples of 16 elements") {
    constexpr int64_t kFlat = 192 + 32 + 25'008 + 64 + 102'400 + 128 + 1280 + 16;
    for (const int n : {2, 3, 4}) {
      const auto moved = traffic(n, data_parallel);
      CHECK(moved.bytes == 2 * (n - 1) * kFlat * 4);
      CHECK(moved.synchronisations == 1);
    }
  }
}

// Three buckets: the last layer (41 kB), then the middle and the first layer, larger than 1 MB each.
TEST_CASE("partition: bytes and synchronisations of the mlp, data parallel, by hand") {
  const auto moved = cost_of(2, task_of(layered_network("mlp"), 4, torch::kFloat32), data_parallel).traffic;
  CHECK(moved.bytes == 2 * (784 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 10 + 16) * 4);
  CHECK(moved.synchronisations == 3);
}

TEST_CASE("partition: parameters on the fullest device, by hand") {
  const auto task = task_of(layered_network("lenet"), 4, torch::kFloat32);
  const auto bytes = [&](int devices, const Make& make) {
    return cost_of(devices, task, make).parameter_bytes;
  };
  constexpr int64_t kConvolutions = 180 + 20 + 25'000 + 50;
  constexpr int64_t kLinear = 102'400 + 128 + 1280 + 10;
  CHECK(bytes(2, one_device) == 4 * (kConvolutions + kLinear));
  CHECK(bytes(2, data_parallel) == 4 * (kConvolutions + kLinear));
  CHECK(bytes(2, cut_at({0, 6, 9}, 1)) == 4 * kLinear);
  // 10 of 20, 25 of 50, 64 of 128 and 5 of 10 outputs; on three devices the first has 7, 17, 43 and 4.
  CHECK(bytes(2, tensor_parallel) == 4 * (10 * 10 + 25 * 501 + 64 * 801 + 5 * 129));
  CHECK(bytes(3, tensor_parallel) == 4 * (7 * 10 + 17 * 501 + 43 * 801 + 4 * 129));
}

// Backward of the mlp reads: both ReLUs' outputs, the logarithms of the probabilities, the loss's total
// weight, the loss. Linear layers keep their input, which is one of these.
TEST_CASE("partition: activations that forward leaves for backward, by hand") {
  constexpr int64_t kRows = 6;
  const auto task = task_of(layered_network("mlp"), kRows, torch::kFloat32);
  const auto bytes = [&](int devices, const Make& make) {
    return cost_of(devices, task, make).activation_bytes;
  };
  const auto whole = [](int64_t rows) { return 4 * (rows * (1024 + 1024 + 10) + 1 + 1); };
  CHECK(bytes(2, one_device) == whole(kRows));
  CHECK(bytes(2, data_parallel) == whole(3));
  // Each layer leaves this device's outputs and all devices' outputs.
  CHECK(bytes(2, tensor_parallel) == 4 * (kRows * (512 + 1024 + 512 + 1024 + 5 + 10 + 10) + 1 + 1));
  // The second device has the first device's output, its own ReLU's output and the loss.
  CHECK(bytes(2, cut_at({0, 2, 5}, 1)) == whole(kRows));
}

TEST_CASE("AllocationMeter counts the bytes that its thread has allocated and not freed") {
  auto before = std::make_optional(torch::zeros({1000}, torch::kFloat32));
  const AllocationMeter meter;
  CHECK(meter.live_bytes() == 0);
  before.reset();  // was allocated before
  CHECK(meter.live_bytes() == 0);
  auto one = std::make_optional(torch::empty({100}, torch::kFloat32));
  const auto other = torch::empty({7}, torch::kFloat64);
  CHECK(meter.live_bytes() == 400 + 56);
  one.reset();
  CHECK(meter.live_bytes() == 56);
}
