// Makes the OpenMP threads of the program `lockstep` spin for some microseconds and then sleep while they
// wait for their next loop. By default GCC's OpenMP (libgomp) spins for milliseconds, on cores that other
// programs want: beside one busy program on two cores a step of LeNet then takes twice as long. Sleeping at
// once makes a step a tenth slower on a quiet machine (docs/results.md). OMP_WAIT_POLICY or GOMP_SPINCOUNT in
// the environment overrides this.
//
// libgomp reads its environment once, when it is loaded, before main(). So the program sets the variable and
// starts itself again, before any library's constructor has run, so that the second start costs little.
#include <sys/auxv.h>
#include <unistd.h>

#include <climits>
#include <cstring>

#include <lockstep/support/process/text_command.h>

namespace {

constexpr char kShortSpin[] = "GOMP_SPINCOUNT=1000";

// Returns true if an environment entry, "NAME=value", sets this variable.
bool sets(const char* entry, const char* name) {
  const auto length = std::strlen(name);
  return std::strncmp(entry, name, length) == 0 && entry[length] == '=';
}

// Returns if it cannot start the program again, which then runs as it is. Nothing is initialised yet, so this
// only makes system calls.
void spin_shortly(int argc, char** argv, char** environment) {
  if (lockstep::asks_for_text(argc, argv)) return;  // has no loops
  if (getauxval(AT_BASE) == 0) return;  // started through the dynamic loader: /proc/self/exe is the loader
  constexpr int kMaxEntries = 4096;
  static const char* entries[kMaxEntries + 2];
  int count = 0;
  for (char** entry = environment; *entry != nullptr; ++entry) {
    if (count == kMaxEntries || sets(*entry, "OMP_WAIT_POLICY") || sets(*entry, "GOMP_SPINCOUNT")) return;
    entries[count++] = *entry;
  }
  entries[count] = kShortSpin;
  // The program's path, not /proc/self/exe, because `ps` shows this name.
  static char path[PATH_MAX];
  const auto length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (length > 0) ::execve(path, argv, const_cast<char**>(entries));
}

using Initializer = void (*)(int argc, char** argv, char** environment);
[[gnu::section(".preinit_array"), gnu::used]] const Initializer kFirst = spin_shortly;

}  // namespace
