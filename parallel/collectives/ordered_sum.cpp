#include <lockstep/parallel/collectives/ordered_sum.h>

namespace lockstep {
namespace {

// Numbers in each process's part.
int64_t part_of(int64_t n, int processes) { return (n + processes - 1) / processes; }

}  // namespace

torch::ScalarType sent_type(Compress compress) {
  return compress == Compress::kFp16 ? torch::kHalf : torch::kBFloat16;
}

int64_t ordered_sum_bytes(int64_t n, int processes, torch::ScalarType sent) {
  const int64_t part = part_of(n, processes);
  const int64_t sent_and_received = 2 * processes * part * static_cast<int64_t>(c10::elementSize(sent));
  if (c10::elementSize(sent) > 2) return sent_and_received;  // a part is added where it was received
  return sent_and_received + part * static_cast<int64_t>(sizeof(float));
}

OrderedSum::OrderedSum(Channel& channel, int processes, torch::ScalarType sent, const torch::Tensor& own)
    : channel_(&channel), n_(own.numel()), added_(own.scalar_type()) {
  const int64_t part = part_of(n_, processes);
  const auto options = torch::TensorOptions(sent);
  parts_ = torch::empty({processes, part}, options.pinned_memory(!own.is_cpu()));
  received_ = torch::empty({processes, part}, options);
  const auto numbers = parts_.view({-1});
  numbers.narrow(0, 0, n_).copy_(own);  // a GPU rounds before it sends
  numbers.narrow(0, n_, numbers.numel() - n_).zero_();
  done_ = channel_->all_to_all(parts_, received_);
}

void OrderedSum::send_total() {
  done_.get();
  const auto total = received_[0].to(added_);  // (part); received_[0] itself if it is of that type
  for (int64_t process = 1; process < received_.size(0); ++process) total.add_(received_[process]);
  if (total.scalar_type() != received_.scalar_type()) received_[0].copy_(total);
  done_ = channel_->all_gather(received_[0], parts_);
}

torch::Tensor OrderedSum::total() {
  done_.get();
  return parts_.view({-1}).narrow(0, 0, n_);
}

}  // namespace lockstep
