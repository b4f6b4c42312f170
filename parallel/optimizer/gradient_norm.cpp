#include <lockstep/parallel/optimizer/gradient_norm.h>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <vector>

#include <lockstep/support/cpu/parallel_parts.h>

namespace lockstep {
namespace {

constexpr int64_t kSlab = 256 * kNormBlock;  // of a GPU: its doubles take 128 MB

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
  const int64_t n = piece.numel(), blocks = (n + kNormBlock - 1) / kNormBlock;
  auto sums = torch::empty({blocks}, torch::kFloat64);
  auto* to = sums.mutable_data_ptr<double>();
  AT_DISPATCH_FLOATING_TYPES(piece.scalar_type(), "block_sums", [&] {
    const auto* from = piece.const_data_ptr<scalar_t>();
    parallel_ranges(blocks, at::get_num_threads(), [&](int64_t begin, int64_t end, int64_t) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t first = b * kNormBlock;
        to[b] = sum_of_squares(from + first, std::min(kNormBlock, n - first));
      }
    });
  });
  return sums;
}

// Appends to `sums`. torch's kernels convert all that they add to doubles first.
void add_sums_on_gpu(const torch::Tensor& piece, std::vector<torch::Tensor>& sums) {
  const int64_t n = piece.numel();
  for (int64_t begin = 0; begin < n; begin += kSlab) {
    const int64_t size = std::min(kSlab, n - begin), whole = size / kNormBlock * kNormBlock;
    const auto squares = piece.narrow(0, begin, size).to(torch::kFloat64, false, /*copy=*/true).square_();
    if (whole > 0) sums.push_back(squares.narrow(0, 0, whole).view({-1, kNormBlock}).sum(1));
    if (whole < size) sums.push_back(squares.narrow(0, whole, size - whole).sum().view({1}));
  }
}

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

torch::Tensor clip_scale(const torch::Tensor& sums, double max_norm) {
  const torch::NoGradGuard no_grad;
  // torch adds so few numbers, one per block, in one thread. clip_grad_norm_ adds 1e-6, too.
  return (max_norm / (sums.sum().sqrt() + 1e-6)).clamp_max(1);
}

}  // namespace lockstep
