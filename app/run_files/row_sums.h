// The sums of a run over its rows: the loss, and what else its model counts.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct Evaluation;
struct TrainSums;

// The form in which people and events get a sum: a count of rows as a share of them, which the lines of steps
// write as a percentage, or the mean over the rows.
enum class SumForm { kCount, kMean };

// The name of a sum, and how it is shown.
struct SumKind {
  const char* name;        // in lines and events of steps: "top1"
  const char* epoch_name;  // in events of epochs, behind "train_" or "test_": "accuracy"
  const char* short_name;  // in lines of epochs: "acc"
  SumForm form;
};

// The kinds of sums beside the loss, in the order of lines and columns: at least one. The first is the
// headline, which the live line, the lines of epochs and the curve have alone; it is a kCount, of which more
// is better. Runs of a program with other kinds cannot be resumed.
std::span<const SumKind> sum_kinds();

struct NamedSum {
  SumKind kind;
  double sum = 0;
};

struct RowSums {
  double loss = 0;
  int64_t rows = 0;
  std::vector<NamedSum> named = zero_sums();  // one for each of sum_kinds()

  RowSums& operator+=(const RowSums& other);

  double mean_loss() const { return loss / static_cast<double>(rows); }
  double mean(const NamedSum& sum) const { return sum.sum / static_cast<double>(rows); }
  double headline() const { return mean(named.front()); }

 private:
  static std::vector<NamedSum> zero_sums();
};

// The library's sums.
RowSums row_sums(const TrainSums& sums);
RowSums row_sums(const Evaluation& result);

// "top1  9.7%", or "perplexity 12.3456".
std::string mean_text(const RowSums& sums, const NamedSum& sum);

// All means of a test, by the keys of an epoch's event: "test_loss", "test_accuracy", ...
nlohmann::ordered_json test_means(const RowSums& test);

// The sums themselves, as checkpoints keep them; counts as whole numbers. read_row_sums() is the inverse, and
// throws nlohmann's errors.
nlohmann::ordered_json to_json(const RowSums& sums);
RowSums read_row_sums(const nlohmann::ordered_json& json);

}  // namespace lockstep
