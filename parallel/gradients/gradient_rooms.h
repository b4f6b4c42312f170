// The memory of a replica's gradients with Shard::kGradients. Of each bucket's sum it keeps the part that
// this rank owns. A whole bucket has memory, its room, from its first gradient in a backward pass until it is
// summed.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <vector>

#include <lockstep/parallel/gradients/bucket_parts.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Not thread-safe. On a GPU work is queued on the current stream.
class GradientRooms {
 public:
  // params: the trained ones, in the order of registration.
  GradientRooms(const Params& params, const BucketParts& parts);

  // Adds the gradient of a parameter, which is dense if there is one, to its bucket's room, and frees it.
  void take(size_t param);

  // (n) the bucket's gradients, zeros where none was taken.
  const torch::Tensor& room(size_t bucket);

  // Keeps this rank's part of the room, and frees it.
  void keep_part(size_t bucket);

  // (n) what was kept last; zeros at first.
  const torch::Tensor& own(size_t bucket) const { return own_[bucket]; }

 private:
  struct Room {
    torch::Tensor all;  // (n), undefined if there is none
    Params views;       // of it, of the bucket's parameters
  };

  Room& made(size_t bucket);

  const Params params_;
  const BucketParts parts_;
  std::vector<size_t> bucket_of_;   // of each parameter
  std::vector<Room> rooms_;         // of each bucket
  std::vector<torch::Tensor> own_;  // the same
};

}  // namespace lockstep
