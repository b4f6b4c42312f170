#include <lockstep/parallel/collectives/compressed_sum.h>

namespace lockstep {

torch::ScalarType sent_type(Compress compress) {
  return compress == Compress::kFp16 ? torch::kHalf : torch::kBFloat16;
}

CompressedSum::CompressedSum(Channel& channel, int processes, Compress compress, const torch::Tensor& own)
    : channel_(&channel), n_(own.numel()) {
  const int64_t part = (n_ + processes - 1) / processes;
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
