#include <lockstep/app/bench/scaling/model.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

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

// A reduce-scatter and an all-gather are the two halves of an allreduce.
double sum_share(const UpdateModel& update) { return update.owners > 1 ? .5 : 1; }

// The fetches of the buckets, in seconds each.
struct Fetches {
  std::vector<double> seconds = {};
  bool overlap = true;  // with the update
  double least = 0;     // that is exposed
};

// Returns how long the fetches go on after an update of so many seconds.
double exposed_fetches(const Fetches& fetches, double update, std::span<const double> bytes) {
  const double all_bytes = std::reduce(bytes.begin(), bytes.end());
  double updated = 0, fetched = 0;  // until when
  for (size_t i = 0; i < bytes.size(); ++i) {
    updated += update * bytes[i] / all_bytes;
    fetched = std::max(updated, fetched) + fetches.seconds[i];
  }
  return fetched - update;
}

// Adds what follows the sums. all: seconds of a step with the whole update.
void add_update(Prediction& step, double all, const UpdateModel& update, const Fetches& fetches) {
  step.update = update.seconds / update.owners;
  step.compute = all;
  if (update.owners == 1) return;
  step.compute = std::max(0., all - update.seconds) + step.update;
  step.fetches = std::reduce(fetches.seconds.begin(), fetches.seconds.end());
  const double left = fetches.overlap ? exposed_fetches(fetches, step.update, update.bytes) : step.fetches;
  step.exposed += std::max(left, fetches.least);
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
                        int n, const UpdateModel& update) {
  const double all = compute.seconds(rows);
  if (n < 2) return {.compute = all, .update = update.seconds};
  Prediction result{.sums = sum_share(update) * link.seconds(gradient_bytes, n)};
  result.exposed = result.sums;
  if (link.overlaps) {
    const double last = sum_share(update) * link.seconds(std::min(gradient_bytes, kLastBucket), n);
    result.exposed = std::max(last, result.sums - kBackwardShare * all);
  }
  const double bytes = std::reduce(update.bytes.begin(), update.bytes.end());
  Fetches fetches{.overlap = link.overlaps};
  for (const double bucket : update.bytes) {
    fetches.seconds.push_back(link.seconds(gradient_bytes, n) / 2 * bucket / bytes);
  }
  add_update(result, all, update, fetches);
  return result;
}

Prediction predict_process_step(const ComputeModel& compute, const BucketTimes& buckets, const Link& link,
                                const Link* busy, double rows, int n, const UpdateModel& update) {
  const double all = compute.seconds(rows);
  if (n < 2) return {.compute = all, .update = update.seconds};
  Prediction result;
  double done = 0, busy_sums = 0;
  Fetches fetches{.overlap = link.overlaps};
  for (size_t i = 0; i < buckets.bytes.size(); ++i) {
    const double whole = link.seconds(buckets.bytes[i], n), sum = sum_share(update) * whole;
    done = std::max(done, buckets.ready[i] * all) + sum;
    result.sums += sum;
    fetches.seconds.push_back(whole / 2);
    if (busy) busy_sums += sum_share(update) * busy->seconds(buckets.bytes[i], n);
  }
  const double late = std::max(0., done - buckets.computed * all);
  result.exposed = std::max(link.overlaps ? late : result.sums, busy_sums);
  fetches.least = busy_sums;  // the other half
  add_update(result, all, update, fetches);
  return result;
}

}  // namespace lockstep
