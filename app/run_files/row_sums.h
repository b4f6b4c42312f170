// The sums of a run over its rows, as lines, events and checkpoints have them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/support/row_sums.h>

namespace lockstep {

// A metric's name in events of epochs, behind "train_" or "test_", and in lines of epochs: "accuracy" and
// "acc" of "top1". In lines and events of steps all have their own.
std::string epoch_name(const MetricKind& kind);
std::string short_name(const MetricKind& kind);

// "acc 0.831", the first metric as the lines of epochs have it alone. Empty for a model without metrics.
std::string headline_text(const RowSums& sums);

// Returns true if the first metric is the accuracy of classes.
bool counts_classes(std::span<const MetricKind> metrics);

// The first metric, where it is the accuracy of classes: the curve, the best checkpoint and the closing line
// are of it. Nothing for other models.
std::optional<double> accuracy_of(const RowSums& sums);

// "top1  9.7%", or "perplexity 12.3456".
std::string mean_text(const RowSums& sums, const MetricSum& metric);

// All means of a test, by the keys of an epoch's event: "test_loss", "test_accuracy", ...
nlohmann::ordered_json test_means(const RowSums& test);

// The sums themselves, as checkpoints keep them; counts as whole numbers. read_row_sums() is the inverse,
// without final functions, and throws nlohmann's errors.
nlohmann::ordered_json to_json(const RowSums& sums);
RowSums read_row_sums(const nlohmann::ordered_json& json);

// Sums that were read, in any order, as the model declares them. Throws WeightsError if they are of other
// metrics.
RowSums declared(RowSums sums, const std::vector<MetricKind>& metrics);

}  // namespace lockstep
