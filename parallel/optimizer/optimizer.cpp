#include <lockstep/parallel/optimizer/optimizer.h>

#include <lockstep/parallel/optimizer/flat_optimizer.h>
#include <lockstep/parallel/optimizer/torch_optimizer.h>

namespace lockstep {

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, torch::Device device) {
  if (options.factory) return std::make_unique<TorchOptimizer>(options.factory);
  return std::make_unique<FlatOptimizer>(options, device);
}

}  // namespace lockstep
