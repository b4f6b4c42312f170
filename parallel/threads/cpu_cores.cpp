#include <lockstep/parallel/threads/cpu_cores.h>

#include <sched.h>

#include <algorithm>
#include <thread>

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

int default_threads(int replicas) { return std::max(1, static_cast<int>(allowed_cores().size()) / replicas); }

void pin_to_cores(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

}  // namespace lockstep
