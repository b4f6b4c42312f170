#include <lockstep/app/bench/scaling/model.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr double kMicro = 1e-6;
constexpr double kGiga = 1e9;
constexpr double kLastBucket = 1 << 20;     // bytes at most, see GradientSyncOptions
constexpr double kBackwardShare = 2.0 / 3;  // backward's share of the arithmetic

// Typical figures, not measured by lockstep: NCCL on H100 systems, sums of small and of large tensors between
// 2 and 8 devices.
const Link kNvlink4{.name = "nvlink4", .alpha_2 = 12e-6, .alpha_8 = 25e-6, .beta_2 = 300e9, .beta_8 = 340e9};
const Link kPcie5{.name = "pcie5", .alpha_2 = 20e-6, .alpha_8 = 45e-6, .beta_2 = 40e9, .beta_8 = 30e9};

// Interpolates between the values at 2 and at 8 devices along log2 n.
double between(double at_2, double at_8, int n) { return at_2 + (at_8 - at_2) * (std::log2(n) - 1) / 2; }

// Reads the whole text as a number and multiplies it by `unit`. Returns false unless the result is a normal
// number above zero: 1e308 GB/s would overflow.
bool read_positive(const std::string& text, double unit, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  value *= unit;
  return error == std::errc() && end == text.data() + text.size() && std::isnormal(value) && value > 0;
}

}  // namespace

double Link::seconds(double bytes, int n) const {
  if (n < 2) return 0;
  // Beyond 8 devices beta stays constant; extrapolated, a falling beta would reach zero.
  const double beta = between(beta_2, beta_8, std::min(n, 8));
  return between(alpha_2, alpha_8, n) + 2.0 * (n - 1) / n * bytes / beta;
}

Link parse_link(const std::string& text) {
  if (text == kNvlink4.name) return kNvlink4;
  if (text == kPcie5.name) return kPcie5;
  const auto comma = text.find(',');
  double alpha = 0, beta = 0;
  const bool both = comma != std::string::npos && read_positive(text.substr(0, comma), kMicro, alpha) &&
                    read_positive(text.substr(comma + 1), kGiga, beta);
  if (!both) {
    throw UsageError(fmt::format("--link must be nvlink4, pcie5 or alpha,beta, got {}", in_quotes(text)),
                     "alpha in microseconds and beta in GB/s, such as --link 12,300");
  }
  return {.name = text, .alpha_2 = alpha, .alpha_8 = alpha, .beta_2 = beta, .beta_8 = beta};
}

Link measured_link(double small_seconds, double large_seconds, double bytes, int n, bool overlaps) {
  const double moved = 2.0 * (n - 1) / n * bytes;
  // If noise hides the cost of the bytes, they count as a tenth of the whole.
  const double beta = moved / std::max(large_seconds - small_seconds, large_seconds / 10);
  const double alpha = std::min(small_seconds, large_seconds);
  return {.name = fmt::format("measured between {} replicas", n),
          .alpha_2 = alpha,
          .alpha_8 = alpha,
          .beta_2 = beta,
          .beta_8 = beta,
          .overlaps = overlaps};
}

ComputeModel fit_compute(std::span<const double> rows, std::span<const double> seconds) {
  // Weighted by 1 / seconds^2.
  double w = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double weight = 1 / (seconds[i] * seconds[i]);
    w += weight;
    x += weight * rows[i];
    y += weight * seconds[i];
    xx += weight * rows[i] * rows[i];
    xy += weight * rows[i] * seconds[i];
  }
  const double determinant = w * xx - x * x;
  if (rows.size() != seconds.size() || rows.size() < 2 || determinant <= 0) {
    throw UsageError(fmt::format("a line needs two different numbers of rows with their times, got {} and {}",
                                 rows.size(), seconds.size()));
  }
  const double per_row = (w * xy - x * y) / determinant;
  const double fixed = (y - per_row * x) / w;
  if (fixed < 0) return {.fixed = 0, .per_row = xy / xx};
  if (per_row < 0) return {.fixed = y / w, .per_row = 0};
  return {.fixed = fixed, .per_row = per_row};
}

Prediction predict_step(const ComputeModel& compute, const Link& link, double rows, double gradient_bytes,
                        int n) {
  Prediction result{.compute = compute.seconds(rows)};
  result.exposed = link.seconds(gradient_bytes, n);
  if (link.overlaps && n > 1) {
    const double last = link.seconds(std::min(gradient_bytes, kLastBucket), n);
    result.exposed = std::max(last, result.exposed - kBackwardShare * result.compute);
  }
  return result;
}

Prediction predict_process_step(const ComputeModel& compute, const BucketTimes& buckets, const Link& link,
                                const Link* busy, double rows, int n) {
  Prediction result{.compute = compute.seconds(rows)};
  if (n < 2) return result;
  double done = 0, sums = 0, busy_sums = 0;
  for (size_t i = 0; i < buckets.bytes.size(); ++i) {
    const double sum = link.seconds(buckets.bytes[i], n);
    done = std::max(done, buckets.ready[i] * result.compute) + sum;
    sums += sum;
    if (busy) busy_sums += busy->seconds(buckets.bytes[i], n);
  }
  const double late = std::max(0., done - buckets.computed * result.compute);
  result.exposed = std::max(link.overlaps ? late : sums, busy_sums);
  return result;
}

}  // namespace lockstep
