#include <lockstep/app/machine/version.h>

#include <ATen/Version.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include <vector>

#include <lockstep/support/cpu/capability.h>
#include <lockstep/support/cuda/info.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// The kernels' name; what is wrong with LOCKSTEP_CPU_CAPABILITY if it is.
std::string chosen_kernels() {
  try {
    return std::string(name_of(kCpuCapabilityNames, cpu_capability()));
  } catch (const Error& error) {
    return fmt::format("none: {}", error.message());
  }
}

}  // namespace

const char* version_number() { return LOCKSTEP_VERSION; }

std::string version_text() {
  return fmt::format("lockstep {} (LibTorch {}, {})", LOCKSTEP_VERSION, TORCH_VERSION, cuda_build());
}

std::string version_lines() {
  std::vector<std::string_view> sets;
  for (const auto& [name, capability] : kCpuCapabilityNames) {
    if (has_capability(capability)) sets.push_back(name);
  }
  return fmt::format(
      "lockstep {}, commit {}\nLibTorch {}, {}\ncompiler {}\nCPU {}; lockstep's kernels {}, torch's {}",
      LOCKSTEP_VERSION, built_commit(), TORCH_VERSION, cuda_build(), compiler_text(), fmt::join(sets, ", "),
      chosen_kernels(), at::get_cpu_capability());
}

std::string compiler_text() {
#ifdef __clang__
  return "clang++ " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

}  // namespace lockstep
