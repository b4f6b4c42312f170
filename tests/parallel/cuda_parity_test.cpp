// Compares a GPU's gradients with double ones, and replicas that share a GPU with each other.
#include <lockstep/tests/catch.h>
#include <algorithm>
#include <map>
#include <numeric>

#include <lockstep/data/dataset.h>
#include <lockstep/data/synthetic.h>
#include <lockstep/models/lenet.h>
#include <lockstep/models/resnet18.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/support/row_numbers.h>
#include <lockstep/tests/parallel/collectives/collectives.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using Rows = std::vector<int64_t>;
using Weights = std::map<std::string, torch::Tensor>;       // parameters only, on the host
using Errors = std::map<std::string, std::vector<double>>;  // by parameter, one per batch

constexpr double kLr = 100;  // large, so that the weights after a step are its gradient
constexpr size_t kBatches = 3;

ModelFactory network(const std::string& name, int64_t width, Kernels kernels = Kernels::kAuto) {
  if (name == "lenet") return model_factory<LeNetImpl>(uint64_t{0}, torch::kFloat32, kernels);
  ResNet18Options options;
  options.width = width;
  options.kernels = kernels;
  // The chapters' weights are too small: next to their biases float sums would lose too many digits.
  options.initialization = Initialization::kTorch;
  return model_factory<ResNet18Impl>(options);
}

Rows consecutive_rows(int64_t first, int64_t count) {
  Rows rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

Weights weights_of(Trainer& trainer, int rank = 0) {
  Weights weights;
  const auto& module = *trainer.model(rank).module;
  const auto parameters = module.named_parameters();
  for (const auto& [name, tensor] : trainer.weights(rank)) {
    if (parameters.contains(name)) weights[name] = tensor;
  }
  return weights;
}

// Gradients of the mean loss over the rows, in double.
Weights exact_gradient(const ModelFactory& factory, const ImageSet& data, const Rows& rows) {
  WholeBatch whole(factory, torch::optim::SGDOptions(.1));
  torch::Tensor numbers;
  upload_rows(rows, data.size(), torch::kCPU, numbers);
  const auto source = resident_sources(data)(torch::kCPU);
  Batch batch(std::make_shared<const BatchSpec>(source->spec()));
  source->gather(numbers, /*epoch=*/0, batch);
  const auto gradients = whole.step(batch);
  Weights exact;
  const auto parameters = whole.module().named_parameters();
  for (size_t i = 0; i < gradients.size(); ++i) exact[parameters[i].key()] = gradients[i];
  return exact;
}

// The gradients of a Trainer. Kernels chosen by timing would have another error in each run.
Weights trained_gradient(const ModelFactory& factory, const ImageSet& data, const Rows& rows,
                         const std::string& device, Precision precision) {
  set_arithmetic(precision, /*deterministic=*/true);
  TrainerOptions options;
  options.devices = parse_devices(device);
  options.lr = {.lr = kLr};
  options.replica.precision = precision;
  Trainer trainer(factory, resident_sources(data), resident_sources(data), options);
  const auto before = weights_of(trainer);
  trainer.step(rows);
  auto after = weights_of(trainer);
  for (auto& [name, tensor] : after) {
    tensor = (before.at(name).to(torch::kFloat64) - tensor.to(torch::kFloat64)) / kLr;
  }
  return after;
}

// Largest error of each parameter's gradient relative to its largest element. Leaves out biases before a
// batch norm, whose gradient is only rounding.
void add_errors(Errors& errors, const Weights& found, const Weights& exact) {
  double largest = 0;
  for (const auto& [name, gradient] : exact) largest = std::max(largest, max_abs(gradient));
  for (const auto& [name, gradient] : exact) {
    if (max_abs(gradient) <= 1e-9 * largest) continue;
    errors[name].push_back(max_difference(found.at(name), gradient) / max_abs(gradient));
  }
}

struct Comparison {
  Errors host;   // fp32 on the CPU
  Errors other;  // of the device under test
};

Comparison compare(const ModelFactory& factory, int64_t rows, const std::string& device,
                   Precision precision) {
  const auto data = make_synthetic(3, static_cast<int64_t>(kBatches) * rows, 1).train;
  Comparison comparison;
  for (size_t i = 0; i < kBatches; ++i) {
    const auto batch = consecutive_rows(static_cast<int64_t>(i) * rows, rows);
    const auto exact = exact_gradient(factory, data, batch);
    add_errors(comparison.host, trained_gradient(factory, data, batch, "cpu", Precision::kFp32), exact);
    add_errors(comparison.other, trained_gradient(factory, data, batch, device, precision), exact);
  }
  return comparison;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Returns the parameters whose median error over the batches is above 1e-5 and above 3 times the CPU's worst.
// Not the worst of both: where a pre-activation lies within rounding of 0, two correct computations may take
// different sides of a ReLU and differ by far more than rounding.
std::vector<std::string> wrong_parameters(const Comparison& comparison) {
  std::vector<std::string> wrong;
  for (const auto& [name, errors] : comparison.other) {
    const auto& host = comparison.host.at(name);
    const double limit = std::max(3 * *std::max_element(host.begin(), host.end()), 1e-5);
    if (!(median(errors) <= limit)) {
      wrong.push_back(name);
      UNSCOPED_INFO(name << ": error " << median(errors) << ", limit " << limit);
    }
  }
  return wrong;
}

bool all_same_bits(const Weights& a, const Weights& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && same_bits(x.second, y.second);
  });
}

}  // namespace

TEST_CASE("a GPU's fp32 gradients are as close to double as the CPU's", "[cuda]") {
  const auto name = GENERATE(as<std::string>(), "lenet", "resnet18");
  const int64_t rows = GENERATE(8, 33);
  INFO(name << ", " << rows << " rows");
  const auto comparison = compare(network(name, 64), rows, "cuda:0", Precision::kFp32);
  CHECK(comparison.other.size() >= 8);
  CHECK(wrong_parameters(comparison).empty());
}

// Checks the comparison itself. (Lockstep's kernels of LeNet stay in fp32, so this uses torch's.)
TEST_CASE("the comparison of fp32 gradients fails for bfloat16 ones") {
  const auto factory = network("lenet", 0, Kernels::kTorch);
  CHECK(wrong_parameters(compare(factory, 8, "cpu", Precision::kFp32)).empty());
  CHECK(wrong_parameters(compare(factory, 8, "cpu", Precision::kBf16)).size() >= 6);
  CHECK(wrong_parameters(compare(network("lenet", 0), 8, "cpu", Precision::kBf16)).empty());
}

TEST_CASE("replicas on one GPU stay bit-identical: every allreduce, uneven shards", "[cuda]") {
  const auto spec = GENERATE(as<std::string>(), "cuda:0x2", "cuda:0x4");
  const auto allreduce = GENERATE(Allreduce::kRoot, Allreduce::kTwoShot, Allreduce::kRing);
  const auto name = GENERATE(as<std::string>(), "lenet", "resnet18");
  INFO(name << " on " << spec << ", " << name_of(kAllreduceNames, allreduce));
  constexpr int64_t kRows = 37;
  constexpr int kSteps = 5;
  const auto data = make_synthetic(3, kSteps * kRows, 1).train;
  TrainerOptions options;
  options.devices = parse_devices(spec);
  options.lr = {.lr = .1};
  options.allreduce = allreduce;
  Trainer trainer(network(name, 8), resident_sources(data), resident_sources(data), options);
  auto before = weights_of(trainer);
  for (int step = 0; step < kSteps; ++step) {
    trainer.step(consecutive_rows(step * kRows, kRows));
    const auto root = weights_of(trainer);
    CHECK_FALSE(all_same_bits(root, before));
    for (int rank = 1; rank < trainer.world_size(); ++rank) {
      INFO("step " << step << ", rank " << rank);
      CHECK(all_same_bits(root, weights_of(trainer, rank)));
    }
    before = root;
  }
}
