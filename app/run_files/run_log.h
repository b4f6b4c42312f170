// train.log: what a run prints, with date and time.
#pragma once

#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include <lockstep/app/files/growing_file.h>
#include <lockstep/app/terminal/logging.h>

namespace lockstep {

// While it lives, warnings and notices go into it by themselves. Thread-safe.
class RunLog {
 public:
  RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Appends to this file from now on, and first what has been written before. Nothing in it is ever cut; a
  // line that a kill has left incomplete stays one. Throws OutputError.
  void open(const std::filesystem::path& path);

  // Appends the lines of the text, each behind the local date and time. Throws OutputError, also if a note
  // before could not be written.
  void write(std::string_view text);

  // The same for warnings, notices and errors: never throws.
  void note(std::string_view message) noexcept;

 private:
  void append(std::string_view text);

  std::mutex mutex_;
  std::string early_;  // before the file is open
  std::optional<GrowingFile> file_;
  std::exception_ptr failed_;   // of a note
  const MessageCopies copies_;  // last: it uses all of the above
};

// Prints the text unless `quiet`, and appends it to the log if there is one. Throws OutputError.
void print_and_log(RunLog* log, bool quiet, std::string_view text);

}  // namespace lockstep
