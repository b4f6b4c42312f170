#include <lockstep/parallel/optimizer/flat_ranges.h>

#include <fmt/format.h>

#include <cmath>

#include <lockstep/parallel/gradients/buckets.h>
#include <lockstep/parallel/gradients/flat_tensors.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

void require_number(const std::string& param, const char* what, double value) {
  if (value >= 0 && std::isfinite(value)) return;
  throw UsageError(fmt::format("the group of parameter {} has {} {}", param, what, value),
                   "it must be a number from 0");
}

}  // namespace

std::vector<GroupOptions> groups_of(const OptimizerOptions& options, const std::vector<std::string>& names,
                                    const Params& params) {
  std::vector<GroupOptions> groups(params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    auto& group = groups[i];
    if (options.group) group = options.group(names[i], params[i]);
    group.weight_decay = group.weight_decay.value_or(options.weight_decay);
    require_number(names[i], "lr_factor", group.lr_factor);
    require_number(names[i], "weight_decay", *group.weight_decay);
  }
  return groups;
}

std::vector<FlatRange> flat_ranges(const Params& params, std::span<const GroupOptions> groups,
                                   const FlatBuffers& buffers) {
  const torch::NoGradGuard no_grad;
  const auto layout = flat_layout(numels_of(params));
  std::vector<FlatRange> ranges;
  for (size_t first = 0, behind = 0; first < params.size(); first = behind) {
    while (behind < params.size() && groups[behind] == groups[first]) ++behind;
    const auto begin = layout.offset[behind - 1];
    const auto end = first > 0 ? layout.offset[first - 1] : layout.size;
    const auto part_of = [&](const torch::Tensor& all) {
      return all.defined() ? all.slice(0, begin, end) : all;
    };
    auto& range = ranges.emplace_back(FlatRange{.params = part_of(buffers.params),
                                                .grads = part_of(buffers.grads),
                                                .bf16 = part_of(buffers.bf16),
                                                .first = first,
                                                .offsets = {},
                                                .group = groups[first]});
    for (size_t i = first; i < behind; ++i) range.offsets.push_back(layout.offset[i] - begin);
  }
  return ranges;
}

void FlatRange::scale_gradients(const torch::Tensor& scale) const {
  if (scale.defined()) grads.mul_(scale);
}

void FlatRange::end_update() const {
  grads.zero_();
  if (bf16.defined()) bf16.copy_(params);
}

}  // namespace lockstep
