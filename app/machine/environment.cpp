#include <lockstep/app/machine/environment.h>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include <lockstep/app/machine/machine.h>
#include <lockstep/app/machine/version.h>

namespace lockstep {
namespace {

// Quotes a word that a shell would split or expand.
std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_of(" \t\n'\"$`\\*?#&;|<>()[]{}~!") == std::string::npos;
  if (plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  std::string line;
  for (size_t begin = 0; begin < bytes.size();) {
    const auto end = std::min(bytes.find('\0', begin), bytes.size());
    const auto word = bytes.substr(begin, end - begin);
    line += line.empty() ? std::filesystem::path(word).filename().string() : " " + quoted(word);
    begin = end + 1;
  }
  return line;
}

nlohmann::ordered_json environment_json() {
  const auto machine = this_machine();
  nlohmann::ordered_json json{
      {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::now()))},
      {"commit", built_commit()},
      {"cpu", machine.cpu},
      {"cores", machine.cores},
      {"instructions", machine.instructions},
      {"memory_bytes", machine.total_bytes},
      {"gpus", nlohmann::ordered_json::array()}};
  for (const auto& gpu : machine.gpus) {
    json["gpus"].push_back({{"name", gpu.name},
                            {"capability", fmt::format("{}.{}", gpu.capability_major, gpu.capability_minor)},
                            {"memory_bytes", gpu.total_bytes}});
  }
  for (const auto& [name, version] : machine.libraries) json["libraries"][name] = version;
  return json;
}

std::string environment_text() {
  const auto machine = this_machine();
  auto text = fmt::format("# {:<10} {}\n", "command", command_line());
  text += fmt::format("# {:<10} {}, {}, {}, {:.1f} GiB memory\n", "machine", machine.cpu, cores_text(machine),
                      machine.instructions, static_cast<double>(machine.total_bytes) / (1 << 30));
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const auto& gpu = machine.gpus[i];
    text += fmt::format("# {:<10} {}, compute capability {}.{}\n", fmt::format("cuda:{}", i), gpu.name,
                        gpu.capability_major, gpu.capability_minor);
  }
  auto versions = fmt::format("commit {}", built_commit());
  for (const auto& [name, version] : machine.libraries) {
    versions += fmt::format(", {} {}", name, version);
  }
  return text + fmt::format("# {:<10} {}\n", "versions", versions);
}

}  // namespace lockstep
