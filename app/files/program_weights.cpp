#include <lockstep/app/files/program_weights.h>

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>

#include <lockstep/app/files/weights_file.h>
#include <lockstep/app/files/weights_name.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/data/safetensors.h>
#include <lockstep/models/load_weights.h>
#include <lockstep/parallel/training/replica_models.h>
#include <lockstep/support/printable.h>

namespace lockstep {

std::vector<NamedTensor> python_weights(const std::shared_ptr<const Program>& program,
                                        std::span<const NamedTensor> weights) {
  ProgramModule module(program);
  const auto floating = std::ranges::find_if(
      weights, [](const NamedTensor& weight) { return weight.tensor.is_floating_point(); });
  if (floating != weights.end()) move_module(module, torch::kCPU, floating->tensor.scalar_type());
  load_weights_into(module, weights);
  std::vector<NamedTensor> named;
  for (const auto& [name, tensor] : module.state_dict()) named.push_back({name, tensor.detach()});
  return named;
}

void save_program_weights(const std::shared_ptr<const Program>& program, std::span<const NamedTensor> weights,
                          const std::string& path, bool overwrite, const std::optional<NetworkFacts>& facts) {
  auto named = python_weights(program, weights);
  if (!names_program(path)) return save_weights(std::move(named), kProgramModel, path, overwrite, facts);
  check_can_save(path, overwrite);
  save_program(*program, named, path);
  if (!facts || facts->mean.empty()) return;
  warn(
      fmt::format("{} does not say how pixels are normalised: eval of the run does it, and of weights in a "
                  ".safetensors file",
                  in_quotes(path)));
}

}  // namespace lockstep
