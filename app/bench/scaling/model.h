// The model of `--predict`: the time of a step on n devices, from measurements on one.
//
//   compute(b) = fixed + per_row b                      fitted to steps of B, B/2 and B/4 rows on one device;
//                                                       on a CPU with a background load
//   sum(S, n)  = alpha(n) + 2 (n-1)/n S / beta(n)       S bytes of gradients; each device moves 2 (n-1)/n S
//   step       = compute(rows per device) + exposed     strong: B/n rows per device; weak: B
//   exposed    = sum(S, n)                              if the cores that compute also sum
//              = max(sum(last bucket), sum(S, n) - 2/3 compute)   if sums run during backward, which is
//                                                       two thirds of a step's arithmetic
//
// With `--shard` a step first sums gradients to the owners of their parts, which is half of a sum. Each
// replica updates its part, and all fetch the new weights, which is the other half:
//
//   compute    = as above, with 1/replicas of the update's time
//   exposed    = as above, of sum/2, and what is left of the fetches when the update has ended: a bucket is
//                fetched while the next one is updated; all of them if the cores that compute also send
//
// It holds for eager steps. Captured steps of several GPUs post their sums after the replayed backward and
// expose the whole sum.
// (The alpha-beta model: R. Hockney, "The communication challenge for MPP", 1994; the factor 2 (n-1)/n:
// nccl-tests, doc/PERFORMANCE.md.)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// The connection between n devices. alpha(n) and beta(n) are interpolated along log n between 2 and 8
// devices. Beyond 8 replicas alpha is extrapolated and beta stays. One device sends nothing.
struct Link {
  std::string name;
  double alpha_2 = 0, alpha_8 = 0;  // seconds of a sum of no bytes
  double beta_2 = 0, beta_8 = 0;    // bytes per second and device
  bool overlaps = true;  // sums run during backward (of eager steps), not on the cores that compute

  double seconds(double bytes, int n) const;
};

// "nvlink4", "pcie5", or "alpha,beta": microseconds and GB/s, the same for every n. Throws UsageError.
Link parse_link(const std::string& text);

// Returns the link that explains two measurements between n devices: of a tiny sum and of a sum of `bytes`.
Link measured_link(double small_seconds, double large_seconds, double bytes, int n, bool overlaps);

struct ComputeModel {
  double fixed = 0;    // seconds
  double per_row = 0;  // seconds

  double seconds(double rows) const { return fixed + per_row * rows; }
};

// Fits the line by least squares of relative errors; neither part is below zero. Throws UsageError without
// two different numbers of rows.
ComputeModel fit_compute(std::span<const double> rows, std::span<const double> seconds);

// All are seconds per step.
struct Prediction {
  double compute = 0;
  double exposed = 0;  // in which a device waits for sums and for weights
  double sums = 0;     // in which sums are under way
  double update = 0;   // a part of `compute`; 0: not known
  double fetches = 0;  // in which weights are under way
  double step() const { return compute + exposed; }
};

// The update of all parameters, which the compute model includes.
struct UpdateModel {
  double seconds = 0;              // by one replica
  std::vector<double> bytes = {};  // of each bucket, in the order in which they are updated
  int owners = 1;                  // replicas that share it out; 1: each updates everything
};

// rows: per device. gradient_bytes: S.
Prediction predict_step(const ComputeModel& compute, const Link& link, double rows, double gradient_bytes,
                        int n, const UpdateModel& update = {});

// When a step sums its gradients, as shares of its time without the sums.
struct BucketTimes {
  std::vector<double> ready = {};  // when backward has filled each bucket and posts its sum, in order
  std::vector<double> bytes = {};  // of each bucket
  double computed = 1;             // when backward has ended; the update follows
  double update = 0;               // how long that takes
};

// A step on n processes, each with as many replicas as the one that was measured. One bucket is summed after
// the other, each when it is ready; what is not done when backward ends is exposed. If the cores that compute
// also sum (!link.overlaps) all sums are exposed. rows: per process. busy: the link of the processes'
// machine, where the cores that compute also sum: at least such sums are exposed; null: unknown.
Prediction predict_process_step(const ComputeModel& compute, const BucketTimes& buckets, const Link& link,
                                const Link* busy, double rows, int n, const UpdateModel& update = {});

}  // namespace lockstep
