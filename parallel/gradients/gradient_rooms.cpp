#include <lockstep/parallel/gradients/gradient_rooms.h>

#include <lockstep/parallel/gradients/flat_tensors.h>

namespace lockstep {

GradientRooms::GradientRooms(const Params& params, const BucketParts& parts)
    : params_(params), parts_(parts), bucket_of_(params.size()), rooms_(parts.count()) {
  for (size_t b = 0; b < parts.count(); ++b) {
    for (int i = parts.bucket(b).first; i <= parts.bucket(b).last; ++i)
      bucket_of_[static_cast<size_t>(i)] = b;
    own_.push_back(torch::zeros({parts.own(b).size()}, options_of_reals(params.front())));
  }
}

GradientRooms::Room& GradientRooms::made(size_t bucket) {
  auto& room = rooms_[bucket];
  if (room.all.defined()) return room;
  room.all = torch::zeros({parts_.all_of(bucket).size()}, options_of_reals(params_.front()));
  room.views = views_of_bucket(room.all, params_, parts_.bucket(bucket));
  return room;
}

// A sum, as that into a buffer of zeros: -0 becomes 0.
void GradientRooms::take(size_t param) {
  const torch::NoGradGuard no_grad;
  auto& grad = params_[param].mutable_grad();
  if (!grad.defined()) return;
  const auto bucket = bucket_of_[param];
  made(bucket).views[param - static_cast<size_t>(parts_.bucket(bucket).first)].add_(grad);
  grad.reset();
}

const torch::Tensor& GradientRooms::room(size_t bucket) { return made(bucket).all; }

void GradientRooms::keep_part(size_t bucket) {
  const torch::NoGradGuard no_grad;
  const auto own = parts_.own_within(bucket);
  own_[bucket].copy_(rooms_[bucket].all.slice(0, own.begin, own.end));
  rooms_[bucket] = {};
}

}  // namespace lockstep
