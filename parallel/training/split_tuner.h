// Finds shares of a batch for unequal devices by timing them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

// Gives each replica a share in proportion to its speed over some steps, and repeats that until the shares no
// longer move. (One round is not enough, since a part of a step's time does not depend on its rows.) Reads no
// clock itself: the same observations give the same shares.
class SplitTuner {
 public:
  explicit SplitTuner(int world);  // replicas of the world

  // Shares of the batch: positive, with sum 1.
  const std::vector<double>& shares() const { return shares_; }
  bool settled() const { return settled_; }

  // Records a step in which the replica of rank i took seconds[i] for rows[i]. Does nothing once settled.
  void observe(std::span<const int64_t> rows, std::span<const double> seconds);

  // Takes these shares, found earlier, as settled. One per replica.
  void settle(std::vector<double> shares);

 private:
  void adjust();

  std::vector<double> shares_;
  std::vector<std::vector<double>>
      costs_;      // one list per replica: seconds per row in the steps of this round
  int steps_ = 0;  // since the last change of shares
  int rounds_ = 0;
  bool settled_ = false;
};

}  // namespace lockstep
