#include <lockstep/app/commands/data_summary.h>

#include <fmt/format.h>

#include <algorithm>

#include <lockstep/support/counted.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

std::string numbers_text(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += fmt::format("{}{:.4f}", text.empty() ? "" : ", ", value);
  return text;
}

// "28", or "28 to 500".
std::string range_text(int least, int most) {
  return least == most ? std::to_string(least) : fmt::format("{} to {}", least, most);
}

std::string kinds_text(const FilesSummary& files) {
  std::string text;
  for (const auto& [kind, count] : files.kinds) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", with_commas(count), kind);
  }
  return text;
}

std::string row_of_summary(const std::string& name, const std::string& value) {
  return fmt::format("  {:<11}{}\n", name, value);
}

std::string files_text(const FilesSummary& files) {
  return row_of_summary("files", kinds_text(files)) +
         row_of_summary("pixels",
                        fmt::format("width {}, height {}", range_text(files.least_width, files.most_width),
                                    range_text(files.least_height, files.most_height)));
}

std::string classes_text(const DataSummary& summary) {
  if (summary.classes.empty()) return row_of_summary("classes", "none: " + summary.no_classes);
  auto text = fmt::format("  {:>5}  {:<20} {:>10} {:>10}\n", "class", "name", "training", "test");
  for (size_t label = 0; label < summary.classes.size(); ++label) {
    const auto& of = summary.classes[label];
    text += fmt::format("  {:>5}  {:<20} {:>10} {:>10}\n", label, printable(of.name), with_commas(of.train),
                        with_commas(of.test));
  }
  return text;
}

}  // namespace

std::string text_of(const DataSummary& summary) {
  auto text = fmt::format("{} ({})\n", printable(summary.name), printable(summary.origin));
  text += row_of_summary("kind", summary.kind);
  for (const auto& tensor : summary.tensors) text += row_of_summary("tensor", tensor);
  text += row_of_summary(summary.row_noun + "s",
                         fmt::format("{} training and {} test", with_commas(summary.train_rows),
                                     with_commas(summary.test_rows)));
  if (summary.files) text += files_text(*summary.files);
  if (!summary.unreadable.empty()) {
    text += row_of_summary("unreadable", counted(std::ssize(summary.unreadable), "file") + ", left out");
  }
  if (!summary.mean.empty()) {
    text += row_of_summary("mean", numbers_text(summary.mean) +
                                       fmt::format(" (pixels / 255, of the training {}s)", summary.row_noun));
    text += row_of_summary("deviation", numbers_text(summary.deviation));
  }
  if (!summary.digest.empty()) text += row_of_summary("digest", summary.digest);
  if (!summary.train_hash.empty()) text += row_of_summary("hash", summary.train_hash);
  return text + classes_text(summary);
}

Json json_of(const DataSummary& summary) {
  auto classes = Json::array();
  for (const auto& of : summary.classes) {
    classes.push_back({{"name", of.name}, {"train_rows", of.train}, {"test_rows", of.test}});
  }
  Json json{{"data", summary.name},
            {"data_origin", summary.origin},
            {"data_kind", summary.kind},
            {"tensors", summary.tensors},
            {"train_rows", summary.train_rows},
            {"test_rows", summary.test_rows},
            {"mean", summary.mean},
            {"deviation", summary.deviation},
            {"data_digest", summary.digest.empty() ? Json() : Json(summary.digest)},
            {"train_data_hash", summary.train_hash.empty() ? Json() : Json(summary.train_hash)},
            {"test_data_hash", summary.test_hash.empty() ? Json() : Json(summary.test_hash)},
            {"classes", classes}};
  if (const auto& files = summary.files) {
    json["files"] = {{"width", {files->least_width, files->most_width}},
                     {"height", {files->least_height, files->most_height}},
                     {"kinds", files->kinds}};
  }
  json["notices"] = summary.notices;
  json["unreadable"] = summary.unreadable;
  return json;
}

}  // namespace lockstep
