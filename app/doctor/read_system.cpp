// Facts from the kernel's files.
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include <lockstep/app/doctor/read_facts.h>
#include <lockstep/app/machine/memory_usage.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

// The names in a folder, in order; none if it cannot be read.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The folders of this process's cgroup and of those above it, below sys/fs/cgroup.
std::vector<fs::path> cgroup_folders(const fs::path& root) {
  const auto top = root / "sys/fs/cgroup";
  std::vector<fs::path> folders;
  std::ifstream stream(root / "proc/self/cgroup");
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with("0::/")) continue;  // version 2
    for (fs::path below = line.substr(4); !below.empty(); below = below.parent_path())
      folders.push_back(top / below);
  }
  folders.push_back(top);
  return folders;
}

// A limit in a file of a cgroup: a number or "max".
int64_t cgroup_number(const fs::path& file, int64_t otherwise) {
  std::ifstream stream(file);
  int64_t number = 0;
  return stream >> number ? number : otherwise;
}

bool is_nvidia_gpu(const fs::path& device) {
  constexpr const char* kNvidia = "0x10de";
  constexpr const char* kDisplay = "0x03";  // class of graphics cards, 3D controllers among them
  return first_line(device / "vendor") == kNvidia && first_line(device / "class").starts_with(kDisplay);
}

// "580.65.06" in "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul ..."
std::string module_version(const std::string& line) {
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (std::isdigit(static_cast<unsigned char>(word.front())) != 0 && word.find('.') != std::string::npos)
      return word;
  }
  return line.empty() ? "" : "of unknown version";
}

}  // namespace

void read_gpu_files(const fs::path& root, GpuFacts& gpu) {
  const auto devices = root / "sys/bus/pci/devices";
  const auto names = names_in(devices);
  gpu.cards = static_cast<int>(std::count_if(
      names.begin(), names.end(), [&](const auto& name) { return is_nvidia_gpu(devices / name); }));
  gpu.kernel_driver = module_version(first_line(root / "proc/driver/nvidia/version"));
  gpu.infiniband = !names_in(root / "sys/class/infiniband").empty();
}

void read_cpu_files(const fs::path& root, CpuFacts& cpu) {
  const auto folder = root / "sys/devices/system/cpu";
  for (const auto& name : names_in(folder)) {
    const auto governor = first_line(folder / name / "cpufreq/scaling_governor");
    if (governor.empty()) continue;
    cpu.frequency_driver = first_line(folder / name / "cpufreq/scaling_driver");
    const bool known = std::find(cpu.governors.begin(), cpu.governors.end(), governor) != cpu.governors.end();
    if (!known) cpu.governors.push_back(governor);
  }
  std::ifstream stat(root / "proc/stat");
  int online = 0;
  for (std::string line; std::getline(stat, line);) {
    if (line.starts_with("cpu") && line.size() > 3 && std::isdigit(static_cast<unsigned char>(line[3])) != 0)
      ++online;
  }
  if (online > 0) cpu.online = online;
  for (const auto& group : cgroup_folders(root)) {
    std::ifstream stream(group / "cpu.max");  // "max 100000", or time and period in microseconds
    double time = 0, period = 0;
    if (!(stream >> time >> period) || period <= 0) continue;
    if (cpu.quota == 0 || time / period < cpu.quota) cpu.quota = time / period;
  }
  std::ifstream(root / "proc/loadavg") >> cpu.load;
  const auto pages =
      first_line(root / "sys/kernel/mm/transparent_hugepage/enabled");  // "always [madvise] never"
  if (const auto begin = pages.find('['); begin != std::string::npos) {
    cpu.huge_pages = pages.substr(begin + 1, pages.find(']') - begin - 1);
  }
}

void read_limit_files(const fs::path& root, LimitFacts& limits) {
  limits.memory_bytes = bytes_in_file(root / "proc/meminfo", "MemTotal:");
  limits.available_bytes = bytes_in_file(root / "proc/meminfo", "MemAvailable:");
  for (const auto& group : cgroup_folders(root)) {
    const auto threads = cgroup_number(group / "pids.max", kUnlimited);
    if (threads != kUnlimited) {
      limits.threads_left = std::min(limits.threads_left, threads - cgroup_number(group / "pids.current", 0));
    }
    const auto memory = cgroup_number(group / "memory.max", kUnlimited);
    if (memory >= limits.memory_bytes) continue;
    limits.memory_bytes = memory;
    limits.available_bytes =
        std::min(limits.available_bytes, memory - cgroup_number(group / "memory.current", 0));
  }
  struct statvfs shared {};
  if (::statvfs((root / "dev/shm").c_str(), &shared) != 0) return;
  limits.shared_bytes = static_cast<int64_t>(shared.f_blocks) * static_cast<int64_t>(shared.f_frsize);
  limits.free_shared_bytes = static_cast<int64_t>(shared.f_bavail) * static_cast<int64_t>(shared.f_frsize);
}

int64_t threads_of_user(const fs::path& root, unsigned user) {
  int64_t count = 0;
  for (const auto& name : names_in(root / "proc")) {
    if (std::isdigit(static_cast<unsigned char>(name.front())) == 0) continue;
    std::ifstream status(root / "proc" / name / "status");
    int64_t threads = 0;
    unsigned owner = ~user;
    for (std::string word; status >> word;) {
      if (word == "Uid:") status >> owner;
      if (word == "Threads:") status >> threads;
    }
    if (owner == user) count += threads;
  }
  return count;
}

void read_network_files(const fs::path& root, HostNetworkFacts& network) {
  const auto folder = root / "sys/class/net";
  for (const auto& name : names_in(folder)) {
    const auto state = first_line(folder / name / "operstate");
    if (name != "lo" && (state == "up" || state == "unknown")) network.interfaces.push_back(name);
  }
}

void read_clock_files(const fs::path& root, ClockFacts& clock) {
  clock.source = first_line(root / "sys/devices/system/clocksource/clocksource0/current_clocksource");
}

CpuTicks read_ticks(const fs::path& root) {
  constexpr size_t kStolen = 7;   // after user, nice, system, idle, iowait, irq and softirq
  constexpr size_t kCounted = 8;  // guests' time is part of user's
  std::istringstream words(first_line(root / "proc/stat"));
  std::string cpu;
  words >> cpu;
  CpuTicks ticks;
  uint64_t number = 0;
  for (size_t i = 0; i < kCounted && words >> number; ++i) {
    ticks.all += number;
    if (i == kStolen) ticks.stolen = number;
  }
  return ticks;
}

double stolen_share(const CpuTicks& before, const CpuTicks& after) {
  if (after.all <= before.all || after.stolen < before.stolen) return 0;
  return static_cast<double>(after.stolen - before.stolen) / static_cast<double>(after.all - before.all);
}

}  // namespace lockstep
