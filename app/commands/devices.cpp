#include <lockstep/app/commands/devices.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <string_view>

#include <lockstep/app/files/json_file.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/parallel/threads/openmp_threads.h>
#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

std::string gibibytes(double bytes) { return fmt::format("{:.1f} GiB", bytes / (1 << 30)); }

std::string device_lines(const Machine& machine) {
  auto out = fmt::format("  {:8}{}\n  {:8}{}, {}, {} memory ({} free)\n", "cpu", machine.cpu, "",
                         cores_text(machine), machine.instructions,
                         gibibytes(static_cast<double>(machine.total_bytes)),
                         gibibytes(static_cast<double>(machine.available_bytes)));
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const auto& gpu = machine.gpus[i];
    out += fmt::format("  {:8}{}\n  {:8}{}, compute capability {}.{}, {} memory ({} free)\n",
                       fmt::format("cuda:{}", i), gpu.name, "",
                       counted(gpu.multiprocessors, "multiprocessor"), gpu.capability_major,
                       gpu.capability_minor, gibibytes(static_cast<double>(gpu.total_bytes)),
                       gibibytes(static_cast<double>(gpu.free_bytes)));
  }
  if (machine.gpus.empty())
    out += fmt::format("  no GPU: {}\n", machine.gpu_problem.value_or("none was found"));
  return out;
}

// Values of --devices, with the replicas and threads that they give on this machine.
std::string spec_lines(const Machine& machine) {
  const auto line = [](std::string_view spec, const std::string& meaning) {
    return fmt::format("  {:16}{}\n", spec, meaning);
  };
  const auto threads = [&](int replicas) {
    return counted(granted_threads(std::max(1, machine.cores / replicas)), "thread");
  };
  const auto gpus = static_cast<int>(machine.gpus.size());

  auto out = line("auto", gpus > 0 ? "the first GPU: cuda:0" : "the first GPU, or the CPU: here cpu");
  out += line("cpu", fmt::format("one replica on the CPU, {}", threads(1)));
  out += line("cpux2", fmt::format("two replicas on the CPU, {} each (--threads changes it)", threads(2)));
  if (gpus == 0) return out + line("cuda:0, cuda", "one GPU, all GPUs: this machine has none");
  out += line("cuda", fmt::format("one replica per GPU: {}", gpus));
  out += line("cuda:0x2", "two replicas on one GPU");
  return out + line(gpus > 1 ? "cuda:0,cuda:1" : "cuda:0,cpu", "a list, one replica per device");
}

}  // namespace

std::string describe(const Machine& machine) {
  auto out =
      "devices\n" + device_lines(machine) + "\n--devices takes\n" + spec_lines(machine) + "\nversions\n";
  for (const auto& [name, version] : machine.libraries) out += fmt::format("  {:16}{}\n", name, version);
  return out;
}

nlohmann::ordered_json to_json(const Machine& machine) {
  auto gpus = nlohmann::ordered_json::array();
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const auto& gpu = machine.gpus[i];
    gpus.push_back({{"device", fmt::format("cuda:{}", i)},
                    {"name", gpu.name},
                    {"capability", fmt::format("{}.{}", gpu.capability_major, gpu.capability_minor)},
                    {"multiprocessors", gpu.multiprocessors},
                    {"memory_bytes", gpu.total_bytes},
                    {"free_bytes", gpu.free_bytes}});
  }
  nlohmann::ordered_json json{{"cpu",
                               {{"name", machine.cpu},
                                {"cores", machine.cores},
                                {"instructions", machine.instructions},
                                {"memory_bytes", machine.total_bytes},
                                {"free_bytes", machine.available_bytes}}},
                              {"gpus", gpus},
                              {"gpu_problem", nullptr},
                              {"versions", nlohmann::ordered_json::object()}};
  if (machine.gpu_problem) json["gpu_problem"] = *machine.gpu_problem;
  for (const auto& [name, version] : machine.libraries) json["versions"][name] = version;
  return json;
}

void setup_devices(CLI::App& app) {
  auto* devices = app.add_subcommand("devices", "List devices, memory, threads and library versions");
  const auto json = std::make_shared<bool>(false);
  devices->add_flag("--json", *json, "Print the list as JSON");
  devices->callback([json] {
    const auto machine = this_machine();
    write_stdout(*json ? json_line(to_json(machine)) : describe(machine));
  });
}

}  // namespace lockstep
