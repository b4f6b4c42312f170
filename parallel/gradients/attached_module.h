// GradientSync's knowledge of the module that is attached to it, and of what has changed there since.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/support/types.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

class AttachedModule {
 public:
  AttachedModule() = default;  // none

  // Throws UsageError when no parameter requires a gradient, when some of those differ in device or in the
  // type of their numbers (a complex number has two of them), and when one has a post-accumulate hook.
  explicit AttachedModule(const torch::nn::Module& module);

  bool is(const torch::nn::Module& module) const { return module_ == &module; }
  const std::string& type() const { return type_; }                 // "NetImpl"
  const std::vector<std::string>& names() const { return names_; }  // of trained()
  const Params& trained() const { return trained_; }                // those that require a gradient

  // A change that the flat gradients do not follow. Finding it takes a few comparisons per parameter. The
  // module must be alive.
  struct Change {
    std::string what;
    std::string hint;
  };
  std::optional<Change> change() const;
  std::optional<Change> change_of_parameters() const;  // only whether there are others

 private:
  struct Seen {
    bool trained = false;
    torch::ScalarType dtype = torch::kFloat;
    torch::Device device = torch::kCPU;
    std::vector<int64_t> sizes;
  };

  const torch::nn::Module* module_ = nullptr;
  std::string type_;
  std::vector<NamedTensor> registered_;  // all parameters
  std::vector<Seen> seen_;               // the same, as they were
  std::vector<std::string> names_;
  Params trained_;
};

}  // namespace lockstep
