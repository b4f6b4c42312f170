// The parts of Trainer::check_sync(): which tensors are compared, which differences their hashes show, and
// how a difference is named.
#include <torch/nn/modules/batchnorm.h>

#include <lockstep/tests/catch.h>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/training/sync_check.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/batch_norm/normed_layers.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

std::vector<std::string> tensor_names(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const auto& item : tensors) names.push_back(item.name);
  return names;
}

// A float of these bits, (1).
torch::Tensor float_of_bits(uint32_t bits) {
  auto tensor = torch::empty({1}, torch::kFloat32);
  std::memcpy(tensor.data_ptr(), &bits, sizeof bits);
  return tensor;
}

// The row of a replica whose tensors have these hashes.
std::vector<int64_t> report_of(torch::Device device, int64_t process, std::vector<int64_t> hashes) {
  std::vector<int64_t> row = {static_cast<int64_t>(device.type()), device.index(), process};
  row.insert(row.end(), hashes.begin(), hashes.end());
  return row;
}

// Returns what is said of these reports, after step 7, of the tensors a, b, ...
std::string verdict(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<torch::Tensor> tensors;
  for (const auto& row : rows) tensors.push_back(torch::tensor(row, torch::kInt64));
  std::vector<NamedTensor> names;
  for (size_t i = 3; i < rows.front().size(); ++i) {
    names.push_back({.name = std::string(1, static_cast<char>('a' + i - 3)), .tensor = {}});
  }
  try {
    require_equal_reports(torch::stack(tensors), names, 7);
  } catch (const OutOfSyncError& error) {
    CHECK(error.exit_code() == ExitCode::kFailed);
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("the hash of a tensor changes with every bit and with the order of its elements") {
  const auto dtype = GENERATE(torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kInt64);
  for (const int64_t count : {1, 2, 5, 37}) {
    const auto tensor = torch::arange(1, count + 1, torch::kInt64).to(dtype);
    std::set<int64_t> hashes = {hash_of_bits(tensor)};
    CHECK(hashes.count(hash_of_bits(tensor.clone())) == 1);
    auto changed = tensor.clone();
    auto* bytes = static_cast<uint8_t*>(changed.data_ptr());
    for (size_t i = 0; i < changed.nbytes(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        bytes[i] = static_cast<uint8_t>(bytes[i] ^ (1 << bit));
        hashes.insert(hash_of_bits(changed));
        bytes[i] = static_cast<uint8_t>(bytes[i] ^ (1 << bit));
      }
    }
    CHECK(hashes.size() == 8 * tensor.nbytes() + 1);
    if (count == 1) continue;
    CHECK(hash_of_bits(tensor.flip(0)) != hash_of_bits(tensor));
    CHECK(hash_of_bits(tensor.roll(1)) != hash_of_bits(tensor));
  }
  CHECK(hash_of_bits(torch::empty({0}, dtype)) == hash_of_bits(torch::empty({3, 0}, dtype)));
}

TEST_CASE("the hash of a tensor is of its bits") {
  const auto zeros = torch::zeros({8});
  for (int64_t i = 0; i < 8; ++i) {
    auto one = zeros.clone();
    one[i].fill_(-0.0);
    REQUIRE(one.equal(zeros));
    CHECK(hash_of_bits(one) != hash_of_bits(zeros));
    for (int64_t j = 0; j < i; ++j) {
      auto two = one.clone();
      two[j].fill_(-0.0);
      CHECK(hash_of_bits(two) != hash_of_bits(zeros));
    }
  }
  CHECK(hash_of_bits(float_of_bits(0x7fc00000)) == hash_of_bits(float_of_bits(0x7fc00000)));
  CHECK(hash_of_bits(float_of_bits(0x7fc00000)) != hash_of_bits(float_of_bits(0x7fc00001)));
  CHECK(hash_of_bits(float_of_bits(0x7fc00000)) != hash_of_bits(float_of_bits(0xffc00000)));
}

TEST_CASE("the hash of a tensor takes the elements in order, whatever the strides") {
  const auto matrix = torch::arange(35, torch::kFloat32).view({5, 7}).requires_grad_();
  CHECK(hash_of_bits(matrix.t()) == hash_of_bits(matrix.t().contiguous()));
  CHECK(hash_of_bits(matrix.t()) != hash_of_bits(matrix));
  const auto column = matrix.select(1, 3);
  CHECK(hash_of_bits(column) == hash_of_bits(torch::tensor({3., 10., 17., 24., 31.}, torch::kFloat32)));
  const auto images = torch::arange(120, torch::kFloat32).view({2, 3, 4, 5});
  CHECK(hash_of_bits(images.contiguous(at::MemoryFormat::ChannelsLast)) == hash_of_bits(images));
}

TEST_CASE(
    "replicated tensors are all parameters in the module's order, and statistics where they are alike") {
  const auto net = std::make_shared<NormedLayersImpl>();
  net->parameters()[0].requires_grad_(false);
  std::vector<std::string> names = {"inner.weight", "inner.bias",   "norm.weight",
                                    "norm.bias",    "outer.weight", "outer.bias"};
  CHECK(tensor_names(replicated_tensors(*net, false)) == names);
  for (const auto* statistic : {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}) {
    names.emplace_back(statistic);
  }
  CHECK(tensor_names(replicated_tensors(*net, true)) == names);
  const torch::nn::BatchNorm1d norm(3);
  CHECK(tensor_names(replicated_tensors(*norm, true)).back() == "num_batches_tracked");
  const torch::nn::BatchNorm1d without(torch::nn::BatchNormOptions(3).track_running_stats(false));
  CHECK(tensor_names(replicated_tensors(*without, true)) == std::vector<std::string>{"weight", "bias"});
}

TEST_CASE("a report has the replica's place and a hash for each tensor") {
  const std::vector<NamedTensor> tensors = {{"a", torch::ones({3})}, {"b", torch::zeros({2, 2})}};
  const auto report = sync_report(tensors, torch::kCPU, 4);
  const auto expected =
      report_of(torch::kCPU, 4, {hash_of_bits(torch::ones({3})), hash_of_bits(torch::zeros({2, 2}))});
  CHECK(report.equal(torch::tensor(expected, torch::kInt64)));
}

TEST_CASE("the first tensor that differs is named, and the ranks that do not have it as most have it") {
  const auto cpu = [](int64_t process, std::vector<int64_t> hashes) {
    return report_of(torch::kCPU, process, std::move(hashes));
  };
  CHECK(verdict({cpu(0, {5, 6})}).empty());
  CHECK(verdict({cpu(0, {5, 6}), cpu(0, {5, 6}), cpu(1, {5, 6})}).empty());
  const std::string start = "after step 7 the replicas differ: ";
  CHECK(verdict({cpu(0, {5, 6}), cpu(0, {5, 7})}) == start + "b of rank 1 (cpu) is not that of rank 0");
  CHECK(verdict({cpu(0, {5, 7}), cpu(0, {5, 6}), cpu(1, {5, 6})}) ==
        start + "b of rank 0 (cpu of process 0) is not that of rank 1");
  CHECK(verdict({cpu(0, {5, 6}), cpu(0, {5, 7}), cpu(1, {4, 6}), cpu(2, {5, 8})}) ==
        start + "a of rank 2 (cpu of process 1) is not that of rank 0");
  CHECK(verdict({cpu(0, {1}), cpu(0, {2}), cpu(0, {3}), cpu(0, {1})}) ==
        start + "a of ranks 1 (cpu) and 2 (cpu) is not that of rank 0");
  CHECK(verdict({cpu(0, {1}), cpu(1, {2}), cpu(2, {3}), cpu(3, {-1})}) ==
        start +
            "a of ranks 1 (cpu of process 1), 2 (cpu of process 2) and 3 (cpu of process 3) is not that "
            "of rank 0");
  std::vector<std::vector<int64_t>> many(23, cpu(0, {1}));
  for (size_t rank = 3; rank < 14; ++rank) many[rank] = cpu(0, {2});
  CHECK(verdict(many) ==
        start +
            "a of ranks 3 (cpu), 4 (cpu), 5 (cpu), 6 (cpu), 7 (cpu), 8 (cpu), 9 (cpu), 10 (cpu) and 3 "
            "more is not that of rank 0");
}

TEST_CASE("only replicas on devices of one type are compared") {
  const auto cpu = report_of(torch::kCPU, 0, {1, 2});
  const auto gpu = [](int index, std::vector<int64_t> hashes) {
    return report_of(torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index)), 0, std::move(hashes));
  };
  CHECK(verdict({cpu, gpu(0, {3, 4})}).empty());
  CHECK(verdict({cpu, gpu(0, {3, 4}), cpu, gpu(1, {3, 4})}).empty());
  CHECK(verdict({cpu, gpu(0, {3, 4}), cpu, gpu(1, {3, 2})}) ==
        "after step 7 the replicas differ: b of rank 3 (cuda:1) is not that of rank 1");
}
