// The same rows as one shard and as several, and what they have otherwise: for check_split().
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

// A sum over the rows of a shard.
struct ShardSum {
  enum class Kind { kLoss, kMetric, kWeight };

  Kind kind = Kind::kLoss;
  std::string name;  // "the loss"
  double value = 0;
  double rounding = 0;  // how far it may be off, relative
};

// The outcome of some rows.
struct ShardOutcome {
  int64_t rows = 0;
  std::vector<ShardSum> sums;  // the loss first
  Params gradients;            // of the loss, in double: one per trained parameter

  // sum: (), of any type.
  void add(ShardSum::Kind kind, const std::string& name, const torch::Tensor& sum);
};

struct SplitOutcome {
  ShardOutcome whole;
  std::vector<ShardOutcome> parts;
  bool drew = false;  // random numbers
};

// "2.303"; a NaN of either sign is "nan".
std::string number_text(double value, int digits = 4);

// A number that the whole and its parts have otherwise, in words: "the loss of 64 rows is 2.303, of their two
// parts together 4.605: it seems to be a mean".
struct SplitDifference {
  std::string text;
  const char* hint = "";
};

// Returns the first difference, if there is one: of the sums, then of the gradients. trained: the parameters,
// for their names.
std::optional<SplitDifference> difference_of(const SplitOutcome& split,
                                             const std::vector<NamedTensor>& trained);

}  // namespace lockstep
