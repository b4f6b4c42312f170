// In place of the CUDA kernel: adds the numbers on the CPU, queued on a fake GPU's stream.
#include <lockstep/parallel/training/number_sums.h>

#include <cmath>

#include <lockstep/tests/support/fake_gpu/fake_stream.h>

namespace lockstep {

void add_numbers(const NumberSums& all, CUstream_st* stream) {
  launch(*reinterpret_cast<testing::FakeStream*>(stream), [all] {
    for (int i = 0; i < all.count; ++i) {
      const auto& [at, type] = all.numbers[i];
      double value = 0;
      if (type == NumberType::kFloat) value = *static_cast<const float*>(at);
      if (type == NumberType::kDouble) value = *static_cast<const double*>(at);
      if (type == NumberType::kInt64) value = static_cast<double>(*static_cast<const int64_t*>(at));
      all.sums[i] += value;
      if (i == 0 && !std::isfinite(value)) *all.first_bad = std::fmin(*all.first_bad, *all.step);
    }
  });
}

}  // namespace lockstep
