#include <lockstep/parallel/replicas/told_batches.h>

#include <fmt/format.h>

#include <bit>
#include <utility>

#include <lockstep/parallel/collectives/agree.h>

namespace lockstep {

torch::Tensor ToldBatch::to_tensor() const {
  return torch::tensor({kind, number, rows, std::bit_cast<int64_t>(digest)});
}

torch::Tensor ToldBatches::take() {
  const auto told = std::exchange(told_, {});
  return told.empty() ? torch::Tensor() : torch::stack(told).cpu();
}

void require_same_batches(const torch::Tensor& all) {
  for (int64_t i = 0; i < all.size(0); ++i) {
    std::vector<Lines> lines;
    for (int64_t rank = 0; rank < all.size(1); ++rank) {
      const auto* numbers = all[i][rank].const_data_ptr<int64_t>();
      lines.push_back(
          {fmt::format("{} {}", numbers[0] == ToldBatch::kTraining ? "step" : "evaluation", numbers[1]),
           fmt::format("{} rows", numbers[2]),
           fmt::format("rows or labels with the digest {:016x}", std::bit_cast<uint64_t>(numbers[3]))});
    }
    require_same(lines, "rank", "batches of the processes",
                 "give step() the whole batch in every process: it deals the rows. Draw their order as "
                 "batch_order() does, from the same seed everywhere");
  }
}

}  // namespace lockstep
