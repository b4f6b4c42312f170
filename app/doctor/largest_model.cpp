#include <lockstep/app/doctor/largest_model.h>

#include <fmt/format.h>

#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

constexpr int64_t kWholeBytes = 8;   // per parameter: a weight and its gradient
constexpr int64_t kSharedBytes = 8;  // AdamW's moments

std::string millions_text(int64_t number) { return with_commas(number / 1'000'000) + " million"; }

}  // namespace

std::string largest_model_text(int64_t bytes, int replicas) {
  auto text =
      fmt::format("room for AdamW and {} parameters", millions_text(bytes / (kWholeBytes + kSharedBytes)));
  if (replicas == 1) return text;
  const auto shared = replicas * bytes / (replicas * kWholeBytes + kSharedBytes);
  return text + fmt::format(" on each of {}, {} with --shard optimizer", counted(replicas, "replica"),
                            millions_text(shared));
}

}  // namespace lockstep
