#include <lockstep/app/commands/predict_output.h>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include <lockstep/app/files/json_file.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr size_t kBestClasses = 5;

// Without the newline.
std::string part_of_line(const Json& value) {
  auto text = json_line(value);
  text.pop_back();
  return text;
}

const std::string& name_of_class(const NetworkFacts& facts, int64_t label) {
  return facts.classes[static_cast<size_t>(label)];
}

}  // namespace

Answer answer_of(std::span<const double> probabilities) {
  Answer answer;
  answer.classes.resize(probabilities.size());
  std::iota(answer.classes.begin(), answer.classes.end(), int64_t{0});
  const auto of = [&](int64_t label) { return probabilities[static_cast<size_t>(label)]; };
  const auto best = std::min(probabilities.size(), kBestClasses);
  std::ranges::partial_sort(answer.classes, answer.classes.begin() + static_cast<std::ptrdiff_t>(best),
                            [&](int64_t a, int64_t b) { return of(a) != of(b) ? of(a) > of(b) : a < b; });
  answer.classes.resize(best);
  for (const auto label : answer.classes) answer.probabilities.push_back(of(label));
  return answer;
}

std::string line_of(const std::string& file, std::optional<int64_t> row, const Answer& answer,
                    const NetworkFacts& facts) {
  const auto one = [&](size_t i) {
    return fmt::format("{} {:.1f}%", printable(name_of_class(facts, answer.classes[i])),
                       100 * answer.probabilities[i]);
  };
  auto line = printable(file) + (row ? fmt::format(" {}", *row) : "") + "  " + one(0);
  for (size_t i = 1; i < answer.classes.size(); ++i) line += (i == 1 ? "  " : ", ") + one(i);
  return line + "\n";
}

Json json_of(const std::string& file, std::optional<int64_t> row, const Answer& answer,
             const NetworkFacts& facts) {
  auto best = Json::array();
  for (size_t i = 0; i < answer.classes.size(); ++i) {
    best.push_back({{"class", answer.classes[i]},
                    {"name", name_of_class(facts, answer.classes[i])},
                    {"probability", answer.probabilities[i]}});
  }
  Json json{{"file", file}, {"row", row.value_or(0)}};
  json.update(best.front());
  json["best"] = std::move(best);
  return json;
}

PredictOutput::PredictOutput(NetworkFacts facts, bool json, const Json& head)
    : facts_(std::move(facts)), json_(json) {
  if (!json_) return;
  text_ = part_of_line(head);
  text_.back() = ',';  // in the place of }
  text_ += R"("predictions":[)";
}

void PredictOutput::add(const std::string& file, std::optional<int64_t> row,
                        std::span<const double> probabilities) {
  const auto answer = answer_of(probabilities);
  if (json_) {
    text_ += (first_ ? "" : ",") + part_of_line(json_of(file, row, answer, facts_));
  } else {
    text_ += line_of(file, row, answer, facts_);
  }
  first_ = false;
}

// While a live block is drawn, what is written ends with a line break; predict draws none.
void PredictOutput::flush() {
  if (first_) return;
  write_stdout(text_);
  text_.clear();
}

void PredictOutput::end(std::span<const FaultyFile> unreadable) {
  if (json_) {
    auto files = Json::array();
    for (const auto& each : unreadable) files.push_back({{"file", each.path}, {"error", each.fault}});
    text_ += R"(],"unreadable":)" + part_of_line(files) + "}\n";
  }
  if (!text_.empty()) write_stdout(text_);
  text_.clear();
}

}  // namespace lockstep
