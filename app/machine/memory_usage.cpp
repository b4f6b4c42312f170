#include <lockstep/app/machine/memory_usage.h>

#include <fstream>

namespace lockstep {

int64_t bytes_in_file(const std::filesystem::path& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string word; lines >> word;) {
    if (word != key) continue;
    int64_t kibibytes = 0;
    lines >> kibibytes;
    return kibibytes * 1024;
  }
  return 0;
}

int64_t resident_bytes() { return bytes_in_file("/proc/self/status", "VmRSS:"); }
int64_t peak_resident_bytes() { return bytes_in_file("/proc/self/status", "VmHWM:"); }
int64_t total_bytes() { return bytes_in_file("/proc/meminfo", "MemTotal:"); }
int64_t available_bytes() { return bytes_in_file("/proc/meminfo", "MemAvailable:"); }

}  // namespace lockstep
