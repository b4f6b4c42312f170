// In which arithmetic a model computes.
#pragma once

#include <torch/types.h>

#include <lockstep/support/choices.h>

namespace lockstep {

enum class Precision {
  kFp32,
  kTf32,  // on GPUs float matrix products and convolutions round their inputs to 10 bits; elsewhere fp32
  kBf16,  // layers that gain by it compute in bfloat16 (torch's autocast); weights and sums stay float
  kFp64,  // for checks
};

inline constexpr Choice<Precision> kPrecisionNames[] = {{"fp32", Precision::kFp32},
                                                        {"tf32", Precision::kTf32},
                                                        {"bf16", Precision::kBf16},
                                                        {"fp64", Precision::kFp64}};

// What parameters, gradients and inputs are kept in.
torch::ScalarType dtype_of(Precision precision);

// Settings of the whole process, for before the first computation: whether GPUs may use TF32, and with
// `deterministic` that a second run gives the same bits: kernels whose result depends on timing are refused,
// and none is chosen by timing.
void set_arithmetic(Precision precision, bool deterministic);

// While it lives, the calling thread's forward passes on this device compute in bfloat16 where `precision` is
// kBf16; the others need nothing here and leave the thread as it is. The backward pass follows by itself. May
// be nested; what was set before comes back.
class AutocastGuard {
 public:
  AutocastGuard(Precision precision, torch::Device device);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  const bool on_;
  const torch::DeviceType type_;
  bool enabled_before_ = false;
  torch::ScalarType dtype_before_ = torch::kBFloat16;
};

}  // namespace lockstep
