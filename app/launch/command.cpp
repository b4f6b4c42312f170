#include <lockstep/app/launch/command.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <lockstep/app/cli/launched_words.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/errno_text.h>
#include <lockstep/support/printable.h>
#include <lockstep/support/suggest.h>

namespace lockstep {
namespace {

// `ps` and `top` show this path's name. /proc/self/exe works when the file has been replaced meanwhile.
std::string path_of_this_program() {
  const std::filesystem::path link = "/proc/self/exe";
  std::error_code error;
  const auto path = std::filesystem::read_symlink(link, error);
  return !error && std::filesystem::exists(path, error) ? path.string() : link.string();
}

void need_program(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    throw UsageError(fmt::format("no program {}: {}", in_quotes(path), error.message()), "check its path");
  }
  if (std::filesystem::is_directory(status)) {
    throw UsageError(fmt::format("{} is a folder, not a program", in_quotes(path)), "name a file in it");
  }
  if (::access(path.c_str(), X_OK) != 0) {
    throw UsageError(fmt::format("cannot run {}: {}", in_quotes(path), errno_text(errno)),
                     "make it executable with chmod +x");
  }
}

UsageError unknown_launched(const std::string& word, std::span<const std::string> subcommands) {
  const auto what = fmt::format("unknown subcommand {} after --", in_quotes(word));
  std::error_code ignored;
  if (!word.empty() && std::filesystem::is_regular_file(word, ignored)) {
    return UsageError(what, fmt::format("write './{}' for the program of this folder", printable(word)));
  }
  const auto near = nearest(word, subcommands);
  return UsageError(what, near ? fmt::format("did you mean '{}'?", *near)
                               : "name a subcommand of lockstep, or a program by a path with a slash");
}

}  // namespace

LaunchCommand launch_command(const std::vector<std::string>& words,
                             std::span<const std::string> subcommands) {
  if (words.empty()) {
    throw UsageError("nothing to launch",
                     "write what the processes run after --: 'lockstep launch -n 2 -- train'");
  }
  const auto& name = words.front();
  if (name.find('/') != std::string::npos) {
    need_program(name);
    return {.path = name, .words = words};
  }
  if (name == kLaunch) {
    throw UsageError("launch cannot launch itself", "name what its processes run, such as train");
  }
  if (std::ranges::find(subcommands, name) == subcommands.end()) throw unknown_launched(name, subcommands);
  LaunchCommand command{.path = path_of_this_program(), .words = {"lockstep"}};
  command.words.insert(command.words.end(), words.begin(), words.end());
  return command;
}

}  // namespace lockstep
