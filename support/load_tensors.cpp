#include <lockstep/support/load_tensors.h>

#include <fmt/format.h>

#include <algorithm>
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

// Returns what stands before all names in `from`, up to a dot, if they are places without it: wrappers put it
// there.
std::string wrapper_prefix(const std::set<std::string>& places, std::span<const NamedTensor> from) {
  if (from.empty() || places.contains(from.front().name)) return {};
  const auto& first = from.front().name;
  for (auto dot = first.find('.'); dot != std::string::npos; dot = first.find('.', dot + 1)) {
    const auto prefix = first.substr(0, dot + 1);
    const auto is_before = [&](const NamedTensor& item) {
      return item.name.starts_with(prefix) && places.contains(item.name.substr(prefix.size()));
    };
    if (std::ranges::all_of(from, is_before)) return prefix;
  }
  return {};
}

// Copying would keep a part of each value: the real one, the whole one, or whether it is zero.
void require_castable(const NamedTensor& from, const torch::Tensor& into, const TensorOwner& owner) {
  const auto given = from.tensor.scalar_type(), own = into.scalar_type();
  if (torch::canCast(given, own)) return;
  throw WeightsError(fmt::format("{} is of {}, the {}'s is of {}, which cannot hold its values", from.name,
                                 torch::toString(given), owner.name, torch::toString(own)),
                     "convert it before it is saved, if that is what you want: tensor.to(...)");
}

}  // namespace

void refuse_wrapped(const std::set<std::string>& names, std::span<const NamedTensor> from,
                    const TensorOwner& owner) {
  const auto prefix = wrapper_prefix(names, from);
  if (prefix.empty()) return;
  throw WeightsError(
      fmt::format("all names begin with \"{}\", those of the {} do not", prefix, owner.name),
      fmt::format(
          "DistributedDataParallel puts \"module.\" before the names in its state_dict, torch.compile "
          "\"_orig_mod.\", and a module around the model its own name; in Python remove it before saving: "
          "{{name.removeprefix(\"{}\"): tensor for name, tensor in weights.items()}}",
          prefix));
}

void require_same_tensors(std::span<const NamedTensor> into, std::span<const NamedTensor> from,
                          const TensorOwner& owner) {
  const auto places = by_name(into);
  std::set<std::string> names;
  for (const auto& item : into) names.insert(item.name);
  refuse_wrapped(names, from, owner);
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
    require_castable({name, tensor}, expected, owner);
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
