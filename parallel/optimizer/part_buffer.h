// Memory of the flat order of which this rank keeps the parts that it owns: all of it, unless the replicas
// share out the optimizer's state.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/parallel/gradients/bucket_parts.h>
#include <lockstep/support/tensor_allocator.h>
#include <lockstep/support/types.h>

namespace lockstep {

class Endpoint;

// The parameters that an optimizer updates, in the order of registration, and who owns which part of their
// flat order (flat_layout() of gradients/buckets.h).
struct FlatOrder {
  Params params;                   // the module's own
  std::vector<std::string> names;  // of these
  BucketParts parts;
  Endpoint* endpoint = nullptr;  // to the owners of the other parts, outlives this; null if parts.whole()
};

// Not thread-safe. On a GPU work is queued on the current stream. Functions that are a collective "of parts"
// are one unless this rank has everything.
class PartBuffer {
 public:
  // Zeros of the parameters' real dtype, on their device.
  explicit PartBuffer(std::shared_ptr<const FlatOrder> order);

  const FlatOrder& order() const { return *order_; }

  // (n) this rank's part of a bucket.
  const torch::Tensor& own(size_t bucket) const { return parts_[bucket]; }

  // The elements of `place`, which lie in this rank's part of the bucket.
  torch::Tensor slice(size_t bucket, const FlatPart& place) const;

  // A collective of parts. Calls take(tensor) for each parameter: its name and its elements, with its shape
  // and on its device. They are views of this memory if this rank has everything.
  void for_each(const std::function<void(const NamedTensor& tensor)>& take) const;

  // A collective of parts: host copies of all of these with names that begin with `prefix`. memory: for the
  // copies; null: this rank keeps none.
  std::vector<NamedTensor> host_copies(const std::string& prefix, const TensorAllocator* memory) const;

  // A collective of parts: writes everything into a buffer of this layout.
  void write_to(const torch::Tensor& flat) const;

  // Takes the own parts of a buffer of this layout.
  void read_from(const torch::Tensor& flat) const;

  // Takes the own part of a parameter of this name and shape, if there is one.
  void take(const NamedTensor& tensor) const;

  // A collective: all ranks take rank 0's tensors, which are there for each parameter by prefix and name.
  // The tensors of other ranks are ignored.
  void load(const std::vector<NamedTensor>& state, const std::string& prefix, Endpoint& endpoint) const;

 private:
  torch::Tensor with_own_part(size_t bucket) const;
  torch::Tensor gathered(size_t bucket) const;
  void keep_own_part(size_t bucket, const torch::Tensor& all) const;
  std::vector<NamedTensor> named(size_t bucket, const torch::Tensor& all, const std::string& prefix) const;

  std::shared_ptr<const FlatOrder> order_;
  std::vector<torch::Tensor> parts_;  // of each bucket; each begins its storage
};

}  // namespace lockstep
