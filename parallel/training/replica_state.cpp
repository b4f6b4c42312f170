#include <lockstep/parallel/training/replica_state.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <span>
#include <utility>

#include <lockstep/parallel/training/load_state.h>
#include <lockstep/parallel/training/replica.h>
#include <lockstep/support/error.h>
#include <lockstep/support/load_tensors.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep {
namespace {

at::Generator default_generator(torch::Device device) {
  return device.is_cpu() ? at::detail::getDefaultCPUGenerator()
                         : at::globalContext().defaultGenerator(device);
}

// A state of another length is another device's.
void set(at::Generator& generator, const torch::Tensor& state) {
  if (!state.defined() || state.numel() == 0 || generator.get_state().numel() != state.numel()) return;
  try {
    generator.set_state(state);
  } catch (const c10::Error& error) {
    throw WeightsError(fmt::format("this is no state of a generator: {}", error.what_without_backtrace()),
                       "take another checkpoint of the run");
  }
}

// With a copy of the device's generator, which stays as it is.
void require_generator_state(torch::Device device, const torch::Tensor& state) {
  auto generator = default_generator(device);
  std::unique_lock lock(generator.mutex());
  auto copy = generator.clone();
  lock.unlock();
  set(copy, state);
}

class PackedBytes {
 public:
  void add(const void* data, size_t size) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    bytes_.insert(bytes_.end(), bytes, bytes + size);
  }
  void add_number(int64_t number) { add(&number, sizeof(number)); }
  void add_tensor(const torch::Tensor& tensor) {
    const auto host = tensor.cpu().contiguous();
    add(host.const_data_ptr(), host.nbytes());
  }

  torch::Tensor tensor() const {
    auto result = torch::empty({static_cast<int64_t>(bytes_.size())}, torch::kUInt8);
    if (!bytes_.empty()) std::memcpy(result.mutable_data_ptr(), bytes_.data(), bytes_.size());
    return result;
  }

 private:
  std::vector<uint8_t> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  void read(void* into, size_t size) {
    if (size > bytes_.size()) {
      throw FailedError(fmt::format("the state of a replica has {} bytes left where {} were expected",
                                    bytes_.size(), size));
    }
    if (size > 0) std::memcpy(into, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
  }
  int64_t number() {
    int64_t result = 0;
    read(&result, sizeof(result));
    return result;
  }
  torch::Tensor tensor(at::IntArrayRef sizes, torch::ScalarType dtype) {
    auto result = torch::empty(sizes, dtype);
    read(result.mutable_data_ptr(), result.nbytes());
    return result;
  }

 private:
  std::span<const uint8_t> bytes_;
};

}  // namespace

torch::Tensor generator_state(torch::Device device) {
  auto generator = default_generator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state().cpu().clone();
}

torch::Tensor device_generator_state(torch::Device device) {
  return device.is_cpu() ? torch::empty({0}, torch::kUInt8) : generator_state(device);
}

void set_generator_state(torch::Device device, const torch::Tensor& state) {
  auto generator = default_generator(device);
  const std::lock_guard lock(generator.mutex());
  set(generator, state);
}

void set_generators(int local, std::span<const torch::Device> devices, const ReplicaState& own) {
  if (local == 0) set_generator_state(torch::kCPU, own.host_generator);
  const auto device = devices[static_cast<size_t>(local)];
  const bool leads = std::ranges::find(devices, device) - devices.begin() == local;
  if (leads && !device.is_cpu()) set_generator_state(device, own.device_generator);
}

void require_generators(torch::Device device, const ReplicaState& own) {
  require_generator_state(torch::kCPU, own.host_generator);
  if (!device.is_cpu()) require_generator_state(device, own.device_generator);
}

std::vector<NamedTensor> host_copies(const std::vector<NamedTensor>& tensors, const TensorAllocator& memory) {
  std::vector<NamedTensor> result;
  for (const auto& [name, tensor] : tensors) {
    result.push_back(
        {.name = name, .tensor = memory(tensor.sizes(), tensor.scalar_type()).copy_(tensor.detach())});
  }
  return result;
}

std::vector<NamedTensor> host_buffers(const torch::nn::Module& module) {
  return host_copies(distinct_buffers(module));
}

torch::Tensor pack(const ReplicaState& state) {
  PackedBytes bytes;
  bytes.add_number(state.rows_trained);
  for (const auto* generator : {&state.host_generator, &state.device_generator}) {
    bytes.add_number(generator->defined() ? generator->numel() : 0);
    if (generator->defined()) bytes.add_tensor(*generator);
  }
  for (const auto& buffer : state.buffers) bytes.add_tensor(buffer.tensor);
  return bytes.tensor();
}

ReplicaState unpack(const torch::Tensor& bytes, const std::vector<NamedTensor>& like) {
  const auto host = bytes.cpu().contiguous();
  ByteReader reader({host.const_data_ptr<uint8_t>(), host.nbytes()});
  ReplicaState state;
  state.rows_trained = reader.number();
  for (auto* generator : {&state.host_generator, &state.device_generator}) {
    const int64_t length = reader.number();
    *generator = reader.tensor({length}, torch::kUInt8);
  }
  for (const auto& buffer : like) {
    state.buffers.push_back(
        {.name = buffer.name, .tensor = reader.tensor(buffer.tensor.sizes(), buffer.tensor.scalar_type())});
  }
  return state;
}

void Replica::follow_requires_grad() {
  const torch::NoGradGuard no_grad;
  require_held_parameters();
  captured_.drop_graphs();
  sync_.attach(*model_.module);
  held_.release_frozen();
  require_memory_of_their_own(*model_.module);
  hold_parameters();
}

ReplicaState Replica::own_state() const {
  return {.buffers = host_buffers(*model_.module),
          .rows_trained = rows_trained_,
          .host_generator = generator_state(torch::kCPU),
          .device_generator = device_generator_state(endpoint_.device())};
}

// In place: captured steps read and write this memory.
void Replica::take_state(const ReplicaState& own, const TrainState& state, const StateNumbers& numbers) {
  const torch::NoGradGuard no_grad;
  broadcast_module(*model_.module, endpoint_);
  if (optimizer_->count_steps_by_parameter(numbers.steps_by_parameter)) captured_.drop_graphs();
  optimizer_->load(state.optimizer, endpoint_);
  if (average_ && average_->load(state.average, numbers.has_average, endpoint_)) captured_.drop_graphs();
  if (loss_scale_)
    loss_scale_->set_state(numbers.loss_scale.value_or(LossScaleState{.scale = options_.loss_scale.initial}));
  if (bf16_weights_.flat.defined()) bf16_weights_.flat.copy_(params_.flat);
  load_tensors(distinct_buffers(*model_.module), own.buffers,
               {.name = "replica", .parts = "buffers", .hint = {}});
  rows_trained_ = own.rows_trained;
  reset_sums();
}

}  // namespace lockstep
