// LeNet in two parts, which lockstep's kernels or torch's operations compute. lenet.cpp has the parts.
#pragma once

#include <torch/types.h>

#include <lockstep/models/layers/cpu/kernels.h>
#include <lockstep/models/layers/cpu/lenet/features.h>
#include <lockstep/models/layers/cpu/lenet/head.h>
#include <lockstep/support/kernels.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Returns true if lockstep's kernels compute a network whose images and parameters have this type and device.
inline bool lenet_has_kernels(Kernels kernels, torch::ScalarType dtype, torch::DeviceType device) {
  return kernels != Kernels::kTorch && dtype == torch::kFloat32 && device == torch::kCPU;
}

// Returns lockstep's kernels, if they compute a network of these images, or null: torch's operations do.
// Looks at X only: lockstep's kernels, like torch's, refuse parameters of another type or device.
inline const LeNetLayers<float>* lenet_kernels(Kernels kernels, const torch::Tensor& X) {
  if (!lenet_has_kernels(kernels, X.scalar_type(), X.device().type()) || !lenet_features_take(X))
    return nullptr;
  const auto& table = cpu_kernels<float>();
  return kernels == Kernels::kDirect ? table.direct_lenet : table.winograd_lenet;
}

// Both convolutional layers, (n, 800), and both linear layers, (n, 10). by: lenet_kernels() of the images.
torch::Tensor lenet_convolutions(const torch::Tensor& X, const Params& params, const LeNetLayers<float>* by);
torch::Tensor lenet_linear_layers(const torch::Tensor& features, const Params& params,
                                  const LeNetLayers<float>* by);

}  // namespace lockstep
