#include <lockstep/support/batch.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

TensorSpec spec_of(const std::string& name, const torch::Tensor& tensor, Role role) {
  if (!tensor.defined() || tensor.dim() == 0) {
    throw UsageError(fmt::format("the batch's {} is {}", name, tensor.defined() ? "one number" : "undefined"),
                     "the first dimension of each tensor counts the rows");
  }
  return {
      .name = name, .dtype = tensor.scalar_type(), .row_shape = tensor.sizes().slice(1).vec(), .role = role};
}

std::string names_of(const BatchSpec& spec) {
  std::vector<std::string> names;
  for (const auto& tensor : spec) names.push_back(tensor.name);
  return names.empty() ? "no tensors" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string to_string(const TensorSpec& spec) {
  std::string sizes = "n";
  for (const auto size : spec.row_shape) sizes += size < 0 ? ", any" : fmt::format(", {}", size);
  return fmt::format("{}{} {} [{}]", spec.role == Role::kTarget ? "target " : "", spec.name,
                     torch::toString(spec.dtype), sizes);
}

bool alike(const BatchSpec& a, const BatchSpec& b) {
  return std::ranges::equal(a, b, [](const TensorSpec& x, const TensorSpec& y) {
    return x.name == y.name && x.dtype == y.dtype && x.role == y.role;
  });
}

const std::shared_ptr<const BatchSpec>& Batch::no_tensors() {
  static const auto kNone = std::make_shared<const BatchSpec>();
  return kNone;
}

Batch::Batch(std::shared_ptr<const BatchSpec> spec) : spec_(std::move(spec)) {
  tensors_.resize(spec_->size());
}

Batch::Batch(std::initializer_list<Item> items) {
  BatchSpec spec;
  for (const auto& [name, tensor, role] : items) {
    if (std::ranges::any_of(spec, [&](const auto& other) { return other.name == name; })) {
      throw UsageError(fmt::format("the batch has two tensors named {}", name), "give each its own name");
    }
    spec.push_back(spec_of(name, tensor, role));
    tensors_.push_back(tensor);
  }
  set(std::move(spec));
}

Batch::Batch(const torch::Tensor& input, const torch::Tensor& target) : tensors_{input, target} {
  set({spec_of("input", input, Role::kInput), spec_of("target", target, Role::kTarget)});
}

void Batch::set(BatchSpec spec) {
  for (size_t i = 1; i < size(); ++i) {
    if (tensors_[i].size(0) == tensors_[0].size(0)) continue;
    throw UsageError(fmt::format("the batch's {} has {} rows, its {} has {}", spec[0].name,
                                 tensors_[0].size(0), spec[i].name, tensors_[i].size(0)),
                     "the first dimension of each tensor counts the rows");
  }
  spec_ = std::make_shared<const BatchSpec>(std::move(spec));
}

const torch::Tensor& Batch::operator[](std::string_view name) const& {
  for (size_t i = 0; i < size(); ++i) {
    if ((*spec_)[i].name == name) return tensors_[i];
  }
  throw UsageError(fmt::format("the batch has no tensor named {}", name),
                   fmt::format("its source gives {}", names_of(*spec_)));
}

const torch::Tensor& Batch::only(Role role) const {
  const torch::Tensor* found = nullptr;
  int count = 0;
  for (size_t i = 0; i < size(); ++i) {
    if ((*spec_)[i].role != role) continue;
    ++count;
    found = &tensors_[i];
  }
  if (count == 1) return *found;
  throw UsageError(
      fmt::format("the batch has {} {}s, not one", count, role == Role::kInput ? "input" : "target"),
      fmt::format("name the tensor: its source gives {}", names_of(*spec_)));
}

int64_t Batch::rows() const { return tensors_.empty() ? 0 : tensors_[0].size(0); }

Batch Batch::narrow(int64_t begin, int64_t count) const {
  return converted(
      [&](const torch::Tensor& tensor, const TensorSpec&) { return tensor.narrow(0, begin, count); });
}

Batch Batch::to(torch::Device device) const {
  return converted([&](const torch::Tensor& tensor, const TensorSpec&) { return tensor.to(device); });
}

}  // namespace lockstep
