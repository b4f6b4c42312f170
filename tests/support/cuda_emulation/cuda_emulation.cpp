#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <fmt/format.h>

namespace lockstep::testing {
namespace {

std::string text(const std::source_location& where) {
  return fmt::format("{}:{}", where.file_name(), where.line());
}

const char* name(Group group) { return group == Group::kBlock ? "block" : "warp"; }

}  // namespace

void check_same_barrier(Group group, const Arrival& first, const Arrival& other) {
  if (first.where.line() == other.where.line() && first.where.column() == other.where.column()) return;
  throw EmulationError(fmt::format("threads {} and {} of a {} wait at different places: {} and {}",
                                   first.thread, other.thread, name(group), text(first.where),
                                   text(other.where)));
}

void throw_missing(Group group, const Arrival& first, int arrived, int wanted) {
  throw EmulationError(fmt::format("{} of {} threads of a {} wait at {}, the others never come", arrived,
                                   wanted, name(group), text(first.where)));
}

}  // namespace lockstep::testing
