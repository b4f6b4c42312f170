#include <lockstep/parallel/training/evaluated_blocks.h>

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include <lockstep/parallel/replica_random.h>
#include <lockstep/parallel/training/model_errors.h>
#include <lockstep/support/row_numbers.h>

namespace lockstep {
namespace {

// A model that draws numbers here gets the same ones for a block on any replica, every time.
constexpr uint64_t kEvaluationSeed = 0;

// "0 to 255"; of rows that do not follow each other "900, ..., 3".
std::string text_of(std::span<const int64_t> rows) {
  const auto jump = std::ranges::adjacent_find(rows, [](int64_t a, int64_t b) { return b != a + 1; });
  const bool follow = jump == rows.end();
  return fmt::format("{}{}{}", rows.front(), follow ? " to " : ", ..., ", rows.back());
}

}  // namespace

int64_t Blocks::rows_of(const Communicator& communicator) const {
  int64_t sum = 0;
  for (int64_t block = 0; block < count(); ++block) {
    const auto local = block % world - communicator.first_rank();
    if (local >= 0 && local < communicator.local_size()) sum += size(block);
  }
  return sum;
}

EvaluatedBlocks::EvaluatedBlocks(const Model& model, const BatchSource& source, Precision precision,
                                 const Endpoint& endpoint, const char* what)
    : mode_(*model.module),
      source_(source),
      precision_(precision),
      device_(endpoint.device()),
      where_(fmt::format("rank {} ({}): in the {} of rows", endpoint.rank(), device_.str(), what)),
      size_(source.size()),
      spec_(std::make_shared<const BatchSpec>(source.spec())),
      into_(spec_) {}

torch::Tensor EvaluatedBlocks::compute(int64_t block, std::span<const int64_t> numbers,
                                       const Function& function) {
  upload_rows(numbers, size_, device_, on_device_);
  const ReplicaRandom random(kEvaluationSeed, block, 0);
  place_ = where_ + " " + text_of(numbers);
  try {
    source_.gather(on_device_, /*epoch=*/0, into_);
    require_rows(into_, *spec_, on_device_.numel(), [this] { return place_; });
    const AutocastGuard autocast(precision_, device_);
    return function(into_, in_precision(into_, precision_));
  } catch (const std::exception&) {
    rethrow_at(place_);
  }
}

}  // namespace lockstep
