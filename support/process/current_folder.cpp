// Ends the program with an error where its current folder has been removed: oneMKL, which torch loads, would
// end it before main() with a message of its own. A text such as --version needs no folder.
#include <unistd.h>

#include <cerrno>
#include <climits>

#include <lockstep/support/error.h>
#include <lockstep/support/process/text_command.h>

namespace {

constexpr char kError[] =
    "lockstep: error: the current folder has been removed\nhint: change to another folder, or make it "
    "again\n";

// Nothing is initialised yet, so this only makes system calls.
void need_current_folder(int argc, char** argv, char**) {
  static char path[PATH_MAX];
  if (::getcwd(path, sizeof path) != nullptr || errno != ENOENT) return;
  if (lockstep::asks_for_text(argc, argv) && ::chdir("/") == 0) return;
  (void)!::write(STDERR_FILENO, kError, sizeof kError - 1);
  ::_exit(static_cast<int>(lockstep::ExitCode::kUsage));
}

using Initializer = void (*)(int argc, char** argv, char** environment);
[[gnu::section(".preinit_array"), gnu::used]] const Initializer kNeedFolder = need_current_folder;

}  // namespace
