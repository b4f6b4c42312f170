#include <lockstep/app/memory/memory_usage.h>

#include <fstream>
#include <string>

namespace lockstep {
namespace {

// A line of these files reads "VmRSS:     1234 kB".
int64_t read_bytes(const char* file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string word; lines >> word;) {
    if (word != key) continue;
    int64_t kibibytes = 0;
    lines >> kibibytes;
    return kibibytes * 1024;
  }
  return 0;
}

}  // namespace

int64_t resident_bytes() { return read_bytes("/proc/self/status", "VmRSS:"); }
int64_t peak_resident_bytes() { return read_bytes("/proc/self/status", "VmHWM:"); }
int64_t total_bytes() { return read_bytes("/proc/meminfo", "MemTotal:"); }
int64_t available_bytes() { return read_bytes("/proc/meminfo", "MemAvailable:"); }

}  // namespace lockstep
