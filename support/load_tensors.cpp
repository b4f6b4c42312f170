#include <lockstep/support/load_tensors.h>

#include <fmt/format.h>

#include <map>
#include <set>
#include <sstream>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

std::string shape_of(const torch::Tensor& tensor) {
  std::ostringstream out;
  out << tensor.sizes();
  return out.str();
}

std::map<std::string, torch::Tensor> by_name(std::span<const NamedTensor> tensors) {
  std::map<std::string, torch::Tensor> result;
  for (const auto& [name, tensor] : tensors) result.emplace(name, tensor);
  return result;
}

}  // namespace

void require_same_tensors(std::span<const NamedTensor> into, std::span<const NamedTensor> from,
                          const TensorOwner& owner) {
  const auto places = by_name(into);
  std::set<std::string> found;
  for (const auto& [name, tensor] : from) {
    const auto place = places.find(name);
    if (place == places.end())
      throw WeightsError(fmt::format("the {} has no parameter named {}", owner.name, name), owner.hint);
    const auto& expected = place->second;
    if (expected.sizes() != tensor.sizes()) {
      throw WeightsError(fmt::format("{} has shape {}, the {}'s has {}", name, shape_of(tensor), owner.name,
                                     shape_of(expected)),
                         owner.hint);
    }
    if (!found.insert(name).second)
      throw WeightsError(fmt::format("there are two tensors named {}", name), "each name may occur once");
  }
  for (const auto& [name, tensor] : places) {
    if (found.contains(name)) continue;
    const auto missing = places.size() - found.size();
    throw WeightsError(fmt::format("{} of the {}'s {} {} have no weights: {}{}", missing, owner.name,
                                   places.size(), owner.parts, name, missing > 1 ? ", ..." : ""),
                       owner.hint);
  }
}

void load_tensors(std::span<const NamedTensor> into, std::span<const NamedTensor> from,
                  const TensorOwner& owner) {
  require_same_tensors(into, from, owner);
  const torch::NoGradGuard no_grad;
  const auto places = by_name(into);
  for (const auto& [name, tensor] : from) places.at(name).detach().copy_(tensor);
}

}  // namespace lockstep
