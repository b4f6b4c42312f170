// SLURM's lists: hosts, and tasks per host.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// "n[1-3,07],gpu-a[01-02]b" -> n1 n2 n3 n07 gpu-a01b gpu-a02b. Numbers keep their leading zeros. Throws
// UsageError for a text that is no such list, or that names more than 65,536 hosts or one of more than 255
// characters.
std::vector<std::string> slurm_hosts(std::string_view list);

// "2(x3),1" -> 2 2 2 1. Throws UsageError as slurm_hosts() does.
std::vector<int> slurm_tasks(std::string_view list);

}  // namespace lockstep
