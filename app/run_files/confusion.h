// The classes that a network takes for others: counts of rows by their class and by the answer.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

class Confusion {
 public:
  // names: of the classes 0, 1, ...; shorter than `classes`: the others are named by their numbers.
  explicit Confusion(int64_t classes, std::vector<std::string> names = {});

  // Counts rows by their labels and the network's answers, both 0 .. classes() - 1 and equally many.
  void add(std::span<const int64_t> labels, std::span<const int64_t> answers);

  int64_t classes() const { return static_cast<int64_t>(names_.size()); }
  const std::string& name(int64_t of) const { return names_[static_cast<size_t>(of)]; }

  // Rows of this class that got this answer, all rows of the class, and all rows with the answer.
  int64_t count(int64_t label, int64_t answer) const {
    return counts_[static_cast<size_t>(label * classes() + answer)];
  }
  int64_t rows_of(int64_t label) const;
  int64_t answers_of(int64_t answer) const;

  // The share of a class's rows that got its answer, and the share of the answers that are right. Empty where
  // there is no such row.
  std::optional<double> recall(int64_t label) const;
  std::optional<double> precision(int64_t answer) const;

 private:
  std::vector<std::string> names_;
  std::vector<int64_t> counts_;  // (classes, classes), by label, then by answer
};

// A table: a line per class with its recall and precision, and with at most 20 classes its counts; of more
// classes the answer that takes most of its other rows. Ends with a newline. noun: of a row, "image".
std::string confusion_text(const Confusion& confusion, const std::string& noun);

// {"classes": names, "counts": a list per class, "recall": [...], "precision": [...]}; null where there is no
// row.
nlohmann::ordered_json to_json(const Confusion& confusion);

}  // namespace lockstep
