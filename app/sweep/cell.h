// One training of a sweep and its result.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/support/error.h>

namespace lockstep {

struct SweepCell {
  std::string devices;  // in the syntax of --devices: "cpux2"
  int replicas = 1;
  int64_t batch_size = 0;  // global
  double lr = 0;           // for this batch size
  int64_t epochs = 0;
  double given_lr = 0;  // the value of the axis; with --scale-batch lr is `replicas` times this

  // Returns true if both are the same point of the grid. Rates may differ by rounding: three times .1 is .3.
  bool is_same_point(const SweepCell& other) const {
    return devices == other.devices && batch_size == other.batch_size && epochs == other.epochs &&
           std::abs(lr - other.lr) <= 1e-12 * std::abs(lr);
  }
};

struct CellFigures {
  // On the test set after the last epoch; nothing for a loss that counts no classes.
  std::optional<double> accuracy = {};
  double test_loss = 0;
  double train_loss = 0;  // of the last epoch
  double seconds_per_epoch = 0;
  double images_per_second = 0;
};

// Greater is better: the accuracy, or else less loss. In a sweep all cells have the same loss.
inline double quality_of(const CellFigures& figures) { return figures.accuracy.value_or(-figures.test_loss); }

struct CellResult {
  SweepCell cell;
  int threads = 1;                       // of each replica
  std::optional<CellFigures> figures{};  // empty: training diverged
  std::optional<NumericError> error{};   // how, in this sweep; empty: of a sweep that was resumed
};

}  // namespace lockstep
