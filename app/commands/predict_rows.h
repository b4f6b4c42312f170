// The rows of files that `lockstep predict` is given.
#pragma once

#include <torch/types.h>

#include <string>

#include <lockstep/app/files/network_facts.h>

namespace lockstep {

// Returns the rows of a file as a network with these facts takes them: (rows, row_shape...) on the host.
// Pixels of uint8 are divided by 255, unless the network takes bytes itself. A safetensors file has one
// tensor of such rows, of uint8 or floats; a data file's test rows where it has several. Throws DataError,
// which lists what the file has, for anything else.
torch::Tensor rows_in_file(const std::string& path, const NetworkFacts& facts, bool takes_bytes = false);

}  // namespace lockstep
