// The memory of a replica's tensors, on which it computes directly: the trained ones lie in one flat
// buffer that the optimizer updates, and captured steps read and write where they were captured.
// torch::load(), set_data() and Module::to() give a parameter other memory. The replica would go on training
// the old one, without a sign of it.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <vector>

#include <lockstep/support/error_text.h>
#include <lockstep/support/types.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

// Throws UsageError as require_strided() does, and if a trained parameter shares memory with another
// parameter or a buffer: a replica gives each its own.
void require_memory_of_their_own(const torch::nn::Module& module);

class HeldParameters {
 public:
  HeldParameters() = default;  // none
  // buffers_too: for captured steps, which read and write them in place.
  HeldParameters(const torch::nn::Module& module, bool buffers_too);

  size_t size() const { return params_.now.size(); }  // parameters

  // Throws UsageError with the name of a tensor that has other memory, dtype, device or shape by now, and of
  // a parameter that has been registered or replaced since. rank: for the error. A few comparisons per
  // tensor.
  void require_unchanged(int rank) const;

  // Returns true if requires_grad of a parameter has changed.
  bool requires_grad_changed() const;

  // Copies parameters that are not trained any more out of the flat buffer, so that its memory can be freed.
  void release_frozen() const;

 private:
  struct Tensors {
    explicit Tensors(std::vector<NamedTensor> tensors = {});

    std::vector<NamedTensor> now;  // the module's own
    Params before;                 // the same as they were: memory, type, shape, and whether they are trained
  };

  // Throws UsageError for the first that has other memory. than: who uses the memory that it had.
  static void require_same_memory(int rank, const char* kind, const Tensors& all, const char* than,
                                  ErrorText (*hint)());

  const torch::nn::Module* module_ = nullptr;
  Tensors params_, buffers_;
};

}  // namespace lockstep
