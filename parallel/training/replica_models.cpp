#include <lockstep/parallel/training/replica_models.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/parallel/devices.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// One per parameter and buffer: "first.weight [8, 2] Float".
std::vector<std::string> tensor_texts(const torch::nn::Module& module) {
  std::vector<std::string> texts;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    texts.push_back(fmt::format("{} [{}] {}", name, fmt::join(tensor.sizes(), ", "),
                                torch::toString(tensor.scalar_type())));
  };
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  return texts;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string tensor_at(const std::vector<std::string>& lines, size_t i) {
  return i < lines.size() ? lines[i] : fmt::format("no more than {} parameters and buffers", lines.size());
}

}  // namespace

void move_module(torch::nn::Module& module, torch::Device device, torch::ScalarType dtype) {
  const auto move = [&](torch::Tensor tensor) {
    tensor.set_data(tensor.to(device, tensor.is_floating_point() ? dtype : tensor.scalar_type()));
  };
  for (const auto& param : module.parameters()) move(param);
  for (const auto& buffer : module.buffers()) move(buffer);
}

void require_same_model(const torch::nn::Module& module, ProcessGroup& group) {
  const auto all = group.gather(fmt::format("{}", fmt::join(tensor_texts(module), "\n")));
  for (size_t process = 1; process < all.size(); ++process) {
    if (all[process] == all.front()) continue;
    const auto first = lines_of(all.front()), other = lines_of(all[process]);
    const auto [in_first, in_other] = std::mismatch(first.begin(), first.end(), other.begin(), other.end());
    const auto i = static_cast<size_t>(in_first - first.begin());
    throw UsageError(fmt::format("the model of process {} has {} where that of process 0 has {}", process,
                                 tensor_at(other, i), tensor_at(first, i)),
                     "build the same model in all processes");
  }
}

torch::Tensor read_parameter(std::span<const Model> replicas, std::string_view name, torch::Device device) {
  std::vector<torch::Device> holders;
  for (const auto& replica : replicas) {
    const auto params = replica.module->named_parameters();
    const auto* param = params.find(std::string(name));
    if (!param) {
      throw UsageError(
          fmt::format("the model has no parameter named '{}'", name),
          fmt::format("the first of its {} parameters is '{}'", params.size(), params.front().key()));
    }
    if (param->device() == device) return *param;
    holders.push_back(param->device());
  }
  throw DeviceError(fmt::format("parameter {} is not initialized on {}", name, device.str()),
                    fmt::format("it was only initialized on {}", to_string(holders)));
}

}  // namespace lockstep
