#include <lockstep/app/commands/demo_gluon.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <span>

#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/plan/dataset.h>
#include <lockstep/data/synthetic.h>
#include <lockstep/models/factory.h>
#include <lockstep/models/resnet18.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/parallel/training/evaluation.h>
#include <lockstep/parallel/training/replica_models.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr const char* kWeight = "0.weight";  // of the first convolution, (64, 1, 3, 3)
constexpr int64_t kTestRows = 300;           // no multiple of a block: the last block is partial

// Prints a matrix row by row.
std::string matrix_rows(const torch::Tensor& tensor) {
  const auto rows = tensor.detach().cpu().to(torch::kFloat64).contiguous();
  const std::span values(rows.const_data_ptr<double>(), static_cast<size_t>(rows.numel()));
  const auto columns = static_cast<size_t>(rows.size(1));
  std::string text;
  for (size_t begin = 0; begin < values.size(); begin += columns) {
    text += fmt::format("  [{: .2e}]\n", fmt::join(values.subspan(begin, columns), " "));
  }
  return text;
}

std::vector<Model> initialize_everywhere(const std::vector<torch::Device>& devices) {
  const auto factory =
      make_model_factory({.name = "resnet18", .initialization = Initialization::kNormalZeroBias});
  std::vector<Model> models;
  for (const auto device : devices) {
    models.push_back(factory());
    move_module(*models.back().module, device, torch::kFloat32);
  }
  return models;
}

// Computes each shard of a batch of four on its own device.
std::string show_forward(const std::vector<Model>& models, const std::vector<torch::Device>& devices) {
  const torch::NoGradGuard no_grad;
  const auto X = make_synthetic(/*seed=*/1, /*train=*/4, /*test=*/1).train.images.to(torch::kFloat32) / 255;
  std::string text = "a batch of 4 images, split; each shard's forward pass on its own device:\n";
  const auto shards = split_batch(X, torch::zeros({4}, torch::kInt64), devices);
  for (size_t i = 0; i < shards.size(); ++i) {
    models[i].module->eval();
    const auto net = std::dynamic_pointer_cast<ResNet18Impl>(models[i].module);
    const auto rows = shards[i].rows();
    text += fmt::format("replica {} on {}, {}:\n", i, devices[i].str(), counted(rows, "row"));
    if (rows > 0) text += matrix_rows(net->forward(shards[i].input()));
  }
  return text;
}

// Returns the first of cpu, cuda:0, cuda:1, ... that is not in the list. It need not exist.
torch::Device device_outside(const std::vector<torch::Device>& devices) {
  torch::Device device(torch::kCPU);
  for (c10::DeviceIndex gpu = 0; std::find(devices.begin(), devices.end(), device) != devices.end(); ++gpu) {
    device = torch::Device(torch::kCUDA, gpu);
  }
  return device;
}

std::string show_parameters(const std::vector<Model>& models, const std::vector<torch::Device>& devices) {
  std::string text;
  const auto elsewhere = device_outside(devices);
  try {
    read_parameter(models, kWeight, elsewhere);
  } catch (const DeviceError& error) {
    text +=
        fmt::format("reading {} on {}: {}; {}\n", kWeight, elsewhere.str(), error.message(), error.hint());
  }
  for (size_t i = 0; i < models.size(); ++i) {
    text += fmt::format("its first kernel (3 x 3) in replica {} on {}:\n{}", i, devices[i].str(),
                        matrix_rows(read_parameter({&models[i], 1}, kWeight, devices[i])[0][0]));
  }
  return text;
}

std::string show_evaluation(const std::vector<Model>& models, const std::vector<torch::Device>& devices) {
  const auto data = make_synthetic(/*seed=*/0, /*train=*/1, kTestRows);
  ReplicaWorkers workers(devices);
  // For one small collective: NCCL would take longer to start.
  const auto communicator = make_communicator({.devices = devices, .algorithm = Allreduce::kTwoShot});
  const auto sources = sources_for(devices, resident_sources(data.test));
  const auto result = evaluate(models, sources, Precision::kFp32, workers, *communicator);
  return fmt::format("evaluated on all devices at once, before training: {:.0f} of {} images right\n",
                     result.metrics.front().sum, result.rows);
}

}  // namespace

void run_demo_gluon(const std::string& spec) {
  const auto devices = usable_devices(spec);
  const auto models = initialize_everywhere(devices);
  write_stdout(
      fmt::format("ResNet-18 initialised on {}: weights N(0, .01), biases 0\n\n", to_string(devices)));
  write_stdout(show_forward(models, devices) + "\n");
  write_stdout(show_parameters(models, devices) + "\n");
  write_stdout(show_evaluation(models, devices));
}

}  // namespace lockstep
