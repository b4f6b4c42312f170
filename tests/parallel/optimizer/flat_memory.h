// Parameters and gradients in flat memory, as a replica has them, for tests of optimizers; and 300 steps
// whose results Python has computed.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/gradients/flat_tensors.h>
#include <lockstep/parallel/optimizer/flat_ranges.h>
#include <lockstep/parallel/optimizer/optimizer.h>

namespace lockstep::testing {

class FlatMemory {
 public:
  // params: leaves; the names are "p0", "p1" ...
  explicit FlatMemory(Params params)
      : params_(std::move(params)), values_(flatten_parameters(params_)), grads_(flat_zeros_like(params_)) {
    for (size_t i = 0; i < params_.size(); ++i) {
      names_.push_back("p" + std::to_string(i));
      params_[i].mutable_grad() = grads_.views[i];
    }
  }

  TrainedParameters trained(const OptimizerOptions& options, const torch::Tensor& bf16 = {}) const {
    const auto groups = groups_of(options, names_, params_);
    return {.order = order(names_),
            .groups = groups,
            .ranges = flat_ranges(*order(names_), groups,
                                  {.params = values_.flat, .grads = {grads_.flat}, .bf16 = bf16})};
  }

  // In which one rank has everything.
  std::shared_ptr<const FlatOrder> order(const std::vector<std::string>& names) const {
    return std::make_shared<const FlatOrder>(
        FlatOrder{.params = params_,
                  .names = names,
                  .parts = BucketParts(values_.flat.numel(), static_cast<int>(params_.size()))});
  }

  void set_gradient(size_t i, const torch::Tensor& value) { grads_.views[i].copy_(value); }

  const Params& params() const { return params_; }
  const torch::Tensor& flat() const { return values_.flat; }
  const torch::Tensor& flat_gradients() const { return grads_.flat; }

  // All parameters, one behind the other, without gaps.
  torch::Tensor values() const {
    const torch::NoGradGuard no_grad;
    Params flattened;
    for (const auto& param : params_) flattened.push_back(param.detach().flatten());
    return torch::cat(flattened);
  }

 private:
  Params params_;
  std::vector<std::string> names_;
  FlatTensors values_, grads_;
};

// A step of python_steps(), from 0.
inline void python_step(Optimizer& optimizer, FlatMemory& memory, int step) {
  for (size_t k = 0; k < memory.params().size(); ++k) {
    const auto& param = memory.params()[k];
    const auto place = torch::arange(param.numel(), torch::kFloat64) + .1 * step + static_cast<double>(k);
    memory.set_gradient(k, param.detach() * .5 + place.sin());
  }
  optimizer.set_lr(.05 / (1 + .01 * step));
  optimizer.step({});
}

inline FlatMemory python_memory() {
  Params params;
  for (const int64_t n : {4, 3, 2}) {
    params.push_back((torch::arange(n, torch::kFloat64) * .3 - .4).requires_grad_());
  }
  return FlatMemory(std::move(params));
}

// The parameters after 300 steps by torch 2.15 in Python:
//
//   torch.set_default_dtype(torch.float64)
//   params = [torch.nn.Parameter(torch.arange(n) * .3 - .4) for n in (4, 3, 2)]
//   optimizer = MAKE([{"params": params[0]}, {"params": params[1], "weight_decay": 0.},
//                     {"params": params[2], "lr": .005}])
//   shares = [group["lr"] / .05 for group in optimizer.param_groups]
//   for step in range(300):
//       for k, p in enumerate(params):
//           p.grad = p.detach() * .5 + torch.sin(torch.arange(len(p)) + .1 * step + k)
//       for group, share in zip(optimizer.param_groups, shares):
//           group["lr"] = share * .05 / (1 + .01 * step)
//       optimizer.step()
//
// where MAKE is the constructor of torch.optim in each line below, with lr=.05.
struct PythonNumbers {
  const char* optimizer;
  std::vector<double> values;
};

// clang-format off
inline const PythonNumbers kPythonSgd{"SGD(momentum=.9, nesterov=True, weight_decay=.01)",
    {-0.064744541556777543, 0.97099123670736798, 1.1140021505397704, 0.23280462336704547, 0.9592500369339334,
     1.115950633041525, 0.24665136361166581, 0.092449366332682956, 0.068059382482591302}};
inline const PythonNumbers kPythonAdam{"Adam(weight_decay=.01)",
    {-0.080558405005868153, 0.042472262578233909, 0.1269383804233718, 0.09354734988168785, 0.038021554350290837,
     0.1251589567618277, 0.094449788641058657, -0.25081302855989396, 0.0055029137179059169}};
inline const PythonNumbers kPythonAdamW{"AdamW(weight_decay=.1)",
    {-0.072774593042942759, 0.048262178877667289, 0.12593040252731055, 0.086701478179812705,
     0.038021554350290837, 0.1251589567618277, 0.094449788641058657, -0.23447515325347873,
     0.005946692028152822}};
inline const PythonNumbers kPythonAmsgrad{"Adam(weight_decay=.01, amsgrad=True)",
    {-0.080519931145198648, 0.042513096023264148, 0.12689855820862142, 0.093509433073709097,
     0.038060645473585078, 0.12511870770632602, 0.094412414731535887, -0.25082768683045964,
     0.0054970701840432769}};
inline const PythonNumbers kPythonRmsprop{"RMSprop(weight_decay=.01, momentum=.5, centered=True)",
    {0.070403532721749346, 0.34697196568800137, 0.30842875631406291, -0.015844280133944361, 0.34769139821677769,
     0.30987361464618879, -0.014564542852088984, -0.029082100720739416, 0.20326341544674389}};
inline const PythonNumbers kPythonAdagrad{"Adagrad(weight_decay=.01)",
    {-0.41833936065803956, -0.18050302343352256, 0.1127194356463124, 0.4219303115796591, -0.36352458006017513,
     -0.047456440289071623, 0.30170404691072178, -0.37839870854993829, -0.058813991672742282}};
// clang-format on

}  // namespace lockstep::testing
