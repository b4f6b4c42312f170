#include <lockstep/app/run_files/run_metrics.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <fstream>
#include <iterator>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/app/files/json_file.h>
#include <lockstep/app/run_files/event_record.h>
#include <lockstep/app/run_files/metrics_csv.h>
#include <lockstep/app/run_files/row_sums.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// A scalar's key in its event, and its tag in TensorBoard.
struct Tag {
  std::string key;
  std::string tag;
};

// The scalars of an event, in the order of the file.
std::vector<Tag> tags_of(const std::string& event, const std::vector<MetricKind>& metrics) {
  std::vector<Tag> tags;
  if (event == "step") {
    tags.push_back({"loss", "train/loss"});
    for (const auto& kind : metrics) tags.push_back({kind.name, fmt::format("train/{}", kind.name)});
    tags.push_back({"lr", "lr"});
    tags.push_back({"images_per_second", "images_per_second"});
    for (const auto* name : {"loss_scale", "skipped"}) tags.push_back({name, name});  // in fp16
  } else if (event == "epoch") {
    tags.push_back({"test_loss", "test/loss"});
    for (const auto& kind : metrics) {
      const auto name = epoch_name(kind);
      tags.push_back({fmt::format("test_{}", name), fmt::format("test/{}", name)});
    }
  }
  return tags;
}

// Bytes up to the end of the last line that is whole.
int64_t whole_lines(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return static_cast<int64_t>(text.rfind('\n') + 1);
}

// How many bytes of this file to keep, where it had `before` bytes when the checkpoint was written.
int64_t kept_bytes(const std::filesystem::path& path, int64_t before) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (before == 0 || (!error && size >= static_cast<uintmax_t>(before))) return before;
  warn(fmt::format("'{}' has lost lines since the checkpoint was written", path.native()));
  return path.filename() == kEventFile ? before : whole_lines(path);
}

GrowingFile opened(const std::filesystem::path& folder, const char* name,
                   const std::optional<FileSizes>& keep) {
  if (!keep) return {folder / name, std::numeric_limits<int64_t>::max()};
  const auto found = keep->find(name);
  return {folder / name, found == keep->end() ? 0 : kept_bytes(folder / name, found->second)};
}

std::vector<Scalar> scalars_of(const Json& event, const std::vector<Tag>& tags) {
  std::vector<Scalar> scalars;
  for (const auto& [key, tag] : tags) {
    const auto value = event.find(key);
    if (value == event.end() || !value->is_number()) continue;
    if (const auto number = value->get<double>(); std::isfinite(number)) scalars.push_back({tag, number});
  }
  return scalars;
}

}  // namespace

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool ends_done(const std::filesystem::path& jsonl) {
  std::string last;
  std::ifstream file(jsonl, std::ios::binary);
  for (std::string line; std::getline(file, line);) last = std::move(line);
  const auto event = Json::parse(last, /*cb=*/nullptr, /*allow_exceptions=*/false);
  return event.is_object() && event.value("event", "") == "end" && event.value("status", "") == "done";
}

RunMetrics::RunMetrics(const std::filesystem::path& folder, std::vector<MetricKind> metrics, Steps steps,
                       const std::optional<FileSizes>& keep, std::function<double()> wall_clock)
    : metrics_(std::move(metrics)),
      columns_(csv_columns(metrics_)),
      steps_(steps),
      wall_clock_(std::move(wall_clock)),
      jsonl_(opened(folder, kMetricsJsonl, keep)),
      csv_(opened(folder, kMetricsCsv, keep)),
      events_(opened(folder, kEventFile, keep)) {
  if (csv_.size() == 0) csv_.write(csv_header(columns_));
  if (events_.size() == 0) events_.write(version_record(wall_clock_()));
}

void RunMetrics::append(const Json& event) {
  std::exception_ptr failed;
  const auto write = [&](GrowingFile& file, const std::string& text) {
    try {
      file.write(text);
    } catch (const OutputError&) {
      if (!failed) failed = std::current_exception();
    }
  };
  write(jsonl_, json_line(event));
  write(csv_, csv_row(columns_, event));
  write(events_, event_record_of(event));
  if (failed) std::rethrow_exception(failed);
}

void RunMetrics::cut(const FileSizes& sizes) {
  jsonl_.cut(sizes.at(kMetricsJsonl));
  csv_.cut(sizes.at(kMetricsCsv));
  events_.cut(sizes.at(kEventFile));
}

void RunMetrics::flush_to_disk() const {
  jsonl_.flush_to_disk();
  csv_.flush_to_disk();
  events_.flush_to_disk();
}

FileSizes RunMetrics::sizes() const {
  return {{kMetricsJsonl, jsonl_.size()}, {kMetricsCsv, csv_.size()}, {kEventFile, events_.size()}};
}

// Steps done in the whole run when the event was measured.
int64_t RunMetrics::step_of(const Json& event) const {
  const auto epoch = event.at("epoch").get<int64_t>();
  if (event.at("event") == "step") return (epoch - 1) * steps_.per_epoch + event.at("step").get<int64_t>();
  return std::min(epoch * steps_.per_epoch, steps_.total);
}

// Empty for an event without scalars.
std::string RunMetrics::event_record_of(const Json& event) const {
  const auto tags = tags_of(event.value("event", ""), metrics_);
  const auto scalars = scalars_of(event, tags);
  return scalars.empty() ? "" : scalars_record(wall_clock_(), step_of(event), scalars);
}

}  // namespace lockstep
