#include <lockstep/parallel/collectives/compressed_sum.h>

namespace lockstep {
namespace {

// Numbers in each process's part.
int64_t part_of(int64_t n, int processes) { return (n + processes - 1) / processes; }

}  // namespace

torch::ScalarType sent_type(Compress compress) {
  return compress == Compress::kFp16 ? torch::kHalf : torch::kBFloat16;
}

int64_t compressed_sum_bytes(int64_t n, int processes) {
  const int64_t part = part_of(n, processes);
  const int64_t sent_and_received = 2 * processes * part * static_cast<int64_t>(sizeof(int16_t));
  return sent_and_received + part * static_cast<int64_t>(sizeof(float));  // in which a part is added
}

CompressedSum::CompressedSum(Channel& channel, int processes, Compress compress, const torch::Tensor& own)
    : channel_(&channel), n_(own.numel()) {
  const int64_t part = part_of(n_, processes);
  const auto options = torch::TensorOptions(sent_type(compress));
  parts_ = torch::empty({processes, part}, options.pinned_memory(!own.is_cpu()));
  received_ = torch::empty({processes, part}, options);
  const auto numbers = parts_.view({-1});
  numbers.narrow(0, 0, n_).copy_(own);  // a GPU rounds before it sends
  numbers.narrow(0, n_, numbers.numel() - n_).zero_();
  done_ = channel_->all_to_all(parts_, received_);
}

void CompressedSum::send_total() {
  done_.get();
  const auto total = received_[0].to(torch::kFloat);  // (part)
  for (int64_t process = 1; process < received_.size(0); ++process) total.add_(received_[process]);
  received_[0].copy_(total);
  done_ = channel_->all_gather(received_[0], parts_);
}

torch::Tensor CompressedSum::total() {
  done_.get();
  return parts_.view({-1}).narrow(0, 0, n_);
}

}  // namespace lockstep
