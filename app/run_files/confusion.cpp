#include <lockstep/app/run_files/confusion.h>

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include <lockstep/app/files/json.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr int64_t kMostColumns = 20;  // of a matrix that fits a terminal

std::optional<double> share(int64_t part, int64_t whole) {
  return whole > 0 ? std::optional(static_cast<double>(part) / static_cast<double>(whole)) : std::nullopt;
}

std::string percent(std::optional<double> value) {
  return value ? fmt::format("{:.1f}%", 100 * *value) : std::string("-");
}

// "3", or "3 trouser".
std::string title(const Confusion& confusion, int64_t of) {
  const auto number = std::to_string(of);
  return confusion.name(of) == number ? number : number + " " + printable(confusion.name(of));
}

// The other answer that most rows of the class have: "3 trouser (12)". Empty where all are right.
std::string most_taken_for(const Confusion& confusion, int64_t label) {
  int64_t most = -1;
  for (int64_t answer = 0; answer < confusion.classes(); ++answer) {
    if (answer == label || confusion.count(label, answer) == 0) continue;
    if (most < 0 || confusion.count(label, answer) > confusion.count(label, most)) most = answer;
  }
  if (most < 0) return "";
  return fmt::format("{} ({})", title(confusion, most), with_commas(confusion.count(label, most)));
}

std::string matrix_columns(const Confusion& confusion, int64_t label, size_t width) {
  std::string columns;
  for (int64_t answer = 0; answer < confusion.classes(); ++answer) {
    columns += fmt::format(" {:>{}}", confusion.count(label, answer), width);
  }
  return columns;
}

// It has the width of its counts and of the numbers at its head.
size_t column_width(const Confusion& confusion) {
  int64_t most = confusion.classes() - 1;
  for (int64_t label = 0; label < confusion.classes(); ++label) {
    for (int64_t answer = 0; answer < confusion.classes(); ++answer) {
      most = std::max(most, confusion.count(label, answer));
    }
  }
  return std::to_string(most).size();
}

}  // namespace

Confusion::Confusion(int64_t classes, std::vector<std::string> names) : names_(std::move(names)) {
  names_.resize(std::min(names_.size(), static_cast<size_t>(classes)));
  for (auto next = static_cast<int64_t>(names_.size()); next < classes; ++next) {
    names_.push_back(std::to_string(next));
  }
  counts_.resize(static_cast<size_t>(classes * classes));
}

void Confusion::add(std::span<const int64_t> labels, std::span<const int64_t> answers) {
  for (size_t row = 0; row < labels.size(); ++row) {
    ++counts_[static_cast<size_t>(labels[row] * classes() + answers[row])];
  }
}

int64_t Confusion::rows_of(int64_t label) const {
  int64_t sum = 0;
  for (int64_t answer = 0; answer < classes(); ++answer) sum += count(label, answer);
  return sum;
}

int64_t Confusion::answers_of(int64_t answer) const {
  int64_t sum = 0;
  for (int64_t label = 0; label < classes(); ++label) sum += count(label, answer);
  return sum;
}

std::optional<double> Confusion::recall(int64_t label) const {
  return share(count(label, label), rows_of(label));
}

std::optional<double> Confusion::precision(int64_t answer) const {
  return share(count(answer, answer), answers_of(answer));
}

std::string confusion_text(const Confusion& confusion, const std::string& noun) {
  const bool matrix = confusion.classes() <= kMostColumns;
  const auto width = column_width(confusion);
  size_t name_width = std::string("class").size();
  for (int64_t label = 0; label < confusion.classes(); ++label) {
    name_width = std::max(name_width, title(confusion, label).size());
  }
  std::string heads;
  for (int64_t answer = 0; matrix && answer < confusion.classes(); ++answer) {
    heads += fmt::format(" {:>{}}", answer, width);
  }
  auto text = fmt::format("{:{}}{}  recall  precision  {}s{}\n", "class", name_width, heads, noun,
                          matrix ? "" : "  most often taken for");
  for (int64_t label = 0; label < confusion.classes(); ++label) {
    const auto counts = matrix ? matrix_columns(confusion, label, width) : std::string();
    auto line = fmt::format("{:{}}{}  {:>6}  {:>9}  {:>{}}", title(confusion, label), name_width, counts,
                            percent(confusion.recall(label)), percent(confusion.precision(label)),
                            with_commas(confusion.rows_of(label)), noun.size() + 1);
    if (const auto other = most_taken_for(confusion, label); !matrix && !other.empty()) line += "  " + other;
    text += line + "\n";
  }
  return text;
}

nlohmann::ordered_json to_json(const Confusion& confusion) {
  Json json{{"classes", Json::array()},
            {"counts", Json::array()},
            {"recall", Json::array()},
            {"precision", Json::array()}};
  for (int64_t label = 0; label < confusion.classes(); ++label) {
    auto row = Json::array();
    for (int64_t answer = 0; answer < confusion.classes(); ++answer) {
      row.push_back(confusion.count(label, answer));
    }
    json["classes"].push_back(confusion.name(label));
    json["counts"].push_back(std::move(row));
    json["recall"].push_back(or_null(confusion.recall(label)));
    json["precision"].push_back(or_null(confusion.precision(label)));
  }
  return json;
}

}  // namespace lockstep
