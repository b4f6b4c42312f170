// Limits of this process, memory, and the folders that it writes to and reads from.
#include <fmt/format.h>

#include <algorithm>

#include <lockstep/app/doctor/checks.h>
#include <lockstep/app/doctor/largest_model.h>
#include <lockstep/data/data_folder.h>
#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

constexpr int64_t kFewFiles = 1024;    // the usual limit
constexpr int64_t kTooFewFiles = 128;  // a run opens its libraries, data, files and a socket per process
constexpr int64_t kLockedForGpus = kGiB;
constexpr int64_t kSharedForGpus = kGiB;            // NVIDIA's images ask for it
constexpr int64_t kLeastSharedForGpus = 64 * kMiB;  // the default of containers
constexpr double kSlowDisk = 20e6;                  // bytes per second

std::string size_text(int64_t bytes) {
  if (bytes < kGiB) return fmt::format("{} MiB", bytes / kMiB);
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
}

std::string limit_text(int64_t limit, std::string_view noun) {
  return limit == kUnlimited ? "no limit" : fmt::format("at most {}", counted(limit, noun));
}

// NCCL's processes on one host exchange through it.
Judgement judge_shared_memory(const Facts& facts) {
  const auto& limits = facts.limits;
  const auto text = limits.shared_bytes == 0
                        ? "no /dev/shm"
                        : fmt::format("{} in /dev/shm, {} free", size_text(limits.shared_bytes),
                                      size_text(limits.free_shared_bytes));
  const auto* hint = "mount it larger; start a container with --shm-size=1g";
  if (facts.gpu.devices.size() < 2) return {Health::kOk, text};
  if (limits.free_shared_bytes < kLeastSharedForGpus) return {Health::kFail, text, hint};
  return limits.free_shared_bytes < kSharedForGpus ? Judgement{Health::kWarn, text, hint}
                                                   : Judgement{Health::kOk, text};
}

Judgement judge_memory(const Facts& facts) {
  const auto& limits = facts.limits;
  const int replicas = std::max(1, facts.cpu.cores);
  const auto text =
      fmt::format("{} of {} available: {}", size_text(limits.available_bytes), size_text(limits.memory_bytes),
                  largest_model_text(limits.available_bytes / replicas, replicas));
  const auto* hint =
      "end other programs, or raise the limit of the container; LeNet needs .3 GiB, ResNet-18 2 GiB. Several "
      "replicas need less with train --shard, which shares out what each keeps";
  if (limits.available_bytes < kGiB / 2) return {Health::kFail, text, hint};
  return limits.available_bytes < 2 * kGiB ? Judgement{Health::kWarn, text, hint}
                                           : Judgement{Health::kOk, text};
}

Judgement judge_open_files(const Facts& facts) {
  const auto& limits = facts.limits;
  const auto text = limit_text(limits.open_files, "open file");
  const auto hint =
      limits.most_open_files > limits.open_files
          ? fmt::format("ulimit -n {}", std::min<int64_t>(limits.most_open_files, 65536))
          : "raise 'nofile' in /etc/security/limits.conf; of a container: --ulimit nofile=65536";
  if (limits.open_files < kTooFewFiles) return {Health::kFail, text, hint};
  return limits.open_files < kFewFiles ? Judgement{Health::kWarn, text, hint} : Judgement{Health::kOk, text};
}

Judgement judge_processes(const Facts& facts) {
  const int64_t left = facts.limits.threads_left;
  const int64_t one_run = 2 * facts.cpu.cores + 16;  // threads that compute, exchange and watch
  if (left == kUnlimited) return {Health::kOk, "no limit on threads"};
  const auto text = fmt::format("{} can be started; a run needs about {}",
                                counted(std::max<int64_t>(left, 0), "thread"), one_run);
  const auto* hint = "ulimit -u, TasksMax= of systemd, or --pids-limit of a container sets the limit";
  if (left < one_run) return {Health::kFail, text, hint};
  return left < 4 * one_run ? Judgement{Health::kWarn, text, hint} : Judgement{Health::kOk, text};
}

// InfiniBand's adapters read and write locked memory.
Judgement judge_locked_memory(const Facts& facts) {
  const int64_t limit = facts.limits.locked_bytes;
  if (limit == kUnlimited) return {Health::kOk, "no limit on locked memory"};
  const auto text = fmt::format("at most {} locked", size_text(limit));
  if (!facts.gpu.infiniband) return {Health::kOk, text + "; only InfiniBand needs more"};
  if (limit >= kLockedForGpus) return {Health::kOk, text};
  return {Health::kWarn, text + ", for InfiniBand",
          "ulimit -l unlimited; of a container: --ulimit memlock=-1"};
}

struct Needed {
  int64_t least;   // below it fails
  int64_t wanted;  // below it warns
  const char* hint;
};

Judgement judge_folder(const FolderFacts& folder, const Needed& needed) {
  if (!folder.problem.empty()) {
    return {Health::kFail, fmt::format("{}: {}", folder.path, folder.problem), needed.hint};
  }
  const auto text = fmt::format("{}: {} free, {:.0f} MB/s", folder.path, size_text(folder.free_bytes),
                                folder.bytes_per_second / 1e6);
  if (folder.free_bytes < needed.least) return {Health::kFail, text, needed.hint};
  if (folder.free_bytes < needed.wanted) return {Health::kWarn, text, needed.hint};
  if (folder.bytes_per_second < kSlowDisk) {
    return {Health::kWarn, text + ", which is slow",
            "choose a local disk; checkpoints hold up a run until they are written"};
  }
  return {Health::kOk, text};
}

// Only set-up needs it: that it cannot be written is no failure.
Judgement judge_cache(const Facts& facts) {
  auto judgement = judge_folder(
      facts.cache,
      {0, 2 * kGiB, "make room there, or set XDG_CACHE_HOME: LibTorch takes 1.3 GB, with CUDA 8 GB"});
  if (judgement.health == Health::kFail) judgement.health = Health::kWarn;
  return judgement;
}

Judgement judge_runs(const Facts& facts) {
  return judge_folder(facts.runs,
                      {100 * kMiB, kGiB, "make room there, or keep runs elsewhere: --output DIR"});
}

Judgement judge_temporary(const Facts& facts) {
  return judge_folder(
      facts.temporary,
      {16 * kMiB, 100 * kMiB, "make room there, or set TMPDIR: launch keeps its processes' output there"});
}

Judgement judge_data(const Facts& facts) {
  const auto& data = facts.data;
  if (is_known_data(data.folder)) return {Health::kOk, data.folder + ": no files"};
  if (data.problem) return {Health::kFail, data.problem->text, data.problem->hint};
  if (!data.holds.empty()) return {Health::kOk, fmt::format("{} has {}", data.folder, data.holds)};
  for (const auto& file : data.files) {
    if (file.matches()) continue;
    return {Health::kWarn, fmt::format("{} is not Fashion-MNIST as published", file.path.string()),
            "if it should be: apt-get install --reinstall dataset-fashion-mnist; 'lockstep data verify' "
            "compares all files"};
  }
  return {Health::kOk, fmt::format("{} in {} are as published",
                                   counted(static_cast<int64_t>(data.files.size()), "file"), data.folder)};
}

constexpr Check kLimitChecks[] = {{"shared memory", judge_shared_memory},
                                  {"memory", judge_memory},
                                  {"open files", judge_open_files},
                                  {"threads", judge_processes},
                                  {"locked memory", judge_locked_memory}};

constexpr Check kStorageChecks[] = {
    {"cache", judge_cache}, {"run folder", judge_runs}, {"temporary", judge_temporary}, {"data", judge_data}};

}  // namespace

std::span<const Check> limit_checks() { return kLimitChecks; }
std::span<const Check> storage_checks() { return kStorageChecks; }

}  // namespace lockstep
