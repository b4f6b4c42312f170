// The doctor's facts, read from a folder that stands in for the kernel's.
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <lockstep/app/doctor/read_facts.h>
#include <lockstep/parallel/collectives/gloo/sockets.h>
#include <lockstep/tests/skip.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::TempFolder;

namespace {

// Files by their path below a root.
void write_files(const TempFolder& root, const std::map<std::string, std::string>& files) {
  for (const auto& [path, text] : files) {
    const auto file = root / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
}

size_t entries(const std::filesystem::path& folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

}  // namespace

TEST_CASE("the doctor finds NVIDIA's cards and driver, and InfiniBand") {
  const TempFolder root;
  GpuFacts gpu;
  read_gpu_files(root.path(), gpu);  // an empty machine
  CHECK(gpu.cards == 0);
  CHECK(gpu.kernel_driver.empty());
  CHECK_FALSE(gpu.infiniband);
  write_files(root,
              {{"sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"},
               {"sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n"},
               {"sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n"},  // its sound
               {"sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n"},
               {"sys/bus/pci/devices/0000:02:00.0/vendor", "0x8086\n"},
               {"sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n"},
               {"sys/class/infiniband/mlx5_0/node_type", "1"},
               {"proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:15:17 UTC 2025\n"
                "GCC version:  gcc version 12.2.0\n"}});
  read_gpu_files(root.path(), gpu);
  CHECK(gpu.cards == 1);
  CHECK(gpu.kernel_driver == "580.65.06");
  CHECK(gpu.infiniband);
}

TEST_CASE("the doctor reads cores, quota, clocks and pages") {
  const TempFolder root;
  write_files(root, {{"proc/stat", "cpu  10 0 10 70 0 0 0 10 5 0\ncpu0 1 2\ncpu1 1 2\ncpu2 1 2\nintr 5\n"},
                     {"proc/loadavg", "1.25 0.80 0.50 2/345 678\n"},
                     {"proc/self/cgroup", "0::/a/b\n"},
                     {"sys/fs/cgroup/a/cpu.max", "150000 100000\n"},
                     {"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"},
                     {"sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"},
                     {"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"},
                     {"sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq\n"},
                     {"sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"}});
  CpuFacts cpu;
  read_cpu_files(root.path(), cpu);
  CHECK(cpu.online == 3);
  CHECK(cpu.load == Approx(1.25));
  CHECK(cpu.quota == Approx(1.5));
  CHECK(cpu.huge_pages == "never");
  CHECK(cpu.governors == std::vector<std::string>{"powersave"});
  const auto before = read_ticks(root.path());
  CHECK(before.all == 100);  // without the guests' time, which is part of the user's
  CHECK(before.stolen == 10);
  CHECK(stolen_share(before, {.all = 200, .stolen = 35}) == Approx(.25));
  CHECK(stolen_share(before, before) == 0);
}

TEST_CASE("the doctor reads memory and threads, of the machine or of the cgroup") {
  const TempFolder root;
  write_files(root, {{"proc/meminfo", "MemTotal:  8388608 kB\nMemFree: 1 kB\nMemAvailable:  4194304 kB\n"},
                     {"dev/shm/file", ""}});
  LimitFacts limits;
  read_limit_files(root.path(), limits);
  CHECK(limits.memory_bytes == int64_t{8} << 30);
  CHECK(limits.available_bytes == int64_t{4} << 30);
  CHECK(limits.threads_left == kUnlimited);
  CHECK(limits.shared_bytes > 0);
  write_files(root, {{"proc/self/cgroup", "0::/\n"},
                     {"sys/fs/cgroup/memory.max", "1073741824\n"},
                     {"sys/fs/cgroup/memory.current", "805306368\n"},
                     {"sys/fs/cgroup/pids.max", "100\n"},
                     {"sys/fs/cgroup/pids.current", "93\n"}});
  read_limit_files(root.path(), limits);
  CHECK(limits.memory_bytes == int64_t{1} << 30);
  CHECK(limits.available_bytes == int64_t{256} << 20);
  CHECK(limits.threads_left == 7);
}

TEST_CASE("the doctor counts the threads of a user") {
  const TempFolder root;
  write_files(root, {{"proc/1/status", "Name:\tinit\nUid:\t0\t0\t0\t0\nThreads:\t1\n"},
                     {"proc/20/status", "Name:\ta\nUid:\t1000\t0\t0\t0\nThreads:\t5\n"},
                     {"proc/21/status", "Name:\tb\nUid:\t1000\t0\t0\t0\nThreads:\t2\n"},
                     {"proc/meminfo", ""}});
  CHECK(threads_of_user(root.path(), 1000) == 7);
  CHECK(threads_of_user(root.path(), 7) == 0);
}

TEST_CASE("the doctor reads interfaces and the clock's source") {
  const TempFolder root;
  write_files(root, {{"sys/class/net/lo/operstate", "unknown\n"},
                     {"sys/class/net/eth0/operstate", "up\n"},
                     {"sys/class/net/eth1/operstate", "down\n"},
                     {"sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"}});
  HostNetworkFacts network;
  ClockFacts clock;
  read_network_files(root.path(), network);
  read_clock_files(root.path(), clock);
  CHECK(network.interfaces == std::vector<std::string>{"eth0"});
  CHECK(clock.source == "hpet");
}

TEST_CASE("the doctor writes into a folder, or above one that is not there, and leaves nothing") {
  const TempFolder folder;
  const auto there = read_folder(folder.path());
  CHECK(there.problem.empty());
  CHECK(there.free_bytes > 0);
  CHECK(there.bytes_per_second > 0);
  const auto missing = read_folder(folder / "runs" / "of" / "today");
  CHECK(missing.problem.empty());
  CHECK(missing.path == (folder / "runs" / "of" / "today").string());
  CHECK(entries(folder.path()) == 0);
  std::filesystem::create_symlink(folder / "nowhere", folder / "link");
  CHECK(read_folder(folder / "link").problem == "No such file or directory");  // no run could make it
  const auto impossible = read_folder("/proc/self");
  CHECK_FALSE(impossible.problem.empty());
}

TEST_CASE("the doctor says where a port is taken, and what leads to a host") {
  const auto taken = listen_on("127.0.0.1", 0);
  HostNetworkFacts network;
  read_meeting_place("127.0.0.1:" + std::to_string(port_of(taken)), network);
  CHECK(network.own_host);
  CHECK(network.route == "127.0.0.1");
  CHECK_THAT(network.port_problem, ContainsSubstring("cannot listen on 127.0.0.1:"));
  HostNetworkFacts wrong;
  read_meeting_place("127.0.0.1", wrong);
  REQUIRE(wrong.master_problem);
  CHECK_THAT(wrong.master_problem->text, ContainsSubstring("127.0.0.1"));
  HostNetworkFacts other;  // an address for documentation (RFC 5737), which no host has
  read_meeting_place("192.0.2.1:29500", other);
  CHECK_FALSE(other.own_host);
  CHECK(other.port_problem.empty());
}

TEST_CASE("the doctor finds programs on PATH, and damaged data") {
  const TempFolder folder;
  write_files(folder, {{"a/torchrun", ""}, {"b/srun", ""}});
  ::chmod((folder / "a/torchrun").c_str(), 0700);
  const auto path = (folder / "b").string() + ":" + (folder / "a").string();
  CHECK(found_programs({"torchrun", "mpirun", "srun"}, path) == std::vector<std::string>{"torchrun"});
  const auto data = read_data((folder / "a").string());
  REQUIRE(data.problem);
  CHECK_FALSE(data.problem->hint.empty());
  CHECK(read_data("synthetic").files.empty());
}
