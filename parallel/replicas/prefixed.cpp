#include <lockstep/parallel/replicas/prefixed.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep {

std::string prefixed(const std::string& prefix, const std::string& rest) {
  return prefix.empty() ? rest : prefix + "." + rest;
}

std::vector<NamedTensor> with_prefix(const std::string& prefix, std::vector<NamedTensor> tensors) {
  for (auto& [name, tensor] : tensors) name = prefixed(prefix, name);
  return tensors;
}

std::vector<NamedTensor> without_prefix(const std::string& prefix, const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> result;
  const auto begin = prefixed(prefix, "");
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(begin)) result.push_back({name.substr(begin.size()), tensor});
  }
  return result;
}

void append(std::vector<NamedTensor>& all, std::vector<NamedTensor> more) {
  std::ranges::move(more, std::back_inserter(all));
}

}  // namespace lockstep
