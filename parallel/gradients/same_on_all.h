// Compares what must be the same on all ranks, or in all processes, before they rely on it. It is compared as
// lines of text, so that an error can show both.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace torch::nn {
class Module;
}

namespace lockstep {

class Endpoint;
class ProcessGroup;

// One per parameter and buffer: "first.weight [8, 2] Float", "first.bias [8] Float, frozen"; with the strides
// of one that is not contiguous, since broadcasts and sums go by the order in memory.
std::vector<std::string> tensor_lines(const torch::nn::Module& module);

// A collective. Throws UsageError, the same for all, with the first line that differs: "the models differ:
// rank 1 has b [3] where rank 0 has b [2]". what: "models"; hint: of the error. Also throws the error that
// ended the collective.
void require_same_on_ranks(const std::vector<std::string>& lines, Endpoint& endpoint, std::string_view what,
                           std::string_view hint);

// The same of the parameters and buffers of modules.
void require_same_modules(const torch::nn::Module& module, Endpoint& endpoint);

// The same between processes; throws as ProcessGroup::gather() does.
void require_same_in_processes(const std::vector<std::string>& lines, ProcessGroup& group,
                               std::string_view what, std::string_view hint);

}  // namespace lockstep
