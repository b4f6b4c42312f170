#include <lockstep/parallel/threads/openmp_threads.h>

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <latch>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <lockstep/support/counted.h>
#include <lockstep/support/cpu/parallel_parts.h>
#include <lockstep/support/error.h>

// From <omp.h>, which clang-tidy has only where LLVM's OpenMP is installed.
extern "C" {
int omp_get_thread_limit();
int omp_get_max_active_levels();
void omp_set_max_active_levels(int levels);
void omp_set_dynamic(int on);
}

namespace lockstep {
namespace {

// A variable with a stack's size, as GCC's OpenMP reads it.
struct StackVariable {
  std::string text;  // "OMP_STACKSIZE=16k"
  size_t bytes;
};

// "16k", "2 M"; without a letter in kibibytes. Empty: OpenMP ignores such a value.
std::optional<size_t> stack_bytes(const std::string& value) {
  char* end = nullptr;
  const auto number = std::strtoull(value.c_str(), &end, 10);
  std::string_view unit = end;
  if (end == value.c_str()) return std::nullopt;
  while (!unit.empty() && std::isspace(static_cast<unsigned char>(unit.front()))) unit.remove_prefix(1);
  while (!unit.empty() && std::isspace(static_cast<unsigned char>(unit.back()))) unit.remove_suffix(1);
  constexpr std::string_view kUnits = "bkmg";
  const auto letter = unit.empty() ? 'k' : static_cast<char>(std::tolower(unit.front()));
  const auto power = kUnits.find(letter);
  if (unit.size() > 1 || power == std::string_view::npos) return std::nullopt;
  const auto shift = 10 * power;
  if (number > SIZE_MAX >> shift) return std::nullopt;
  return number << shift;
}

std::optional<StackVariable> stack_variable() {
  for (const char* name : {"OMP_STACKSIZE", "GOMP_STACKSIZE"}) {
    const char* value = std::getenv(name);
    if (!value) continue;
    if (const auto bytes = stack_bytes(value))
      return StackVariable{fmt::format("{}={}", name, value), *bytes};
  }
  return std::nullopt;
}

void* wait_for(void* latch) {
  static_cast<std::latch*>(latch)->wait();
  return nullptr;
}

// Starts `count` threads at the same time, and ends them. Returns the error's number; 0: all have started.
int try_threads(int count, const pthread_attr_t& attributes) {
  std::latch tried(1);
  std::vector<pthread_t> threads;
  int error = 0;
  for (int i = 0; i < count && error == 0; ++i) {
    pthread_t thread{};
    error = pthread_create(&thread, &attributes, wait_for, &tried);
    if (error == 0) threads.push_back(thread);
  }
  tried.count_down();
  for (const auto thread : threads) pthread_join(thread, nullptr);
  return error;
}

}  // namespace

int granted_threads(int wanted) { return std::min(wanted, omp_get_thread_limit()); }

void check_replica_threads(int threads) {
  if (threads < 1) {
    throw UsageError(fmt::format("a replica cannot have {} threads", threads), "it needs at least 1");
  }
  const int granted = granted_threads(threads);
  if (threads == granted) return;
  throw UsageError(
      fmt::format("a replica cannot have {} threads: OMP_THREAD_LIMIT grants it {}", threads, granted),
      fmt::format("give it {}, or unset OMP_THREAD_LIMIT", granted));
}

void use_all_threads() {
  omp_set_dynamic(0);
  if (omp_get_max_active_levels() < 1) omp_set_max_active_levels(1);
}

void check_threads_started(int threads) {
  std::vector<std::thread::id> of_part(static_cast<size_t>(threads));
  parallel_parts(threads,
                 [&](int64_t part) { of_part[static_cast<size_t>(part)] = std::this_thread::get_id(); });
  std::sort(of_part.begin(), of_part.end());
  const auto started = std::unique(of_part.begin(), of_part.end()) - of_part.begin();
  if (started >= threads) return;
  throw UsageError(fmt::format("a replica has {}, but OpenMP starts {}", counted(threads, "thread"), started),
                   "unset the variables of OpenMP: OMP_..., GOMP_... and KMP_...");
}

void check_openmp_stacks(int count) {
  const auto variable = stack_variable();
  if (!variable || count < 1) return;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  // OpenMP, too, takes the usual size where the system refuses this one.
  pthread_attr_setstacksize(&attributes, variable->bytes);
  const int error = try_threads(count, attributes);
  pthread_attr_destroy(&attributes);
  if (error == 0) return;
  throw UsageError(fmt::format("OpenMP cannot start {} with {}: {}", counted(count, "thread"), variable->text,
                               std::generic_category().message(error)),
                   "unset the variable, or set it to 2M");
}

}  // namespace lockstep
