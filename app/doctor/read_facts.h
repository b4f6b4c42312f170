// Reads what `lockstep doctor` judges. Nothing is changed: the only files written have no name when they are
// written, and are gone at the end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/app/doctor/facts.h>

namespace lockstep {

struct DoctorOptions {
  std::optional<std::string> data = {};    // a folder, or "synthetic"
  std::string output = "runs";             // where runs are kept
  std::optional<std::string> master = {};  // HOST:PORT
  bool json = false;
};

// Takes a second or two, most of it for the data's hashes.
Facts read_facts(const DoctorOptions& options);

// The parts below read files of the kernel in proc/, sys/ and dev/ of `root`. A fact whose file is missing
// keeps its default.

// cards, kernel_driver, infiniband
void read_gpu_files(const std::filesystem::path& root, GpuFacts& gpu);

// online, quota, governors, frequency_driver, load, huge_pages
void read_cpu_files(const std::filesystem::path& root, CpuFacts& cpu);

// memory_bytes, available_bytes, shared_bytes, free_shared_bytes; threads_left, of the cgroup alone
void read_limit_files(const std::filesystem::path& root, LimitFacts& limits);

// The number of threads that run as this user.
int64_t threads_of_user(const std::filesystem::path& root, unsigned user);

// interfaces
void read_network_files(const std::filesystem::path& root, HostNetworkFacts& network);

// source
void read_clock_files(const std::filesystem::path& root, ClockFacts& clock);

// Time of all cores since the start of the machine, in ticks.
struct CpuTicks {
  uint64_t all = 0;
  uint64_t stolen = 0;
};
CpuTicks read_ticks(const std::filesystem::path& root);

// The share of the time between two readings that was stolen.
double stolen_share(const CpuTicks& before, const CpuTicks& after);

// Writes a few megabytes into the folder, or the nearest one above it that exists, for a quarter of a second
// at most.
FolderFacts read_folder(const std::filesystem::path& folder);

DataFacts read_data(const std::optional<std::string>& data);

// Where processes meet, and whether this host can be reached and listen there. master: HOST:PORT; without it
// only the usual port is tried.
void read_meeting_place(const std::optional<std::string>& master, HostNetworkFacts& network);

// Returns those of `names` that are programs in a folder of `path` (as PATH).
std::vector<std::string> found_programs(const std::vector<std::string>& names, const std::string& path);

}  // namespace lockstep
