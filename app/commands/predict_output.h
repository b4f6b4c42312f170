// Writes predictions as they are made: a line each, or one JSON object.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/app/commands/given_files.h>
#include <lockstep/app/files/json.h>
#include <lockstep/app/files/network_facts.h>

namespace lockstep {

// The best classes of a row, and how probable they are.
struct Answer {
  std::vector<int64_t> classes;  // the best first; of equal ones the lower class
  std::vector<double> probabilities;
};

// Returns the five best classes. probabilities: one for each class.
Answer answer_of(std::span<const double> probabilities);

// "photo.png  trouser 98.1%  dress 1.2%, coat 0.4%, shirt 0.2%, bag 0.1%", with the number of the row behind
// the name of a file that has several. Ends with a newline.
std::string line_of(const std::string& file, std::optional<int64_t> row, const Answer& answer,
                    const NetworkFacts& facts);

// {"file", "row", "class", "name", "probability", "best": [{"class", "name", "probability"}, ...]}; the row
// of an image file is 0.
Json json_of(const std::string& file, std::optional<int64_t> row, const Answer& answer,
             const NetworkFacts& facts);

class PredictOutput {
 public:
  // head: what the JSON object begins with.
  PredictOutput(NetworkFacts facts, bool json, const Json& head);

  // row: in a file of several.
  void add(const std::string& file, std::optional<int64_t> row, std::span<const double> probabilities);

  // Writes what was added to standard output.
  void flush();

  // Writes the end. unreadable: files without a prediction.
  void end(std::span<const FaultyFile> unreadable);

 private:
  const NetworkFacts facts_;
  const bool json_;
  bool first_ = true;
  std::string text_;  // not yet written
};

}  // namespace lockstep
