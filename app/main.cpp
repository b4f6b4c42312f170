// The program: builds the command line, runs the command, and turns every error into a message and an exit
// code.
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <lockstep/app/cli/cli.h>
#include <lockstep/app/cli/color_mode.h>
#include <lockstep/app/cli/flag_words.h>
#include <lockstep/app/cli/suggest.h>
#include <lockstep/app/cli/usage.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/parallel/main_thread.h>
#include <lockstep/parallel/threads/start_thread.h>
#include <lockstep/support/cuda/fault.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr const char* kMemoryHint =
    "use a smaller --batch-size, fewer replicas on one device (--devices), or less data (--limit-train)";

// Write errors are ignored: the exit code still tells.
void write_stderr(const std::string& text) { std::fputs(text.c_str(), stderr); }

// The hint stays whole: it may have a command that is copied.
int report(const CLI::App& app, ExitCode code, std::string_view what, std::string_view hint) {
  const Terminal terminal(STDERR_FILENO, color_mode(app));
  write_stderr(fmt::format("lockstep: {} {}\n", terminal.style().red("error:"), printable(shortened(what))));
  if (!hint.empty()) write_stderr(fmt::format("{} {}\n", terminal.style().cyan("hint:"), printable(hint)));
  return static_cast<int>(code);
}

int report_torch_error(const CLI::App& app, const c10::Error& error) {
  const std::string_view what = error.what_without_backtrace();
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error))
    return report(app, ExitCode::kMemory, what, kMemoryHint);
  if (const auto* accelerator = dynamic_cast<const c10::AcceleratorError*>(&error)) {
    const auto first_line =
        what.substr(0, what.find('\n'));  // the other lines are advice for torch's developers
    const auto fault = explain({.code = accelerator->get_error_code(), .words = std::string(first_line)});
    return report(app, fault.exit_code(), fault.what(), with_flags(fault.hint()));
  }
  // torch's CPU allocator throws a general error, whose text begins with a source location.
  const auto cpu_allocator = what.find("DefaultCPUAllocator");
  if (cpu_allocator == std::string_view::npos) return report(app, ExitCode::kFailed, what, "");
  const auto details = what.substr(std::min(what.find("you tried"), what.size()));
  return report(app, ExitCode::kMemory, fmt::format("out of memory: {}", details), kMemoryHint);
}

// Parsing runs the subcommand.
ExitCode run(CLI::App& app, int argc, char** argv) {
  refuse_empty_values(app, std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    write_stdout(fmt::format("{}\n", version.what()));
  } catch (const CLI::ParseError& error) {
    if (help_requested(app)) {
      write_stdout(app.help());
    } else if (ends_before_subcommand(app)) {
      write_stderr(app.help());
      return ExitCode::kUsage;
    } else {
      throw usage_error(app, error);
    }
  }
  return ExitCode::kDone;
}

// Opens /dev/null for closed standard streams. Otherwise the next file to be opened would take the number of
// standard output, and results would go into it.
void occupy_standard_streams() {
  int fd = 0;
  while ((fd = ::open("/dev/null", O_RDONLY)) >= 0 && fd <= STDERR_FILENO) continue;
  if (fd >= 0) ::close(fd);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  leave_cores_to_replicas();
  occupy_standard_streams();
  // With the signals ignored, a failed write is an error of one file, and the other files are kept.
  const auto on_broken_pipe = std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  const auto app = build_cli();
  try {
    return static_cast<int>(run(*app, argc, argv));
  } catch (const ReaderGoneError& error) {
    std::signal(SIGPIPE, on_broken_pipe);
    std::raise(SIGPIPE);  // the usual end of a program whose output nobody reads
    return report(*app, error.exit_code(), error.what(), with_flags(error.hint()));
  } catch (const Error& error) {
    return report(*app, error.exit_code(), error.what(), with_flags(error.hint()));
  } catch (const c10::Error& error) {
    return report_torch_error(*app, error);
  } catch (const std::bad_alloc&) {
    return report(*app, ExitCode::kMemory, "out of memory", kMemoryHint);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) {
      return report(*app, ExitCode::kFailed, error.what(), "");
    }
    return report(*app, ExitCode::kMemory, kNoThread, kNoThreadHint);
  } catch (const std::exception& error) {
    return report(*app, ExitCode::kFailed, error.what(), "");
  }
}
