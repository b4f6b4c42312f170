// The weights of an exported program in files that Python reads.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/app/files/network_facts.h>
#include <lockstep/models/program.h>
#include <lockstep/support/types.h>

namespace lockstep {

// The weights of a replica, with the names of its parameters and buffers, as Python's state_dict() has them:
// in its order, tied ones under all of their names, without buffers that are not persistent. Throws
// WeightsError for weights of another program.
std::vector<NamedTensor> python_weights(const std::shared_ptr<const Program>& program,
                                        std::span<const NamedTensor> weights);

// Writes them to a safetensors file, or into a copy of the program (names_program() of weights_name.h).
// Throws OutputError, also for a file that exists unless `overwrite`; a safetensors file is then written
// elsewhere, as save_weights() does. facts: as of save_weights(). A copy of the program has no place for
// them, and a warning says so if pixels are normalised.
void save_program_weights(const std::shared_ptr<const Program>& program, std::span<const NamedTensor> weights,
                          const std::string& path, bool overwrite,
                          const std::optional<NetworkFacts>& facts = {});

}  // namespace lockstep
