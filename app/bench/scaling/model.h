// How long a step would take on n devices, from how long it takes on one: the model behind `--predict`.
//
//   compute(b) = fixed + per_row b                      fitted to steps of B, B/2 and B/4 rows on one device;
//   on
//                                                       a processor while other cores take the same
//   sum(S, n)  = alpha(n) + 2 (n-1)/n S / beta(n)       S bytes of gradients; each device moves 2 (n-1)/n S
//   step       = compute(rows a device) + exposed       strong: B/n rows a device; weak: B
//   exposed    = sum(S, n)                              where devices compute and sum with the same cores
//              = max(sum(last bucket), sum(S, n) - 2/3 compute)   where sums run beside backward, which is
//                                                       two thirds of a step's arithmetic
// (The alpha-beta model: R. Hockney, "The communication challenge for MPP", 1994; the factor 2 (n-1)/n:
// nccl-tests, doc/PERFORMANCE.md.)
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

// Between n devices. Where two figures are given they are those of 2 and of 8 devices, and others follow the
// logarithm of n; one device sends nothing.
struct Link {
  std::string name;
  double alpha_2 = 0, alpha_8 = 0;  // seconds a sum takes however small it is
  double beta_2 = 0, beta_8 = 0;    // bytes a second and device
  bool overlaps = true;             // sums run beside backward, not on the cores that compute

  double seconds(double bytes, int n) const;
};

// "nvlink4", "pcie5", or "alpha,beta": microseconds and GB/s, the same for every n. Throws UsageError.
Link parse_link(const std::string& text);

// Of what was measured between n devices: a sum of next to nothing and one of `bytes`.
Link measured_link(double small_seconds, double large_seconds, double bytes, int n, bool overlaps);

struct ComputeModel {
  double fixed = 0;    // seconds
  double per_row = 0;  // seconds

  double seconds(double rows) const { return fixed + per_row * rows; }
};

// The line nearest to the measurements by least squares of relative errors, neither part below zero. At least
// two of each, of different rows.
ComputeModel fit_compute(std::span<const double> rows, std::span<const double> seconds);

struct Prediction {
  double compute = 0;  // seconds
  double exposed = 0;  // seconds of a step in which a device only waits for the sum
  double step() const { return compute + exposed; }
};

// rows: of each device. gradient_bytes: S.
Prediction predict_step(const ComputeModel& compute, const Link& link, double rows, double gradient_bytes,
                        int n);

}  // namespace lockstep
