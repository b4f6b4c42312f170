#include <lockstep/parallel/optimizer/gradient_norm.h>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/support/cpu/parallel_parts.h>

namespace lockstep {
namespace {

constexpr int64_t kSlab = 4096 * kFlatBlock;  // of a GPU: its doubles take 128 MB

// In this order on every machine: eight sums, each of every eighth number.
template <class T>
double sum_of_squares(const T* values, int64_t n) {
  std::array<double, 8> sums{};
  const auto add = [&](int64_t first, size_t k) {
    const auto value = static_cast<double>(values[first + static_cast<int64_t>(k)]);
    sums[k] += value * value;
  };
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (size_t k = 0; k < 8; ++k) add(i, k);
  }
  for (size_t k = 0; i + static_cast<int64_t>(k) < n; ++k) add(i, k);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

torch::Tensor sums_on_cpu(const torch::Tensor& piece) {
  const int64_t n = piece.numel(), blocks = (n + kFlatBlock - 1) / kFlatBlock;
  auto sums = torch::empty({blocks}, torch::kFloat64);
  auto* to = sums.mutable_data_ptr<double>();
  AT_DISPATCH_FLOATING_TYPES(piece.scalar_type(), "block_sums", [&] {
    const auto* from = piece.const_data_ptr<scalar_t>();
    parallel_ranges(blocks, at::get_num_threads(), [&](int64_t begin, int64_t end, int64_t) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t first = b * kFlatBlock;
        to[b] = sum_of_squares(from + first, std::min(kFlatBlock, n - first));
      }
    });
  });
  return sums;
}

// Appends to `sums`. torch's kernels convert all that they add to doubles first.
void add_sums_on_gpu(const torch::Tensor& piece, std::vector<torch::Tensor>& sums) {
  const int64_t n = piece.numel();
  for (int64_t begin = 0; begin < n; begin += kSlab) {
    const int64_t size = std::min(kSlab, n - begin), whole = size / kFlatBlock * kFlatBlock;
    const auto squares = piece.narrow(0, begin, size).to(torch::kFloat64, false, /*copy=*/true).square_();
    if (whole > 0) sums.push_back(squares.narrow(0, 0, whole).view({-1, kFlatBlock}).sum(1));
    if (whole < size) sums.push_back(squares.narrow(0, whole, size - whole).sum().view({1}));
  }
}

// Blocks that a bound between two buckets cuts, ascending. Their elements may have several owners.
std::vector<int64_t> cut_blocks(const BucketParts& parts) {
  std::vector<int64_t> cut;
  for (size_t b = 1; b < parts.count(); ++b) {
    const int64_t begin = parts.all_of(b).begin, block = begin / kFlatBlock;
    if (begin % kFlatBlock != 0 && (cut.empty() || cut.back() != block)) cut.push_back(block);
  }
  return cut;
}

constexpr int64_t kAddedByOneThread = 1 << 15;  // torch adds so few numbers in one thread

}  // namespace

torch::Tensor block_sums(std::span<const torch::Tensor> grads) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> sums;
  for (const auto& piece : grads) {
    if (piece.device().is_cpu()) {
      sums.push_back(sums_on_cpu(piece));
    } else {
      add_sums_on_gpu(piece, sums);
    }
  }
  return sums.size() == 1 ? sums.front() : torch::cat(sums);
}

// Each number of the message is one rank's, and zero on all others: their sum is exact.
torch::Tensor block_sums_of_parts(std::span<const torch::Tensor> own, const BucketParts& parts,
                                  Endpoint& endpoint) {
  const torch::NoGradGuard no_grad;
  const int64_t n = parts.size(), blocks = (n + kFlatBlock - 1) / kFlatBlock;
  const auto cut = cut_blocks(parts);
  const auto count = static_cast<int64_t>(cut.size());
  const auto message =
      torch::zeros({blocks + count * kFlatBlock}, own.front().options().dtype(torch::kFloat64));
  const auto sums = message.narrow(0, 0, blocks);
  const auto elements = message.narrow(0, blocks, count * kFlatBlock).view({count, kFlatBlock});
  for (size_t b = 0; b < parts.count(); ++b) {
    const auto part = parts.own(b);
    const auto in_part = [&](int64_t begin, int64_t end) {
      return own[b].slice(0, begin - part.begin, end - part.begin);
    };
    const int64_t first = (part.begin + kFlatBlock - 1) / kFlatBlock;
    const int64_t behind = part.end == n ? blocks : part.end / kFlatBlock;
    if (first < behind) {
      const torch::Tensor whole[] = {in_part(first * kFlatBlock, std::min(n, behind * kFlatBlock))};
      sums.slice(0, first, behind).copy_(block_sums(whole));
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t begin = cut[static_cast<size_t>(i)] * kFlatBlock;
      const auto place = overlap(part, {begin, begin + kFlatBlock});
      if (place.empty()) continue;
      elements[i].slice(0, place.begin - begin, place.end - begin).copy_(in_part(place.begin, place.end));
    }
  }
  endpoint.allreduce_sum(message).wait();
  for (int64_t i = 0; i < count; ++i) {
    const torch::Tensor block[] = {elements[i]};
    sums[cut[static_cast<size_t>(i)]].copy_(block_sums(block)[0]);
  }
  return sums;
}

torch::Tensor clip_scale(const torch::Tensor& sums, double max_norm) {
  const torch::NoGradGuard no_grad;
  auto left = sums;
  while (left.numel() > kAddedByOneThread) {
    std::vector<torch::Tensor> added;
    for (const auto& some : left.split(kAddedByOneThread)) added.push_back(some.sum());
    left = torch::stack(added);
  }
  // clip_grad_norm_ adds 1e-6, too.
  return (max_norm / (left.sum().sqrt() + 1e-6)).clamp_max(1);
}

}  // namespace lockstep
