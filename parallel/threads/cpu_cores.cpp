#include <lockstep/parallel/threads/cpu_cores.h>

#include <sched.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include <lockstep/parallel/threads/openmp_threads.h>

namespace lockstep {

std::vector<int> allowed_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  if (!cores.empty()) return cores;
  // The call above fails on a machine with more than CPU_SETSIZE cores.
  for (int core = 0; core < std::max(1, static_cast<int>(std::thread::hardware_concurrency())); ++core) {
    cores.push_back(core);
  }
  return cores;
}

std::vector<int> cores_for_worker(const std::vector<int>& allowed, int worker, int workers, int threads) {
  if (static_cast<size_t>(workers) * static_cast<size_t>(threads) > allowed.size()) return allowed;
  const auto begin = allowed.begin() + static_cast<std::ptrdiff_t>(worker) * threads;
  return {begin, begin + threads};
}

std::vector<int> share_of_cores(const std::vector<int>& cores, std::span<const size_t> replicas, size_t own) {
  const auto before =
      std::accumulate(replicas.begin(), replicas.begin() + static_cast<std::ptrdiff_t>(own), size_t{0});
  const auto all = std::accumulate(replicas.begin(), replicas.end(), size_t{0});
  const auto begin = cores.size() * before / all;
  const auto end = std::max(begin + 1, cores.size() * (before + replicas[own]) / all);
  return {cores.begin() + static_cast<std::ptrdiff_t>(begin),
          cores.begin() + static_cast<std::ptrdiff_t>(end)};
}

void pin_to_share(const std::vector<CoreUser>& users, size_t own) {
  std::vector<size_t> replicas;  // of the processes on the same cores
  size_t place = 0;
  for (size_t i = 0; i < users.size(); ++i) {
    if (users[i].machine != users[own].machine || users[i].cores != users[own].cores) continue;
    if (i == own) place = replicas.size();
    replicas.push_back(users[i].replicas);
  }
  if (replicas.size() > 1) pin_to_cores(share_of_cores(users[own].cores, replicas, place));
}

int default_threads(int replicas) {
  return granted_threads(std::max(1, static_cast<int>(allowed_cores().size()) / replicas));
}

void pin_to_cores(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

}  // namespace lockstep
