// The state of a whole optimizer of torch::optim as named tensors; torch_state.h has that of a parameter.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <lockstep/support/types.h>

namespace torch::optim {
class Optimizer;
}

namespace lockstep {

// The name of a parameter of the optimizer. Throws for one that has none.
using NameOfParameter = std::function<std::string(const torch::Tensor& param)>;

// Returns the values of a tensor of a state. own_values() is for ranks that all have the state. Where rank 0
// alone has it, the tensors of the others have its form alone, and the call is a collective: all ranks ask
// for the same tensors in the same order.
using ValuesOf = std::function<torch::Tensor(const torch::Tensor& saved)>;
inline torch::Tensor own_values(const torch::Tensor& saved) { return saved; }

// The parameters of each group of an optimizer.
using GroupParams = std::vector<Params>;
GroupParams params_by_group(const torch::optim::Optimizer& optimizer);

// Throws UsageError for another optimizer than SGD, Adam, AdamW, RMSprop and Adagrad, and classes derived
// from them.
void require_known_optimizer(torch::optim::Optimizer& optimizer);

// Returns the learning rates of the groups: (groups) double.
torch::Tensor rates_of(torch::optim::Optimizer& optimizer);

// Sets them.
void set_rates(torch::optim::Optimizer& optimizer, const torch::Tensor& rates);

// The name of a field of a parameter's state: "exp_avg.NAME".
std::string name_of_field(const std::string& field, const std::string& param);

// Returns rates_of(), "lr", and each parameter's state by the names of
// Python's: "exp_avg.NAME" on its device, "step.NAME" () int64. Without those that the optimizer does not
// have yet. The tensors are its own. Throws as require_known_optimizer() does.
std::vector<NamedTensor> optimizer_state(torch::optim::Optimizer& optimizer, const NameOfParameter& name_of);

// Throws WeightsError, and what optimizer_state() throws, unless load_optimizer_state() takes this state.
// whose: for the error, "optimizer adam". params: of its groups, if these have others.
void require_optimizer_state(torch::optim::Optimizer& optimizer, const NameOfParameter& name_of,
                             const std::vector<NamedTensor>& state, const std::string& whose);
void require_optimizer_state(torch::optim::Optimizer& optimizer, const GroupParams& params,
                             const NameOfParameter& name_of, const std::vector<NamedTensor>& state,
                             const std::string& whose);

// Gives the optimizer copies of this state, and its parameters no other. Asks for values in the order of the
// parameters' names.
void load_optimizer_state(torch::optim::Optimizer& optimizer, const NameOfParameter& name_of,
                          const std::vector<NamedTensor>& state, const ValuesOf& values);

}  // namespace lockstep
