#include <lockstep/parallel/optimizer/sliced_params.h>

#include <algorithm>
#include <utility>

#include <lockstep/parallel/gradients/flat_tensors.h>

namespace lockstep {
namespace {

// Parameters begin at multiples of so many elements in the flat order. The parts of a bucket end at multiples
// of 4,096 there, and so at multiples of this in a parameter: no vector of torch's kernels is cut, which
// takes two registers of 16-bit numbers. (Its code for single 16-bit elements rounds products otherwise.)
constexpr int64_t kVector = 64;

std::vector<int64_t> padded_numels(const Params& params) {
  std::vector<int64_t> numels;
  for (const auto& param : params) numels.push_back((param.numel() + kVector - 1) / kVector * kVector);
  return numels;
}

bool same_form(const torch::Tensor& a, const torch::Tensor& b) {
  const bool same_order = a.strides() == b.strides() || (a.is_contiguous() && b.is_contiguous());
  return a.scalar_type() == b.scalar_type() && a.device() == b.device() && same_order;
}

}  // namespace

SlicedParams::SlicedParams(Params params, int64_t bucket_bytes, const Endpoint& endpoint)
    : params_(std::move(params)), bucket_of_(params_.size()), slices_(params_.size()) {
  const auto numels = padded_numels(params_);
  offsets_ = flat_layout(numels).offset;
  const auto element_size = static_cast<int64_t>(params_.front().element_size());
  parts_ = BucketParts(plan_buckets(numels, element_size,
                                    {.first = bucket_bytes, .others = bucket_bytes, .last = bucket_bytes}),
                       endpoint.rank(), endpoint.world_size());
  for (size_t b = 0; b < buckets(); ++b) {
    std::fill(bucket_of_.begin() + parts_.bucket(b).first, bucket_of_.begin() + parts_.bucket(b).last + 1, b);
  }
  for (size_t i = 0; i < params_.size(); ++i) {
    before_.push_back(params_[i].data());
    if (!own_elements(i).empty() || params_[i].numel() == 0) slices_[i] = elements(i, before_[i]);
  }
}

// The end of a bucket's last element: the first parameter lies last.
int64_t SlicedParams::size_of(size_t b) const {
  const auto last = first(b);
  return offsets_[last] + params_[last].numel() - parts_.bucket(b).begin;
}

PartBounds SlicedParams::bounds_of(size_t b) const {
  auto bounds = parts_.bounds(b);
  for (auto& bound : bounds) bound = std::min(bound, size_of(b));
  return bounds;
}

// The elements of parameter i.
FlatPart SlicedParams::own_elements(size_t i) const {
  const FlatPart all{offsets_[i], offsets_[i] + params_[i].numel()};
  const auto own = overlap(all, parts_.own(bucket_of_[i]));
  return own.empty() ? FlatPart() : FlatPart{own.begin - all.begin, own.end - all.begin};
}

torch::Tensor SlicedParams::elements(size_t i, const torch::Tensor& tensor) const {
  const auto own = own_elements(i);
  auto in_form = tensor;
  if (!same_form(tensor, before_[i])) in_form = torch::empty_like(before_[i]).copy_(tensor);
  return in_memory_order(in_form).slice(0, own.begin, own.end);
}

std::optional<size_t> SlicedParams::follow() {
  for (size_t i = 0; i < params_.size(); ++i) {
    if (params_[i].const_data_ptr() == before_[i].const_data_ptr() &&
        params_[i].sizes() == before_[i].sizes() && same_form(params_[i], before_[i]))
      continue;
    if (params_[i].sizes() != before_[i].sizes() || !same_form(params_[i], before_[i])) return i;
    before_[i] = params_[i].data();
    if (slices_[i].defined()) slices_[i].set_data(elements(i, before_[i]));
  }
  return std::nullopt;
}

torch::Tensor SlicedParams::new_room(int64_t elements) const {
  return torch::empty({elements}, params_.front().options().requires_grad(false));
}

// (n) the elements of parameter i in the memory of its bucket.
torch::Tensor SlicedParams::place(const torch::Tensor& room, size_t b, size_t i) const {
  return room.narrow(0, offsets_[i] - parts_.bucket(b).begin, params_[i].numel());
}

void SlicedParams::start_fetch(size_t b, Endpoint& endpoint) {
  if (parts_.whole() || size_of(b) == 0) return;
  if (end(b) - first(b) == 1) {
    in_place_.push_back(endpoint.gather_parts(in_memory_order(before_[first(b)]), bounds_of(b)));
    return;
  }
  finish_room();
  if (!room_.defined()) {
    int64_t largest = 0;
    for (size_t other = 0; other < buckets(); ++other) {
      if (end(other) - first(other) > 1) largest = std::max(largest, size_of(other));
    }
    room_ = new_room(largest);
  }
  const auto room = room_.narrow(0, 0, size_of(b));
  for (size_t i = first(b); i < end(b); ++i) {
    const auto own = own_elements(i);
    if (!own.empty()) place(room, b, i).slice(0, own.begin, own.end).copy_(slices_[i]);
  }
  in_room_ = endpoint.gather_parts(room, bounds_of(b));
  in_room_bucket_ = b;
}

void SlicedParams::finish_room() {
  if (!in_room_bucket_) return;
  const auto b = *std::exchange(in_room_bucket_, std::nullopt);
  in_room_.wait();
  for (size_t i = first(b); i < end(b); ++i) {
    const auto own = own_elements(i);
    const auto from = place(room_, b, i), into = in_memory_order(before_[i]);
    const auto copy = [&](int64_t begin, int64_t behind) {
      if (begin < behind) into.slice(0, begin, behind).copy_(from.slice(0, begin, behind));
    };
    copy(0, own.begin);
    copy(own.end, into.numel());
  }
}

void SlicedParams::finish_fetches() {
  finish_room();
  for (auto& work : in_place_) work.wait();
  in_place_.clear();
}

Params SlicedParams::gathered(size_t b, const Params& own, Endpoint& endpoint) const {
  const auto room = new_room(size_of(b));
  for (size_t i = first(b); i < end(b); ++i) {
    const auto part = own_elements(i);
    const auto& elements = own[i - first(b)];
    if (!part.empty() && elements.defined()) place(room, b, i).slice(0, part.begin, part.end).copy_(elements);
  }
  if (!parts_.whole() && size_of(b) > 0) endpoint.gather_parts(room, bounds_of(b)).wait();
  Params result;
  for (size_t i = first(b); i < end(b); ++i) {
    const auto& like = before_[i];
    const auto elements = place(room, b, i);
    result.push_back(elements.as_strided(like.sizes(), like.strides(), elements.storage_offset()));
  }
  return result;
}

}  // namespace lockstep
