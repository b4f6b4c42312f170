#include <lockstep/app/commands/command_line.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include <lockstep/app/cli/as_error.h>
#include <lockstep/app/cli/color_mode.h>
#include <lockstep/app/cli/help/usage.h>
#include <lockstep/app/cli/launched_words.h>
#include <lockstep/app/commands/commands.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/parallel/main_thread.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>
#include <lockstep/support/process/text_command.h>

namespace lockstep {
namespace {

// Write errors are ignored: the exit code still tells.
void write_stderr(const std::string& text) { std::fputs(text.c_str(), stderr); }

// The hint stays whole: it may have a command that is copied.
int report(const CLI::App& app, const Error& error) {
  const Terminal terminal(STDERR_FILENO, color_mode(app));
  write_stderr(fmt::format("lockstep: {} {}\n", terminal.style().red("error:"),
                           printable(shortened(error.message()))));
  if (!error.hint().empty()) {
    write_stderr(fmt::format("{} {}\n", terminal.style().cyan("hint:"), printable(error.hint())));
  }
  return static_cast<int>(error.exit_code());
}

// Parsing runs the subcommand.
ExitCode run(CLI::App& app, const std::vector<std::string>& words) {
  refuse_empty_values(app, words);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them from the back
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

// The exit code of a finished command. A text ends the process at once: LibTorch's destructors take 40 ms.
int done(ExitCode code, int argc, char** argv) {
  if (!asks_for_text(argc, argv)) return static_cast<int>(code);
  std::fflush(nullptr);
  std::_Exit(static_cast<int>(code));
}

// Opens /dev/null for closed standard streams. Otherwise the next file to be opened would take the number of
// standard output, and results would go into it.
void occupy_standard_streams() {
  int fd = 0;
  while ((fd = ::open("/dev/null", O_RDONLY)) >= 0 && fd <= STDERR_FILENO) continue;
  if (fd >= 0) ::close(fd);
}

}  // namespace

int run_command_line(int argc, char** argv) {
  leave_cores_to_replicas();
  occupy_standard_streams();
  // With the signals ignored, a failed write is an error of one file, and the other files are kept.
  const auto on_broken_pipe = std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  const auto line = split_command_line(argc, argv);
  const auto app = build_cli(line.launched);
  try {
    return done(run(*app, line.words), argc, argv);
  } catch (const ReaderGoneError&) {
    std::signal(SIGPIPE, on_broken_pipe);
    std::raise(SIGPIPE);  // the usual end of a program whose output nobody reads
    return report(*app, as_error(std::current_exception()));
  } catch (const ProcessError& error) {
    const int code = report(*app, error);
    std::fflush(nullptr);
    std::_Exit(code);
  } catch (const std::exception&) {
    return report(*app, as_error(std::current_exception()));
  }
}

}  // namespace lockstep
