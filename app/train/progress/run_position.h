// How far a training run has come, beside the trainer's state: what its lines and its end add up. Sums with a
// loss that is not finite are never saved.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include <lockstep/app/run_files/row_sums.h>

namespace lockstep {

// Steps of the run, counted from 1.
struct StepRange {
  int64_t first = 1;
  int64_t last = 0;  // inclusive

  bool operator==(const StepRange&) const = default;
};

struct RunPosition {
  int64_t epoch = 1;          // under way, from 1
  int64_t step = 0;           // steps done in it
  double epoch_seconds = 0;   // of training in it
  double seconds = 0;         // of training in the epochs before
  double lr = 0;              // of the last step
  RowSums epoch_sums{};       // of the steps done in this epoch
  RowSums recorded_sums{};    // of the steps since the last step line of the metrics
  int64_t epoch_skipped = 0;  // these two: of the same steps, those without an update (fp16)
  int64_t recorded_skipped = 0;
  std::vector<double> accuracy = {};  // on the test set, after each epoch
  // A figure of the rows that are held out, after each epoch: the accuracy, or the negative loss of a model
  // without.
  std::vector<double> validation = {};
  std::vector<StepRange> left_out = {};  // steps that are not taken, since a loss was not finite

  bool leaves_out(int64_t number) const;     // the step of the run, from 1
  bool leaves_out(StepRange numbers) const;  // all of them

  // The accuracy of the newest evaluation; empty before the first.
  std::optional<double> last_accuracy() const {
    return accuracy.empty() ? std::nullopt : std::optional(accuracy.back());
  }

  // The best checkpoint has the most of it: the newest validation, without one the accuracy.
  std::optional<double> last_score() const {
    return validation.empty() ? last_accuracy() : std::optional(validation.back());
  }

  // The epochs since the first one with the highest validation; 0 before the first.
  int64_t epochs_since_best() const;

  // Returns true if so many steps are the whole run, which may end earlier than it was to end before. In the
  // middle of an epoch the evaluation after its last step may be left to do.
  bool is_finished(int64_t steps_done, int64_t total_steps) const {
    return steps_done > total_steps || (steps_done == total_steps && step == 0);
  }
};

// [[first, last], ...]
nlohmann::ordered_json to_json(const std::vector<StepRange>& ranges);

nlohmann::ordered_json to_json(const RunPosition& position);

// The inverse. Throws WeightsError for anything else.
RunPosition read_position(const nlohmann::ordered_json& json);

}  // namespace lockstep
