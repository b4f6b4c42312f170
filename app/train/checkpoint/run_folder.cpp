#include <lockstep/app/train/checkpoint/run_folder.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include <lockstep/app/files/json_file.h>
#include <lockstep/app/files/nearest_path.h>
#include <lockstep/app/files/text_file.h>
#include <lockstep/app/machine/environment.h>
#include <lockstep/app/train/checkpoint/checkpoint_memory.h>
#include <lockstep/data/train_checkpoint.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/output_failure.h>
#include <lockstep/support/files/temporary_file.h>
#include <lockstep/support/parse_number.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRuns = "runs";
constexpr const char* kLaunchFile = "launched_by";
constexpr std::string_view kStep = "step-";
constexpr const char* kManifest = "manifest.json";

// The number behind `prefix` in a name that is nothing else; empty for other names.
std::optional<int64_t> number_behind(std::string_view prefix, std::string_view name) {
  return name.starts_with(prefix) ? parse_count<int64_t>(name.substr(prefix.size())) : std::nullopt;
}

// The numbers of the folders PREFIX-NUMBER in `folder`, in order.
std::vector<int64_t> numbers_in(const fs::path& folder, std::string_view prefix) {
  std::vector<int64_t> numbers;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (!fs::is_directory(entry->symlink_status(error))) continue;
    const auto name = entry->path().filename().native();
    if (const auto number = number_behind(prefix, name)) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

[[noreturn]] void cannot_make(const fs::path& folder, const std::error_code& error) {
  throw output_failure(fmt::format("cannot make the run folder '{}'", folder.native()), error.value());
}

// Looks at the folder, or at the nearest one above it that exists. A link that leads nowhere is no folder.
void require_writable_folder(const fs::path& folder) {
  using Type = fs::file_type;
  std::error_code error;
  const auto whole = fs::absolute(folder, error);
  const auto nearest = nearest_path(folder);
  const auto type = fs::status(nearest, error).type();
  if (type == Type::directory) {
    error.assign(::access(nearest.c_str(), W_OK | X_OK) == 0 ? 0 : errno, std::generic_category());
  } else if (type != Type::none) {  // none: it cannot be looked at, as `error` says
    throw OutputError(fmt::format("cannot make the run folder '{}': {} is {}", folder.native(),
                                  nearest == whole ? "it" : fmt::format("'{}'", nearest.native()),
                                  type == Type::not_found ? "a link that leads nowhere" : "a file"),
                      "choose another name");
  }
  if (!error) return;
  if (nearest != whole) cannot_make(folder, error);
  throw output_failure(fmt::format("cannot write to the run folder '{}'", folder.native()), error.value());
}

std::string numbered(std::string_view name, int64_t number) { return fmt::format("{}-{:04}", name, number); }

using Warn = std::function<void(const std::string&)>;

// Throws WeightsError, which names the checkpoint.
RunState read_run(const fs::path& path) {
  auto checkpoint =
      read_checkpoint(path, checkpoint_memory(path / "..", static_cast<int64_t>(bytes_in(path))));
  try {
    return read_state(std::move(checkpoint));
  } catch (const WeightsError& error) {
    throw WeightsError(fmt::format("'{}': {}", path.native(), error.message()), error.hint());
  }
}

// A run that has trained does not start again by itself: that would cost its metrics.
[[noreturn]] void none_is_whole(const RunFolder& run) {
  throw WeightsError(fmt::format("none of the {} in '{}' can be read",
                                 counted(run.steps().size(), "checkpoint"), run.path().native()),
                     "see the warnings above; to start again, name another folder with --output");
}

// A checkpoint that was named: training goes on in its run only from the newest one.
FoundCheckpoint named_checkpoint(const fs::path& given, const std::optional<std::string>& output) {
  const auto whole = fs::weakly_canonical(given);  // `last` is a link, and this may be a folder of the run
  const auto path = fs::proximate(whole);
  const RunFolder run(fs::proximate(whole.parent_path().parent_path()));
  const auto steps = run.steps();
  FoundCheckpoint found{run, path, read_run(path), steps};
  const auto own = number_behind(kStep, whole.filename().native());
  const bool in_run = own && whole == fs::weakly_canonical(run.checkpoint(*own));
  if (output && fs::weakly_canonical(*output) != fs::weakly_canonical(found.run.path())) return found;
  if (!in_run) {
    throw UsageError(fmt::format("the checkpoint '{}' is in no run folder", given.native()),
                     "name the folder of the new run: --output DIR");
  }
  if (steps.back() > *own) {
    throw UsageError(fmt::format("'{}' is of step {}, but the run has a checkpoint of step {}",
                                 given.native(), *own, steps.back()),
                     "go on from it in a new run with --output DIR, or name the run's folder");
  }
  return found;
}

}  // namespace

std::optional<RunPosition> position_of(const fs::path& checkpoint) {
  try {
    return read_position(parse_json(read_json_file((checkpoint / kStateFile).native(), "")).at("progress"));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

uint64_t bytes_in(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (const auto size = entry->file_size(ignored); !ignored) bytes += size;
  }
  return bytes;
}

bool is_checkpoint(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / kManifest, ignored);
}

fs::path RunFolder::checkpoint(int64_t step) const {
  return checkpoints() / fmt::format("{}{:08}", kStep, step);
}

std::vector<int64_t> RunFolder::steps() const { return numbers_in(checkpoints(), kStep); }

std::optional<double> RunFolder::best_score() const {
  const auto position = position_of(checkpoints() / kBestLink);  // a damaged checkpoint is not the best
  return position ? position->last_score() : std::nullopt;
}

void RunFolder::require_writable() const {
  require_writable_folder(path_);
  require_writable_folder(checkpoints());
  for (const auto* name : {kLastLink, kBestLink}) {
    std::error_code ignored;
    const auto link = checkpoints() / name;
    const auto status = fs::symlink_status(link, ignored);
    if (!fs::exists(status) || fs::is_symlink(status)) continue;
    throw OutputError(
        fmt::format("'{}' is {}, a run has a link to one of its checkpoints there", link.native(),
                    fs::is_directory(status) ? "a folder" : "a file"),
        "a copy that followed the links? remove it: the checkpoints themselves are named step-...");
  }
}

void RunFolder::require_free() const {
  std::error_code error;
  if (fs::is_empty(path_, error) || error) return;
  throw OutputError(fmt::format("'{}' already exists and is not empty", path_.native()),
                    "choose another folder, or go on with the run that is there: --resume auto");
}

void RunFolder::create(bool again) const {
  if (!again) require_free();
  require_writable();
  std::error_code error;
  fs::create_directories(checkpoints(), error);
  if (error) cannot_make(path_, error);
}

void RunFolder::write_beginning(const std::string& config) const {
  Json json{{"command", command_line()}};
  json.update(environment_json());
  write_text_file(path_ / "env.json", json_text(json));
  write_text_file(path_ / "config.toml", config);
}

void RunFolder::write_launch(const std::string& launch) const {
  write_text_file(path_ / kLaunchFile, launch);
}

bool RunFolder::begun_by(const std::string& launch) const {
  std::ifstream file(path_ / kLaunchFile, std::ios::binary);
  return !launch.empty() && file && std::string(std::istreambuf_iterator<char>(file), {}) == launch;
}

bool RunFolder::is_of_launch(const std::string& launch) const {
  if (begun_by(launch)) return true;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(path_, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!is_temporary(entry->path().filename()) && !fs::is_directory(entry->symlink_status(error)))
      return false;
  }
  return !error || error == std::errc::no_such_file_or_directory;
}

void RunFolder::remove_stale_temporaries() const {
  for (const auto& folder : {path_, checkpoints(), path_ / "plots"})
    lockstep::remove_stale_temporaries(folder);
}

void RunFolder::set_aside_after(int64_t step) const {
  for (const auto other : steps()) {
    if (other <= step) continue;
    const auto path = checkpoint(other);
    const auto aside = path.native() + ".damaged";
    std::error_code error;
    fs::remove_all(aside, error);  // of an earlier time
    fs::rename(path, aside, error);
    if (error) {
      throw output_failure(fmt::format("cannot rename the damaged checkpoint '{}'", path.native()),
                           error.value());
    }
  }
}

RunFolder create_numbered_run(std::string_view name) {
  std::error_code error;
  fs::create_directories(kRuns, error);
  if (error) cannot_make(kRuns, error);
  const auto taken = numbers_in(kRuns, fmt::format("{}-", name));
  for (int64_t number = taken.empty() ? 1 : taken.back() + 1;; ++number) {
    RunFolder run(fs::path(kRuns) / numbered(name, number));
    const bool made = fs::create_directory(run.path(), error);  // false: another process has taken it
    if (error) cannot_make(run.path(), error);
    if (!made) continue;
    run.create();
    return run;
  }
}

void require_writable_runs() { require_writable_folder(kRuns); }

std::vector<RunFolder> numbered_runs(std::string_view name) {
  std::vector<RunFolder> runs;
  for (const auto number : numbers_in(kRuns, fmt::format("{}-", name))) {
    runs.emplace_back(fs::path(kRuns) / numbered(name, number));
  }
  std::reverse(runs.begin(), runs.end());
  return runs;
}

std::optional<FoundCheckpoint> newest_checkpoint(const RunFolder& run, const Warn& warn) {
  const auto steps = run.steps();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const auto path = run.checkpoint(*step);
    try {
      return FoundCheckpoint{run, path, read_run(path), steps};
    } catch (const WeightsError& error) {
      warn(fmt::format("{}; it is skipped", error.message()));
    }
  }
  return std::nullopt;
}

void require_unchanged(const RunFolder& run, std::span<const int64_t> steps) {
  if (std::ranges::equal(run.steps(), steps)) return;
  throw OutputError(
      fmt::format("another process has written checkpoints to '{}' since this one has looked for them",
                  run.path().native()),
      "give the same command again");
}

FoundCheckpoint open_checkpoint(const std::string& path, const Warn& warn) {
  constexpr const char* kHint = "name the folder of a run or of one of its checkpoints";
  std::error_code ignored;
  if (is_checkpoint(path)) {
    return {RunFolder(fs::path(path).parent_path().parent_path()), path, read_run(path)};
  }
  if (fs::is_regular_file(path, ignored)) {
    throw WeightsError(fmt::format("no checkpoint {}: it is a file", in_quotes(path)),
                       fmt::format("{}; eval takes a file of weights with --weights", kHint));
  }
  if (!fs::is_directory(path, ignored)) {
    throw WeightsError(fmt::format("no checkpoint {}: there is no such folder", in_quotes(path)), kHint);
  }
  if (auto found = newest_checkpoint(RunFolder(path), warn)) return *std::move(found);
  if (!numbers_in(path, kStep).empty()) {
    throw WeightsError(fmt::format("{} is the folder of a run's checkpoints", in_quotes(path)), kHint);
  }
  throw WeightsError(fmt::format("{} has no whole checkpoint", in_quotes(path)), kHint);
}

std::optional<FoundCheckpoint> find_checkpoint(const std::string& resume,
                                               const std::optional<std::string>& output,
                                               std::string_view name, const Warn& warn) {
  if (resume != "auto") {
    return is_checkpoint(resume) ? named_checkpoint(resume, output) : open_checkpoint(resume, warn);
  }
  auto runs = output ? std::vector{RunFolder(*output)} : numbered_runs(name);
  for (const auto& run : runs) {
    if (auto found = newest_checkpoint(run, warn)) return found;
    if (!run.steps().empty()) none_is_whole(run);
  }
  return std::nullopt;
}

}  // namespace lockstep
