// Other hosts, launchers, the clock and the terminal.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include <lockstep/app/doctor/checks.h>

namespace lockstep {
namespace {

constexpr int64_t kFirstOf2025 = 1735689600;  // seconds since 1970
constexpr int kUsualColumns = 80;             // columns

Judgement judge_port(const Facts& facts) {
  const auto& network = facts.network;
  if (network.master_problem) {
    return {Health::kFail, network.master_problem->text, network.master_problem->hint};
  }
  if (!network.own_host)
    return {Health::kOk, fmt::format("{}:{} is another host's", network.host, network.port)};
  if (network.port_problem.empty()) return {Health::kOk, fmt::format("{} is free", network.port)};
  const bool asked = !network.host.empty();
  return {asked ? Health::kFail : Health::kWarn, network.port_problem,
          "choose another port: --master HOST:PORT"};
}

Judgement judge_interface(const Facts& facts) {
  const auto& network = facts.network;
  if (!network.host.empty()) {
    if (!network.route.empty())
      return {Health::kOk, fmt::format("{} leads to {}", network.route, network.host)};
    return {Health::kFail, fmt::format("none leads to {}", network.host),
            "write its address for its name, or see 'ip route'"};
  }
  if (network.interfaces.empty()) {
    return {Health::kWarn, "only loopback: processes of other hosts cannot be reached",
            "on one host this is enough; else see 'ip link'; start a container with --network host"};
  }
  return {Health::kOk, fmt::format("{}", fmt::join(network.interfaces, ", "))};
}

Judgement judge_launcher(const Facts& facts) {
  const auto& network = facts.network;
  if (network.world_problem) return {Health::kFail, network.world_problem->text, network.world_problem->hint};
  if (network.launchers.empty())
    return {Health::kOk, "lockstep launch; no torchrun, mpirun or srun for several hosts"};
  return {Health::kOk, fmt::format("lockstep launch, {}", fmt::join(network.launchers, ", "))};
}

Judgement judge_clock(const Facts& facts) {
  const auto& clock = facts.clock;
  if (clock.now < kFirstOf2025) {
    return {Health::kFail, fmt::format("{} s since 1970: before this program was written", clock.now),
            "set it: timedatectl set-ntp true"};
  }
  const bool slow = clock.source == "hpet" || clock.source == "acpi_pm" || clock.source == "jiffies";
  if (slow) {
    return {Health::kWarn, fmt::format("read through {}, which takes microseconds", clock.source),
            "see /sys/devices/system/clocksource/clocksource0 and the kernel's log for why tsc is not used"};
  }
  const auto source = clock.source.empty() ? "" : fmt::format(", read through {}", clock.source);
  if (!clock.synchronised) {
    return {Health::kWarn, "not synchronised with other hosts'" + source,
            "timedatectl set-ntp true; a container's host does it"};
  }
  return {Health::kOk, "synchronised" + source};
}

Judgement judge_terminal(const Facts& facts) {
  const auto& terminal = facts.terminal;
  if (!terminal.is_terminal) return {Health::kOk, "none: output goes elsewhere"};
  const auto text = fmt::format("{}, {} columns", terminal.kind.empty() ? "TERM is not set" : terminal.kind,
                                terminal.width);
  if (!terminal.interactive || terminal.kind.empty()) {
    return {Health::kWarn, text + ": no live line",
            "set TERM to the terminal's name, such as xterm-256color"};
  }
  if (terminal.width < kUsualColumns)
    return {Health::kWarn, text, "widen it to 80 columns: lines are cut or wrapped"};
  if (!terminal.utf8)
    return {Health::kWarn, text + ", not UTF-8", "LANG=C.UTF-8 gives the bar and the curve their fine steps"};
  return {Health::kOk, text + ", UTF-8"};
}

constexpr Check kSurroundingsChecks[] = {{"port", judge_port},
                                         {"interface", judge_interface},
                                         {"launcher", judge_launcher},
                                         {"clock", judge_clock},
                                         {"terminal", judge_terminal}};

}  // namespace

std::span<const Check> surroundings_checks() { return kSurroundingsChecks; }

std::span<const Check> doctor_checks() {
  static const auto all = [] {
    std::vector<Check> checks;
    for (const auto group :
         {gpu_checks(), limit_checks(), storage_checks(), cpu_checks(), surroundings_checks()}) {
      checks.insert(checks.end(), group.begin(), group.end());
    }
    return checks;
  }();
  return all;
}

}  // namespace lockstep
