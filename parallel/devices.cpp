#include <lockstep/parallel/devices.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <torch/cuda.h>

#include <lockstep/support/counted.h>
#include <lockstep/support/cpu/capability.h>
#include <lockstep/support/cuda/info.h>
#include <lockstep/support/error.h>
#include <lockstep/support/parse_number.h>
#include <lockstep/support/split_text.h>

namespace lockstep {
namespace {

[[noreturn]] void refuse(std::string_view spec, const std::string& why) {
  throw UsageError(fmt::format("device list '{}': {}", spec, why),
                   "a list looks like auto, cpu, cpux4, cuda, cuda:0, cuda:0x2 or cuda:0,cuda:1,cpu");
}

torch::Device gpu(int index, int gpus) {
  if (index < gpus) return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)};
  const auto problem = cuda_problem();
  if (gpus > 0 || !problem) {
    throw DeviceError(fmt::format("cuda:{} does not exist: this machine has {}", index, counted(gpus, "GPU")),
                      "`lockstep devices` lists this machine's devices");
  }
  throw DeviceError(fmt::format("cuda:{} cannot be used: {}", index, *problem),
                    "use " + NamedOption{"devices", "cpu", "the device list cpu"} +
                        ", or cpux2 for two replicas on the CPU");
}

std::vector<torch::Device> parse_name(std::string_view name, std::string_view spec, int gpus) {
  if (name == "auto") return {try_gpu(0, gpus)};
  if (name == "cpu") return {torch::Device(torch::kCPU)};
  if (name == "cuda") {
    gpu(0, gpus);  // throws if there is none
    return try_all_gpus(gpus);
  }
  if (name.starts_with("cuda:")) {
    const auto digits = name.substr(5);
    const auto index = parse_count<int>(digits);
    if (!index) refuse(spec, fmt::format("'{}' is not the number of a GPU", digits));
    return {gpu(*index, gpus)};
  }
  refuse(spec, fmt::format("'{}' is not a device", name));
}

// Parses one element of the list: a name, optionally followed by xN.
std::vector<torch::Device> parse_item(std::string_view item, std::string_view spec, int gpus) {
  if (item.empty()) refuse(spec, "an element is empty");
  const auto x = item.rfind('x');
  if (x == std::string_view::npos) return parse_name(item, spec, gpus);

  const auto digits = item.substr(x + 1);
  const auto times = parse_count<int>(digits);
  if (!times) refuse(spec, fmt::format("'{}' is not a device", item));
  if (*times < 1) refuse(spec, fmt::format("'{}' asks for {} replicas, at least 1 is needed", item, *times));
  if (*times > kMaxReplicas)
    refuse(spec, fmt::format("'{}' asks for more than {}", item, counted(kMaxReplicas, "replica")));
  const auto once = parse_name(item.substr(0, x), spec, gpus);
  if (once.size() != 1) refuse(spec, fmt::format("'{}' names several devices; repeat one of them", item));
  return std::vector(static_cast<size_t>(*times), once.front());
}

// The names of the devices, with how many equal ones stand in a row.
std::vector<std::pair<std::string, size_t>> equal_in_a_row(std::span<const torch::Device> devices) {
  std::vector<std::pair<std::string, size_t>> rows;
  for (const auto& device : devices) {
    auto name = device.str();
    if (rows.empty() || rows.back().first != name) rows.emplace_back(std::move(name), 0);
    ++rows.back().second;
  }
  return rows;
}

}  // namespace

int visible_gpus() { return torch::cuda::is_available() ? static_cast<int>(torch::cuda::device_count()) : 0; }

std::vector<torch::Device> parse_devices(std::string_view spec, int gpus) {
  std::vector<torch::Device> devices;
  for (const auto text : split_text(spec, ',')) {
    const auto item = parse_item(text, spec, gpus);
    devices.insert(devices.end(), item.begin(), item.end());
    if (devices.size() > kMaxReplicas) {
      refuse(spec, fmt::format("more than {}", counted(kMaxReplicas, "replica")));
    }
  }
  return devices;
}

std::vector<torch::Device> usable_devices(std::string_view spec) {
  auto devices = parse_devices(spec);
  for (const auto& device : devices) {
    if (device.is_cpu()) cpu_capability();
    if (!device.is_cuda()) continue;
    if (const auto problem = cuda_device_problem(device.index()))
      throw DeviceError(problem->message_text(), problem->hint_text());
  }
  return devices;
}

torch::Device try_gpu(int i, int gpus) {
  if (i < gpus) return {torch::kCUDA, static_cast<c10::DeviceIndex>(i)};
  return torch::Device(torch::kCPU);
}

std::vector<torch::Device> try_all_gpus(int gpus) {
  std::vector<torch::Device> devices;
  for (int i = 0; i < gpus; ++i) devices.push_back(try_gpu(i, gpus));
  if (devices.empty()) devices.emplace_back(torch::kCPU);
  return devices;
}

bool any_gpu(std::span<const torch::Device> devices) {
  return std::any_of(devices.begin(), devices.end(), [](auto device) { return !device.is_cpu(); });
}

bool any_cpu(std::span<const torch::Device> devices) {
  return std::any_of(devices.begin(), devices.end(), [](auto device) { return device.is_cpu(); });
}

std::string spec_of(std::span<const torch::Device> devices) {
  std::vector<std::string> names;
  for (const auto& [name, equal] : equal_in_a_row(devices)) {
    names.push_back(equal > 1 ? fmt::format("{}x{}", name, equal) : name);
  }
  return fmt::format("{}", fmt::join(names, ","));
}

std::string to_string(std::span<const torch::Device> devices) {
  constexpr size_t kFewestCounted = 3;
  std::vector<std::string> names;
  for (const auto& [name, equal] : equal_in_a_row(devices)) {
    if (equal >= kFewestCounted) names.push_back(fmt::format("{} x {}", name, equal));
    if (equal < kFewestCounted) names.insert(names.end(), equal, name);
  }
  return fmt::format("[{}]", fmt::join(names, ", "));
}

}  // namespace lockstep
