// The chapter's verbs one by one: devices, get_params, allreduce, split_batch, sgd.
#include <torch/types.h>

#include <lockstep/tests/catch.h>
#include <cmath>
#include <tuple>

#include <lockstep/parallel/allreduce.h>
#include <lockstep/parallel/chapter/sgd.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/get_params.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/support/error.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("device lists, which count three or more equal ones in a row") {
  struct Case {
    const char* spec;
    int gpus;
    const char* list;
  };
  const Case cases[] = {{"auto", 0, "[cpu]"},
                        {"auto", 2, "[cuda:0]"},
                        {"cpu", 2, "[cpu]"},
                        {"cpux2", 2, "[cpu, cpu]"},
                        {"cpux3", 2, "[cpu x 3]"},
                        {"cpux64", 0, "[cpu x 64]"},
                        {"cuda", 3, "[cuda:0, cuda:1, cuda:2]"},
                        {"cuda:0,cuda:1", 2, "[cuda:0, cuda:1]"},
                        {"cuda:1x2", 2, "[cuda:1, cuda:1]"},
                        {"cuda:0,cpux2", 1, "[cuda:0, cpu, cpu]"},
                        {"cuda,cpu", 2, "[cuda:0, cuda:1, cpu]"},
                        {"cuda:0x3,cuda:1x2,cpux4", 2, "[cuda:0 x 3, cuda:1, cuda:1, cpu x 4]"},
                        {"cpu,cuda:0,cpux2", 2, "[cpu, cuda:0, cpu, cpu]"}};
  for (const auto& [spec, gpus, list] : cases) {
    INFO(spec << " on " << gpus << " GPUs");
    CHECK(to_string(parse_devices(spec, gpus)) == list);
  }
}

TEST_CASE("what is not a device list is a usage error that shows it") {
  const auto spec = GENERATE(as<std::string>(), "", ",", "cpu,", "cpux0", "cpux", "cpux-1", "cpux2x2", "cpu2",
                             "gpu", "cuda:", "cuda:a", "cuda:-1", "cuda:+1", "cuda:0x0", "cudax2", "CPU",
                             " cpu", "cpux99999999999", "cpux1025", "cpux1024,cpu");
  INFO(spec);
  CHECK_THROWS_AS(parse_devices(spec, 2), UsageError);
  CHECK_THROWS_WITH(parse_devices(spec, 2), ContainsSubstring("'" + spec + "'"));
}

TEST_CASE("a GPU that is not there is a device error") {
  CHECK_THROWS_AS(parse_devices("cuda", 0), DeviceError);
  CHECK_THROWS_AS(parse_devices("cuda:7", 0), DeviceError);
  CHECK_THROWS_AS(parse_devices("cpu,cuda:2", 2), DeviceError);
  CHECK_THROWS_WITH(parse_devices("cuda:7", 2), "cuda:7 does not exist: this machine has 2 GPUs");
}

TEST_CASE("spec_of() names a list of devices in the syntax of --devices") {
  const torch::Device cpu(torch::kCPU), first(torch::kCUDA, 0), second(torch::kCUDA, 1);
  CHECK(spec_of(std::vector{cpu}) == "cpu");
  CHECK(spec_of(std::vector{cpu, cpu, cpu}) == "cpux3");
  CHECK(spec_of(std::vector{first, second}) == "cuda:0,cuda:1");
  CHECK(spec_of(std::vector{first, first, cpu, first}) == "cuda:0x2,cpu,cuda:0");
}

TEST_CASE("any_gpu() and any_cpu() say what a list of devices has") {
  for (const auto& [spec, cpu, gpu] :
       {std::tuple{"cpux3", true, false}, {"cuda", false, true}, {"cuda:1,cpu", true, true}}) {
    CHECK(any_cpu(parse_devices(spec, 2)) == cpu);
    CHECK(any_gpu(parse_devices(spec, 2)) == gpu);
  }
  CHECK_FALSE(any_cpu({}));
  CHECK_FALSE(any_gpu({}));
}

TEST_CASE("the chapter's try_gpu and try_all_gpus") {
  CHECK(try_gpu(0, 0) == torch::Device(torch::kCPU));
  CHECK(try_gpu(1, 2) == torch::Device(torch::kCUDA, 1));
  CHECK(try_gpu(10, 2) == torch::Device(torch::kCPU));
  CHECK(to_string(try_all_gpus(0)) == "[cpu]");
  CHECK(to_string(try_all_gpus(2)) == "[cuda:0, cuda:1]");
}

TEST_CASE("get_params copies, requires gradients, and starts them at zero") {
  const Params originals{torch::tensor({1., 2.}), torch::tensor({{3.F}})};
  auto copies = get_params(originals, torch::kCPU);
  REQUIRE(copies.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(copies[i].equal(originals[i]));
    CHECK(copies[i].scalar_type() == originals[i].scalar_type());
    CHECK(copies[i].requires_grad());
    CHECK(copies[i].is_leaf());
    CHECK(copies[i].grad().equal(torch::zeros_like(originals[i])));
  }
  copies[0].detach().fill_(9);  // not shared, though it is the same device
  CHECK(originals[0].equal(torch::tensor({1., 2.})));
  CHECK_FALSE(originals[0].requires_grad());
}

TEST_CASE("allreduce: every replica holds the exact sum") {
  const int world = GENERATE(range(1, 9));
  const int64_t size = GENERATE_COPY(values<int64_t>({0, 1, world - 1, 7919, 1'000'000}));
  const auto dtype = GENERATE(torch::kFloat32, torch::kFloat64, torch::kBFloat16);
  INFO(world << " replicas, " << size << " elements, " << dtype);
  // Rank r holds (r + 1) * (1 + i % 7): small integers, so that any order gives the exact sum, in bfloat16
  // too (at most 36 * 7 = 252 < 256), and a misplaced element or a rank counted twice shows.
  const auto pattern = (torch::arange(size, torch::kInt64).remainder(7) + 1).to(dtype);
  std::vector<torch::Tensor> tensors;
  for (int rank = 0; rank < world; ++rank) tensors.push_back(pattern * (rank + 1));
  allreduce(tensors);
  const auto expected = pattern * (world * (world + 1) / 2);
  for (const auto& tensor : tensors) CHECK(tensor.equal(expected));
}

TEST_CASE("allreduce adds in the order of ranks") {
  // In float (1e8 + 1) - 1e8 is 0 and (1e8 - 1e8) + 1 is 1.
  std::vector<torch::Tensor> tensors{torch::tensor({1e8F, 1e8F}), torch::tensor({1.F, -1e8F}),
                                     torch::tensor({-1e8F, 1.F})};
  allreduce(tensors);
  for (const auto& tensor : tensors) CHECK(tensor.equal(torch::tensor({0.F, 1.F})));
}

TEST_CASE("allreduce refuses tensors that differ, and leaves them alone") {
  std::vector<torch::Tensor> none;
  allreduce(none);
  std::vector<torch::Tensor> shapes{torch::ones({2}), torch::ones({2}), torch::ones({3})};
  CHECK_THROWS_WITH(allreduce(shapes),
                    "allreduce needs tensors of one shape and dtype, got Float [2] and Float [3]");
  CHECK(shapes[0].equal(torch::ones({2})));
  std::vector<torch::Tensor> dtypes{torch::ones({2}), torch::ones({2}, torch::kFloat64)};
  CHECK_THROWS_AS(allreduce(dtypes), UsageError);
}

// LibTorch's data_parallel uses chunk(), which gives fewer pieces than devices for small batches, and then
// throws.
TEST_CASE("every device gets a shard, an empty one if need be") {
  const int world = GENERATE(range(1, 9));
  const int64_t rows = GENERATE(values<int64_t>({0, 1, 2, 5, 7, 256, 257}));
  INFO(rows << " rows over " << world);
  const auto X = torch::arange(rows * 3).view({rows, 3});
  const auto y = torch::arange(rows);
  const std::vector<torch::Device> devices(static_cast<size_t>(world), torch::kCPU);
  const auto shards = split_batch(X, y, devices);
  REQUIRE(shards.size() == static_cast<size_t>(world));
  std::vector<torch::Tensor> all_X, all_y;
  for (const auto& shard : shards) {
    CHECK(shard.input().size(0) == shard.rows());
    CHECK(shard.rows() >= rows / world);      // no two shards
    CHECK(shard.rows() <= rows / world + 1);  // differ by more than a row
    all_X.push_back(shard.input());
    all_y.push_back(shard.target());
  }
  CHECK(torch::cat(all_X).equal(X));
  CHECK(torch::cat(all_y).equal(y));
}

TEST_CASE("shares by weight") {
  using Sizes = std::vector<int64_t>;
  const auto sizes = [](int64_t rows, std::vector<double> weights) {
    return shard_sizes(rows, static_cast<int>(weights.size()), weights);
  };
  CHECK(sizes(256, {3, 1}) == Sizes{192, 64});
  CHECK(sizes(10, {1, 1, 1}) == Sizes{4, 3, 3});  // remainders tie: lower rank first
  CHECK(sizes(10, {1, 2, 4}) == Sizes{1, 3, 6});  // 1.43, 2.86, 5.71: the two largest remainders go up
  CHECK(sizes(7, {0, 1, 0}) == Sizes{0, 7, 0});
  CHECK(sizes(0, {1, 2}) == Sizes{0, 0});
  CHECK(sizes(1, {1, 1e-9}) == Sizes{1, 0});
}

TEST_CASE("splits that make no sense are usage errors") {
  const std::vector<double> negative{1, -1}, zero{0, 0}, nan{1, std::nan("")}, three{1, 1, 1};
  for (const auto& weights : {negative, zero, nan, three})
    CHECK_THROWS_AS(shard_sizes(8, 2, weights), UsageError);
  // Finite numbers whose sum is infinite, or so small that it has lost its digits.
  const std::vector<double> huge{1e308, 1e308}, tiny{5e-324, 0}, small{1e-310, 1e-310};
  for (const auto& weights : {huge, tiny, small})
    CHECK_THROWS_WITH(shard_sizes(8, 2, weights), ContainsSubstring("sum to"));
  CHECK(shard_sizes(8, 2, std::vector<double>{8e307, 8e307}) == std::vector<int64_t>{4, 4});
  CHECK(shard_sizes(8, 2, std::vector<double>{3e-308, 3e-308}) == std::vector<int64_t>{4, 4});
  CHECK_THROWS_AS(shard_sizes(8, 0), UsageError);
  CHECK_THROWS_AS(shard_sizes(-1, 2), UsageError);
  const std::vector<torch::Device> devices(2, torch::kCPU);
  CHECK_THROWS_WITH(split_batch(torch::ones({4, 2}), torch::ones({3}), devices),
                    "the batch's input has 4 rows, its target has 3");
}

TEST_CASE("sgd steps by lr / batch_size and zeroes the gradient") {
  auto param = torch::tensor({1.F, -2.F}).requires_grad_();
  param.mutable_grad() = torch::tensor({8.F, 4.F});
  const auto* gradient = param.grad().data_ptr();
  sgd({param}, /*lr=*/.5, /*batch_size=*/4);
  CHECK(param.detach().equal(torch::tensor({0.F, -2.5F})));  // 1 - .5 * 8 / 4, -2 - .5 * 4 / 4
  CHECK(param.grad().equal(torch::zeros({2})));
  CHECK(param.grad().data_ptr() == gradient);  // in place
}
