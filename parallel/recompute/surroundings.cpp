#include <lockstep/parallel/recompute/surroundings.h>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace lockstep {
namespace {

at::Generator copy_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.clone();
}

}  // namespace

AutocastState::AutocastState() {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    types_[i] = {at::autocast::is_autocast_enabled(kTypes[i]), at::autocast::get_autocast_dtype(kTypes[i])};
  }
}

void AutocastState::set() const {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    at::autocast::set_autocast_enabled(kTypes[i], types_[i].enabled);
    at::autocast::set_autocast_dtype(kTypes[i], types_[i].dtype);
  }
}

GpuGenerators::GpuGenerators(const std::vector<torch::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    if (!tensor.defined() || !tensor.is_cuda()) continue;
    at::Generator generator = at::globalContext().defaultGenerator(tensor.device());
    const auto is_it = [&](const Entry& entry) { return entry.generator == generator; };
    if (std::any_of(entries_.begin(), entries_.end(), is_it)) continue;
    const std::lock_guard lock(generator.mutex());
    entries_.push_back({generator, generator.get_state()});
  }
}

void GpuGenerators::swap() {
  for (auto& [generator, state] : entries_) {
    const std::lock_guard lock(generator.mutex());
    auto now = generator.get_state();
    generator.set_state(state);
    state = std::move(now);
  }
}

Surroundings::Surroundings(const std::vector<torch::Tensor>& inputs)
    : generator(copy_of(ThreadRandom::generator())), gpu_generators(inputs) {}

WithSurroundings::WithSurroundings(const Surroundings& surroundings,
                                   const std::vector<torch::Tensor>& buffers)
    : autocast_cached_before_(at::autocast::is_autocast_cache_enabled()),
      random_(copy_of(surroundings.generator)),
      gpu_generators_(surroundings.gpu_generators) {
  for (const auto& buffer : buffers) buffers_.push_back({buffer.variable_data(), buffer.detach().clone()});
  gpu_generators_.swap();
  surroundings.autocast.set();
  at::autocast::set_autocast_cache_enabled(false);  // it would keep this run's weights for others
}

WithSurroundings::~WithSurroundings() {
  at::autocast::set_autocast_cache_enabled(autocast_cached_before_);
  autocast_before_.set();
  gpu_generators_.swap();
  const torch::NoGradGuard no_grad;
  for (const auto& [data, before] : buffers_) data.copy_(before);
}

}  // namespace lockstep
