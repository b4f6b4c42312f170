// How the OpenMP threads of the program `lockstep` wait for their next loop: they spin for some microseconds,
// then sleep. By default GCC's OpenMP (libgomp) spins for milliseconds, on cores that other programs want:
// beside one busy program on two cores a step of LeNet takes twice as long as it does so. Sleeping at once
// costs a tenth on a quiet machine (docs/results.md). A setting of the user's own, OMP_WAIT_POLICY or
// GOMP_SPINCOUNT, wins.
//
// libgomp reads its environment once, when it is loaded, which is before main(). So the program starts itself
// again with the variable set, and does that before any library's constructor has run: the second start costs
// little then.
#include <sys/auxv.h>
#include <unistd.h>

#include <climits>
#include <cstring>

namespace {

constexpr char kShortSpin[] = "GOMP_SPINCOUNT=1000";

// Whether an entry of the environment, "NAME=value", sets this variable.
bool sets(const char* entry, const char* name) {
  const auto length = std::strlen(name);
  return std::strncmp(entry, name, length) == 0 && entry[length] == '=';
}

// Returns where it cannot help: the program then runs as it was started. Nothing is initialised yet, so this
// makes system calls and nothing else.
void spin_shortly(int, char** argv, char** environment) {
  if (getauxval(AT_BASE) == 0)
    return;                    // started through the dynamic loader, whose path /proc/self/exe is then
  constexpr int kMost = 4096;  // entries
  static const char* entries[kMost + 2];
  int count = 0;
  for (char** entry = environment; *entry != nullptr; ++entry) {
    if (count == kMost || sets(*entry, "OMP_WAIT_POLICY") || sets(*entry, "GOMP_SPINCOUNT")) return;
    entries[count++] = *entry;
  }
  entries[count] = kShortSpin;
  // The file's own path, not /proc/self/exe: its name is what `ps` shows.
  static char path[PATH_MAX];
  const auto length = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (length > 0) ::execve(path, argv, const_cast<char**>(entries));
}

using Initializer = void (*)(int argc, char** argv, char** environment);
[[gnu::section(".preinit_array"), gnu::used]] const Initializer kFirst = spin_shortly;

}  // namespace
