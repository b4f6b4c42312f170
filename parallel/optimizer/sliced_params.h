// Parameters whose updates the ranks share out (parallel/sharded_optimizer.h): each rank owns a contiguous
// part of every bucket of them.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/gradients/bucket_parts.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Not thread-safe. On a GPU work is queued on the current stream.
class SlicedParams {
 public:
  // params: at least one, all of one dtype, on the endpoint's device and without gaps in their memory.
  SlicedParams(Params params, int64_t bucket_bytes, const Endpoint& endpoint);

  const Params& params() const { return params_; }
  size_t buckets() const { return parts_.count(); }
  size_t first(size_t b) const { return static_cast<size_t>(parts_.bucket(b).first); }  // of its parameters
  size_t end(size_t b) const { return static_cast<size_t>(parts_.bucket(b).last) + 1; }

  // (n) this rank's elements of parameter i, in the parameter's memory; undefined if others have them all. It
  // stays the same object.
  const torch::Tensor& slice(size_t i) const { return slices_[i]; }

  // Returns this rank's elements of a tensor with parameter i's shape, (n) in the order of the parameter's
  // memory. Shares the tensor's memory where dtype, device and strides are the parameter's.
  torch::Tensor elements(size_t i, const torch::Tensor& tensor) const;

  // Lets slices follow parameters that have other memory by now. Returns one whose shape, strides, dtype or
  // device is another one than at first, if there is one.
  std::optional<size_t> follow();

  // A collective of parts: the parameters of a bucket become those of their owners. One bucket may be started
  // after the other; finish_fetches() ends all of them.
  void start_fetch(size_t b, Endpoint& endpoint);
  void finish_fetches();

  // A collective of parts. own: for each parameter of the bucket this rank's elements, as elements() gives
  // them; an undefined one has none, on any rank. Returns tensors with the parameters' shapes and strides.
  Params gathered(size_t b, const Params& own, Endpoint& endpoint) const;

  int64_t room_bytes() const { return room_.defined() ? static_cast<int64_t>(room_.nbytes()) : 0; }

 private:
  int64_t size_of(size_t b) const;
  PartBounds bounds_of(size_t b) const;
  FlatPart own_elements(size_t i) const;
  torch::Tensor new_room(int64_t elements) const;
  torch::Tensor place(const torch::Tensor& room, size_t b, size_t i) const;
  void finish_room();

  Params params_;
  Params before_;                  // the same as they were: memory, shape and dtype
  std::vector<int64_t> offsets_;   // of each parameter in the flat order
  std::vector<size_t> bucket_of_;  // each parameter's
  BucketParts parts_;
  Params slices_;
  std::vector<Work> in_place_;  // fetches of buckets of one parameter
  torch::Tensor room_;          // of the largest bucket of several, by which they are fetched
  Work in_room_;
  std::optional<size_t> in_room_bucket_;
};

}  // namespace lockstep
