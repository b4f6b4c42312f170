// One training of a sweep, and what came of it.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

struct SweepCell {
  std::string devices;  // as --devices takes it, repetitions counted: "cpux2"
  int replicas = 1;
  int64_t batch_size = 0;  // global
  double lr = 0;           // of that batch
  int64_t epochs = 0;
  double given_lr = 0;  // the value of the axis: with --scale-batch lr is `replicas` times as much

  // The same training, as far as the axes go. Rates may differ by rounding: three times .1 is .3.
  bool is(const SweepCell& other) const {
    return devices == other.devices && batch_size == other.batch_size && epochs == other.epochs &&
           std::abs(lr - other.lr) <= 1e-12 * std::abs(lr);
  }
};

struct CellFigures {
  double accuracy = 0;  // on the test set after the last epoch
  double test_loss = 0;
  double train_loss = 0;  // of the last epoch
  double seconds_per_epoch = 0;
  double images_per_second = 0;
};

struct CellResult {
  SweepCell cell;
  int threads = 1;                       // of each replica
  std::optional<CellFigures> figures{};  // empty: the loss was not finite, training has diverged
};

}  // namespace lockstep
