#include <lockstep/app/run_files/run_log.h>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <limits>
#include <utility>

#include <lockstep/app/terminal/terminal.h>

namespace lockstep {
namespace {

// Empty if the clock cannot tell.
std::string local_time() {
  const auto now = std::time(nullptr);
  std::tm parts{};
  return ::localtime_r(&now, &parts) ? fmt::format("{:%Y-%m-%d %H:%M:%S}", parts) : "";
}

std::string stamped(std::string_view text) {
  const auto stamp = local_time();
  std::string lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines += fmt::format("{} {}\n", stamp, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool ends_within_line(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() <= 0) return false;
  file.seekg(-1, std::ios::end);
  return file.get() != '\n';
}

}  // namespace

RunLog::RunLog() : copies_([this](std::string_view message) { note(message); }) {}

void RunLog::open(const std::filesystem::path& path) {
  const std::lock_guard lock(mutex_);
  const bool cut = ends_within_line(path);
  file_.emplace(path, std::numeric_limits<int64_t>::max());
  if (cut) file_->write("\n");
  file_->write(std::exchange(early_, {}));
}

void RunLog::write(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (const auto failed = std::exchange(failed_, nullptr)) std::rethrow_exception(failed);
  append(text);
}

void RunLog::note(std::string_view message) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    append(message);
  } catch (const std::exception&) {
    if (!failed_) failed_ = std::current_exception();
  }
}

void RunLog::append(std::string_view text) {
  const auto lines = stamped(text);
  if (!file_) {
    early_ += lines;
  } else {
    file_->write(lines);
  }
}

void print_and_log(RunLog* log, bool quiet, std::string_view text) {
  if (log) log->write(text);
  if (!quiet) write_stdout(text);
}

}  // namespace lockstep
