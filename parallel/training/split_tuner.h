// Shares of a batch for unequal devices, found by timing them (`--split auto`).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

// Watches what each replica needs for its rows over the first steps, gives each a share in proportion to its
// speed, looks again, and settles when the shares no longer move. (What a step costs besides its rows makes a
// second look worth while.) Knows no clock: it is told.
class SplitTuner {
 public:
  explicit SplitTuner(int world);

  // Shares of the batch, positive, of sum 1.
  const std::vector<double>& shares() const { return shares_; }
  bool settled() const { return settled_; }

  // A step in which replica i needed seconds[i] for rows[i]. Does nothing once settled.
  void observe(std::span<const int64_t> rows, std::span<const double> seconds);

 private:
  void adjust();

  std::vector<double> shares_;
  std::vector<std::vector<double>> costs_;  // one list a replica: seconds a row in the steps of this look
  int steps_ = 0;                           // since the last change of shares
  int looks_ = 0;
  bool settled_ = false;
};

}  // namespace lockstep
