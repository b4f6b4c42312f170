#include <lockstep/app/launch/cores.h>

#include <fmt/format.h>

#include <fstream>
#include <map>

#include <lockstep/parallel/threads/cpu_cores.h>

namespace lockstep {
namespace {

int socket_of(int core, const std::filesystem::path& folder) {
  std::ifstream file(folder / fmt::format("cpu{}", core) / "topology" / "physical_package_id");
  int socket = 0;
  return file >> socket && socket > 0 ? socket : 0;  // some machines say -1
}

std::map<int, std::vector<int>> cores_of_sockets(const std::vector<int>& cores,
                                                 const std::filesystem::path& folder) {
  std::map<int, std::vector<int>> sockets;
  for (const int core : cores) sockets[socket_of(core, folder)].push_back(core);
  return sockets;
}

}  // namespace

std::vector<int> by_socket(const std::vector<int>& cores, const std::filesystem::path& folder) {
  std::vector<int> ordered;
  for (const auto& [socket, own] : cores_of_sockets(cores, folder)) {
    ordered.insert(ordered.end(), own.begin(), own.end());
  }
  return ordered;
}

int automatic_processes(int gpus, const std::vector<int>& cores, const std::filesystem::path& folder) {
  if (gpus > 0) return gpus;
  return static_cast<int>(cores_of_sockets(cores, folder).size());
}

std::vector<int> cores_of_process(const std::vector<int>& cores, int process, int processes) {
  const int each = static_cast<int>(cores.size()) / processes;
  if (each == 0) return {};
  return cores_for_worker(cores, process, processes, each);
}

}  // namespace lockstep
