#include <lockstep/parallel/optimizer/part_buffer.h>

#include <algorithm>
#include <utility>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/gradients/flat_tensors.h>
#include <lockstep/support/load_tensors.h>

namespace lockstep {

PartBuffer::PartBuffer(std::shared_ptr<const FlatOrder> order) : order_(std::move(order)) {
  const auto real = options_of_reals(order_->params.front());
  for (size_t b = 0; b < order_->parts.count(); ++b) {
    parts_.push_back(torch::zeros({order_->parts.own(b).size()}, real));
  }
}

torch::Tensor PartBuffer::slice(size_t bucket, const FlatPart& place) const {
  const auto begin = order_->parts.own(bucket).begin;
  return parts_[bucket].slice(0, place.begin - begin, place.end - begin);
}

// (n) memory for a whole bucket, with this rank's part in it: the part itself if that is the bucket.
torch::Tensor PartBuffer::with_own_part(size_t bucket) const {
  if (order_->parts.whole()) return parts_[bucket];
  const auto all = torch::zeros({order_->parts.all_of(bucket).size()}, parts_[bucket].options());
  const auto own = order_->parts.own_within(bucket);
  all.slice(0, own.begin, own.end).copy_(parts_[bucket]);
  return all;
}

// The same with the parts of all ranks.
torch::Tensor PartBuffer::gathered(size_t bucket) const {
  auto all = with_own_part(bucket);
  if (!order_->parts.whole()) order_->endpoint->gather_parts(all, order_->parts.bounds(bucket)).wait();
  return all;
}

void PartBuffer::keep_own_part(size_t bucket, const torch::Tensor& all) const {
  if (order_->parts.whole()) return;  // it is the part itself
  const auto own = order_->parts.own_within(bucket);
  parts_[bucket].copy_(all.slice(0, own.begin, own.end));
}

std::vector<NamedTensor> PartBuffer::named(size_t bucket, const torch::Tensor& all,
                                           const std::string& prefix) const {
  const auto first = order_->parts.bucket(bucket).first;
  const auto views = views_of_bucket(all, order_->params, order_->parts.bucket(bucket));
  std::vector<NamedTensor> result;
  for (size_t i = 0; i < views.size(); ++i) {
    result.push_back({prefix + order_->names[static_cast<size_t>(first) + i], views[i]});
  }
  return result;
}

void PartBuffer::for_each(const std::function<void(const NamedTensor& tensor)>& take) const {
  for (size_t b = 0; b < parts_.size(); ++b) {
    for (const auto& tensor : named(b, gathered(b), {})) take(tensor);
  }
}

std::vector<NamedTensor> PartBuffer::host_copies(const std::string& prefix,
                                                 const TensorAllocator* memory) const {
  const torch::NoGradGuard no_grad;
  std::vector<NamedTensor> result;
  // Buckets lie in the reverse order of registration.
  for_each([&](const NamedTensor& item) {
    if (!memory) return;
    const auto& tensor = item.tensor;
    result.push_back({prefix + item.name, (*memory)(tensor.sizes(), tensor.scalar_type()).copy_(tensor)});
  });
  const auto place = [&](const NamedTensor& item) {
    return std::find(order_->names.begin(), order_->names.end(), item.name.substr(prefix.size()));
  };
  std::stable_sort(result.begin(), result.end(),
                   [&](const NamedTensor& a, const NamedTensor& b) { return place(a) < place(b); });
  return result;
}

void PartBuffer::write_to(const torch::Tensor& flat) const {
  const auto& parts = order_->parts;
  std::vector<Work> works;
  for (size_t b = 0; b < parts_.size(); ++b) {
    const auto own = parts.own(b), all = parts.all_of(b);
    flat.slice(0, own.begin, own.end).copy_(parts_[b]);
    if (parts.whole()) continue;
    works.push_back(order_->endpoint->gather_parts(flat.slice(0, all.begin, all.end), parts.bounds(b)));
  }
  for (auto& work : works) work.wait();
}

void PartBuffer::read_from(const torch::Tensor& flat) const {
  for (size_t b = 0; b < parts_.size(); ++b) {
    const auto own = order_->parts.own(b);
    parts_[b].copy_(flat.slice(0, own.begin, own.end));
  }
}

void PartBuffer::take(const NamedTensor& tensor) const {
  const torch::NoGradGuard no_grad;
  const auto& [params, names, parts, endpoint] = *order_;
  const auto found = std::ranges::find(names, tensor.name);
  if (found == names.end()) return;
  const auto i = static_cast<size_t>(found - names.begin());
  const auto numels = numels_of(params);
  const auto begin = flat_layout(numels).offset[i];
  const auto alone = flat_zeros_like({params[i]});  // in the order of the parameter's memory
  alone.views.front().copy_(tensor.tensor);
  for (size_t b = 0; b < parts_.size(); ++b) {
    const auto own = overlap({begin, begin + numels[i]}, parts.own(b));
    if (own.empty()) continue;
    slice(b, own).copy_(alone.flat.slice(0, own.begin - begin, own.end - begin));
  }
}

void PartBuffer::load(const std::vector<NamedTensor>& state, const std::string& prefix,
                      Endpoint& endpoint) const {
  const torch::NoGradGuard no_grad;
  for (size_t b = 0; b < parts_.size(); ++b) {
    const auto all = with_own_part(b);
    if (endpoint.rank() == 0) {
      const auto places = named(b, all, prefix);
      std::vector<NamedTensor> wanted;
      for (const auto& item : state) {
        if (std::any_of(places.begin(), places.end(), [&](const auto& own) { return own.name == item.name; }))
          wanted.push_back(item);
      }
      load_tensors(places, wanted, {.name = "optimizer", .parts = "tensors", .hint = {}});
    }
    endpoint.broadcast(all, 0).wait();
    keep_own_part(b, all);
  }
}

}  // namespace lockstep
