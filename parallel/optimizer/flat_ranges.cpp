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

std::vector<FlatRange> flat_ranges(const FlatOrder& order, std::span<const GroupOptions> groups,
                                   const FlatBuffers& buffers) {
  const torch::NoGradGuard no_grad;
  const auto layout = flat_layout(numels_of(order.params));
  std::vector<FlatRange> ranges;
  // Parameters first .. behind - 1 with the gaps behind them.
  const auto place_of = [&](size_t first, size_t behind) -> FlatPart {
    return {layout.offset[behind - 1], first > 0 ? layout.offset[first - 1] : layout.size};
  };
  const auto add = [&](size_t bucket, size_t first, size_t behind) {
    const auto place = overlap(place_of(first, behind), order.parts.own(bucket));
    if (place.empty()) return;
    while (overlap(place_of(first, first + 1), place).empty()) ++first;
    while (overlap(place_of(behind - 1, behind), place).empty()) --behind;
    const auto part_of = [&](const torch::Tensor& all) {
      return all.defined() ? all.slice(0, place.begin, place.end) : all;
    };
    const auto own = order.parts.own(bucket).begin;
    const auto& grads = buffers.grads[bucket];
    auto& range = ranges.emplace_back(FlatRange{.params = part_of(buffers.params),
                                                .grads = grads.slice(0, place.begin - own, place.end - own),
                                                .bf16 = part_of(buffers.bf16),
                                                .first = first,
                                                .offsets = {},
                                                .group = groups[first],
                                                .bucket = bucket,
                                                .place = place});
    for (size_t i = first; i < behind; ++i) range.offsets.push_back(layout.offset[i] - place.begin);
  };
  for (size_t b = 0; b < order.parts.count(); ++b) {
    const auto& bucket = order.parts.bucket(b);
    const auto end = static_cast<size_t>(bucket.last) + 1;
    for (auto first = static_cast<size_t>(bucket.first), behind = first; first < end; first = behind) {
      while (behind < end && groups[behind] == groups[first]) ++behind;
      add(b, first, behind);
    }
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
