#include <lockstep/parallel/training/held_parameters.h>

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <lockstep/support/error.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep {
namespace {

// The places of the tensor's elements in its storage, (n) int64, where a place has `unit` bytes.
torch::Tensor places_of(const torch::Tensor& tensor, int64_t unit) {
  const auto places = tensor.element_size() / unit;  // of an element
  auto sizes = tensor.sizes().vec(), strides = tensor.strides().vec();
  for (auto& stride : strides) stride *= places;
  sizes.push_back(places);
  strides.push_back(1);
  const auto all = torch::arange(static_cast<int64_t>(tensor.storage().nbytes()) / unit, torch::kInt64);
  return all.as_strided(sizes, strides, tensor.storage_offset() * places).flatten();
}

// Both have one storage.
bool share_elements(const torch::Tensor& a, const torch::Tensor& b) {
  const auto status = at::get_overlap_status(a, b);
  if (status != at::MemOverlapStatus::TooHard) return status != at::MemOverlapStatus::No;
  const auto unit = std::min(a.element_size(), b.element_size());  // powers of two
  return torch::isin(places_of(a, unit), places_of(b, unit)).any().item<bool>();
}

bool same_place(const torch::Tensor& a, const torch::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.scalar_type() == b.scalar_type() &&
         a.device() == b.device() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

std::string type_of(const torch::Tensor& tensor) {
  return fmt::format("{} on {}", torch::toString(tensor.scalar_type()), tensor.device().str());
}

// For an error; empty if it is the same.
std::string other_type(const torch::Tensor& now, const torch::Tensor& before) {
  if (type_of(now) == type_of(before)) return {};
  return fmt::format(", {} instead of {},", type_of(now), type_of(before));
}

ErrorText parameter_hint() {
  return "load weights in the model factory, before the Trainer is built; afterwards write in place, on "
         "every "
         "replica: copy_() under torch::NoGradGuard. The Trainer's options choose dtype and devices";
}

ErrorText buffer_hint() {
  return "write buffers in place, as copy_() does; or use " +
         NamedOption{"cuda_graph", "off", "CudaGraph::kOff"};
}

}  // namespace

void require_memory_of_their_own(const torch::nn::Module& module) {
  require_strided(module);
  std::map<const void*, std::vector<NamedTensor>> by_storage;
  for (const auto& item : distinct_tensors(module)) {
    auto& others = by_storage[item.tensor.storage().unsafeGetStorageImpl()];
    for (const auto& other : others) {
      const bool trained = item.tensor.requires_grad() || other.tensor.requires_grad();
      if (!trained || !share_elements(other.tensor, item.tensor)) continue;
      throw UsageError(
          fmt::format("{} and {} are two tensors in the same memory, but a Trainer gives each its own",
                      other.name, item.name),
          "to tie weights register one module, or one parameter, under both names; or register it once and "
          "use it in both places");
    }
    others.push_back(item);
  }
}

HeldParameters::Tensors::Tensors(std::vector<NamedTensor> tensors) : now(std::move(tensors)) {
  for (const auto& [name, tensor] : now) {
    before.push_back(tensor.detach());
    if (tensor.requires_grad()) before.back().requires_grad_();
  }
}

HeldParameters::HeldParameters(const torch::nn::Module& module, bool buffers_too)
    : module_(&module), params_(distinct_parameters(module)) {
  if (buffers_too) buffers_ = Tensors(distinct_buffers(module));
}

void HeldParameters::require_unchanged(int rank) const {
  if (!module_) return;
  if (const auto other = changed_registration(*module_, params_.now)) {
    throw UsageError(fmt::format("replica {}: {} after the Trainer was built", rank, *other),
                     "the model factory registers all layers; with others build a new Trainer");
  }
  require_same_memory(rank, "parameter", params_, "the Trainer gave it", parameter_hint);
  require_same_memory(rank, "buffer", buffers_, "captured steps read", buffer_hint);
}

void HeldParameters::require_same_memory(int rank, const char* kind, const Tensors& all, const char* than,
                                         ErrorText (*hint)()) {
  for (size_t i = 0; i < all.now.size(); ++i) {
    const auto& [name, now] = all.now[i];
    const auto& before = all.before[i];
    if (same_place(now, before)) continue;
    throw UsageError(fmt::format("replica {}: {} {} has other memory{} than {}, as after torch::load(), "
                                 "set_data() or Module::to()",
                                 rank, kind, name, other_type(now, before), than),
                     hint());
  }
}

bool HeldParameters::requires_grad_changed() const {
  return !std::equal(params_.now.begin(), params_.now.end(), params_.before.begin(),
                     [](const NamedTensor& now, const torch::Tensor& before) {
                       return now.tensor.requires_grad() == before.requires_grad();
                     });
}

void HeldParameters::release_frozen() const {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < params_.now.size(); ++i) {
    auto param = params_.now[i].tensor;  // the same object
    if (params_.before[i].requires_grad() && !param.requires_grad()) param.set_data(param.clone());
  }
}

}  // namespace lockstep
