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

// Throws if all names of `from` would be places without what stands before them, up to a dot: wrappers put it
// there.
void refuse_wrapped(const std::map<std::string, torch::Tensor>& places, std::span<const NamedTensor> from,
                    const TensorOwner& owner) {
  if (from.empty() || places.contains(from.front().name)) return;
  const auto& first = from.front().name;
  for (auto dot = first.find('.'); dot != std::string::npos; dot = first.find('.', dot + 1)) {
    const auto prefix = first.substr(0, dot + 1);
    const auto is_before = [&](const NamedTensor& item) {
      return item.name.starts_with(prefix) && places.contains(item.name.substr(prefix.size()));
    };
    if (!std::ranges::all_of(from, is_before)) continue;
    throw WeightsError(
        fmt::format("all names begin with \"{}\", those of the {} do not", prefix, owner.name),
        fmt::format(
            "DistributedDataParallel puts \"module.\" before the names in its state_dict, torch.compile "
            "\"_orig_mod.\", and a module around the model its own name; in Python remove it before saving: "
            "{{name.removeprefix(\"{}\"): tensor for name, tensor in weights.items()}}",
            prefix));
  }
}

// Copying would keep a part of each value: the real one, the whole one, or whether it is zero.
void require_castable(const NamedTensor& from, const torch::Tensor& into, const TensorOwner& owner) {
  const auto given = from.tensor.scalar_type(), own = into.scalar_type();
  if (torch::canCast(given, own)) return;
  throw WeightsError(fmt::format("{} is of {}, the {}'s is of {}, which cannot hold its values", from.name,
                                 torch::toString(given), owner.name, torch::toString(own)),
                     "convert it before it is saved, if that is what you want: tensor.to(...)");
}

// Two tensors of `from` for one of the owner's.
void require_same_values(const NamedTensor& a, const NamedTensor& b, const TensorOwner& owner) {
  if (a.name == b.name) {
    throw WeightsError(fmt::format("there are two tensors named {}", a.name), "each name may occur once");
  }
  if (a.tensor.scalar_type() == b.tensor.scalar_type() && a.tensor.equal(b.tensor)) return;
  throw WeightsError(fmt::format("{} and {} are one tensor of the {}, but two different ones of the weights",
                                 a.name, b.name, owner.name),
                     owner.hint);
}

}  // namespace

void require_same_tensors(std::span<const NamedTensor> into, std::span<const NamedTensor> from,
                          const TensorOwner& owner) {
  const auto places = by_name(into);
  refuse_wrapped(places, from, owner);
  std::map<const c10::TensorImpl*, const NamedTensor*> given;  // by the owner's tensor
  for (const auto& item : from) {
    const auto place = places.find(item.name);
    if (place == places.end())
      throw WeightsError(fmt::format("the {} has no parameter named {}", owner.name, item.name), owner.hint);
    const auto& expected = place->second;
    if (expected.sizes() != item.tensor.sizes()) {
      throw WeightsError(fmt::format("{} has shape {}, the {}'s has {}", item.name, shape_of(item.tensor),
                                     owner.name, shape_of(expected)),
                         owner.hint);
    }
    require_castable(item, expected, owner);
    const auto [other, is_first] = given.emplace(expected.unsafeGetTensorImpl(), &item);
    if (!is_first) require_same_values(*other->second, item, owner);
  }
  std::map<const c10::TensorImpl*, std::string> missing;  // with its first name
  std::set<const c10::TensorImpl*> all;
  for (const auto& [name, tensor] : into) {
    const auto* place = tensor.unsafeGetTensorImpl();
    all.insert(place);
    if (!given.contains(place)) missing.emplace(place, name);
  }
  if (missing.empty()) return;
  const auto before = [](const auto& a, const auto& b) { return a.second < b.second; };
  throw WeightsError(fmt::format("{} of the {}'s {} {} have no weights: {}{}", missing.size(), owner.name,
                                 all.size(), owner.parts, std::ranges::min_element(missing, before)->second,
                                 missing.size() > 1 ? ", ..." : ""),
                     owner.hint);
}

void require_same_tensors_and_types(std::span<const NamedTensor> into, std::span<const NamedTensor> from,
                                    const TensorOwner& owner) {
  require_same_tensors(into, from, owner);
  const auto places = by_name(into);
  for (const auto& [name, tensor] : from) {
    const auto& expected = places.at(name);
    if (tensor.scalar_type() == expected.scalar_type()) continue;
    throw WeightsError(fmt::format("{} is {}, the {}'s is {}", name, toString(tensor.scalar_type()),
                                   owner.name, toString(expected.scalar_type())),
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
