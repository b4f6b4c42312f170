#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <lockstep/app/doctor/checks.h>
#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

constexpr double kMuchSteal = .02;

Judgement judge_cores(const Facts& facts) {
  const auto& cpu = facts.cpu;
  auto text = cpu.cores < cpu.online ? fmt::format("{} of {} cores may be used", cpu.cores, cpu.online)
                                     : counted(cpu.cores, "core");
  if (cpu.quota <= 0 || cpu.quota >= cpu.cores) return {Health::kOk, text};
  text += fmt::format(", with the time of {:.1f}", cpu.quota);
  return {Health::kWarn, text,
          fmt::format("use --threads {}, or raise the quota of the container (--cpus)",
                      std::max(1, static_cast<int>(cpu.quota)))};
}

bool is_off(const std::string& value) {
  return value.empty() || value == "false" || value == "FALSE" || value == "0" || value == "disabled";
}

// Returns what a variable of OpenMP spoils; empty if nothing. lockstep chooses threads and cores of each
// replica.
std::string spoils(const std::string& name, const std::string& value, int cores) {
  const bool binds = name == "OMP_PROC_BIND" || name == "OMP_PLACES" || name == "GOMP_CPU_AFFINITY" ||
                     name == "KMP_AFFINITY";
  if (binds && !is_off(value)) return "puts the threads of all replicas on the same cores";
  if (name == "OMP_THREAD_LIMIT" && std::atoi(value.c_str()) < cores)
    return "leaves cores idle: no replica gets more threads";
  if (name == "OMP_WAIT_POLICY" && (value == "active" || value == "ACTIVE")) return "keeps idle threads busy";
  return "";
}

Judgement judge_openmp(const Facts& facts) {
  if (const auto& problem = facts.cpu.openmp_problem) return {Health::kFail, problem->text, problem->hint};
  std::vector<std::string> set;
  for (const auto& [name, value] : facts.cpu.openmp) {
    if (const auto what = spoils(name, value, facts.cpu.cores); !what.empty()) {
      return {Health::kWarn, fmt::format("{}={} {}", name, value, what), fmt::format("unset {}", name)};
    }
    set.push_back(fmt::format("{}={}", name, value));
  }
  const auto threads = fmt::format("{} for one replica (--threads)", counted(facts.cpu.cores, "thread"));
  if (set.empty()) return {Health::kOk, threads};
  return {Health::kOk, fmt::format("{}, whatever {} says", threads, fmt::join(set, ", "))};
}

// The drivers of newer CPUs raise the clock with the load, whatever the governor is called.
Judgement judge_governor(const Facts& facts) {
  const auto& cpu = facts.cpu;
  if (cpu.governors.empty()) return {Health::kOk, "none: the machine does not show its clock"};
  const auto text =
      fmt::format("{}{}", fmt::join(cpu.governors, ", "),
                  cpu.frequency_driver.empty() ? "" : fmt::format(" ({})", cpu.frequency_driver));
  const bool saves =
      std::find(cpu.governors.begin(), cpu.governors.end(), "powersave") != cpu.governors.end();
  const bool adapts = cpu.frequency_driver.find("pstate") != std::string::npos;
  if (!saves || adapts) return {Health::kOk, text};
  return {Health::kWarn, text + ": the lowest clock", "cpupower frequency-set -g performance"};
}

Judgement judge_steal(const Facts& facts) {
  const auto& cpu = facts.cpu;
  const auto text = fmt::format("{:.1f} % of the time stolen, load {:.1f} on {}", 100 * cpu.steal, cpu.load,
                                counted(cpu.online, "core"));
  if (cpu.steal > kMuchSteal) {
    return {Health::kWarn, text, "other virtual machines take the cores: figures measured now are too slow"};
  }
  if (cpu.load > .5 * cpu.online) {
    return {Health::kWarn, text, "other programs take the cores: end them before you measure (see top)"};
  }
  return {Health::kOk, text};
}

Judgement judge_huge_pages(const Facts& facts) {
  const auto& pages = facts.cpu.huge_pages;
  if (pages == "always" || pages == "madvise") return {Health::kOk, "pages of 2 MB: " + pages};
  return {Health::kWarn, fmt::format("pages of 2 MB: {}", pages.empty() ? "this kernel has none" : pages),
          "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"};
}

Judgement judge_kernels(const Facts& facts) {
  const auto& cpu = facts.cpu;
  if (cpu.kernels_problem) return {Health::kFail, cpu.kernels_problem->text, cpu.kernels_problem->hint};
  const auto text = fmt::format("lockstep's kernels {}, torch's {}", cpu.chosen, cpu.torch_kernels);
  if (cpu.chosen != cpu.best) {
    return {Health::kWarn, fmt::format("{}; this CPU can {}", text, cpu.best),
            "unset LOCKSTEP_CPU_CAPABILITY"};
  }
  if (!cpu.torch_asked.empty()) {
    return {Health::kWarn, fmt::format("{}, by ATEN_CPU_CAPABILITY={}", text, cpu.torch_asked),
            "unset ATEN_CPU_CAPABILITY"};
  }
  if (cpu.best == "portable") {
    return {Health::kWarn, text + ": this CPU has no AVX2",
            "runs are several times slower than with AVX2; in a virtual machine pass the host's CPU on"};
  }
  return {Health::kOk, text};
}

constexpr Check kCpuChecks[] = {{"cores", judge_cores},           {"openmp", judge_openmp},
                                {"governor", judge_governor},     {"steal time", judge_steal},
                                {"huge pages", judge_huge_pages}, {"kernels", judge_kernels}};

}  // namespace

std::span<const Check> cpu_checks() { return kCpuChecks; }

}  // namespace lockstep
