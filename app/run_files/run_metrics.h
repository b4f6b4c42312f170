// The metrics of a run, in its folder: metrics.jsonl with all lines, metrics.csv with the steps and epochs,
// and the same for TensorBoard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/files/growing_file.h>
#include <lockstep/support/row_sums.h>

namespace lockstep {

inline constexpr const char* kMetricsJsonl = "metrics.jsonl";
inline constexpr const char* kMetricsCsv = "metrics.csv";
inline constexpr const char* kEventFile = "events.out.tfevents";  // TensorBoard looks for "tfevents"

// Bytes of each file, by name.
using FileSizes = std::map<std::string, int64_t>;

double seconds_since_1970();

// Returns true if the last line of these metrics says that the run is done.
bool ends_done(const std::filesystem::path& jsonl);

// Not thread-safe. A kill loses at most a line or record, which the resumed run cuts.
class RunMetrics {
 public:
  // To count steps over epochs. total: where the run ends, in an epoch's middle if it is limited.
  struct Steps {
    int64_t per_epoch = 1;
    int64_t total = 0;
  };

  // metrics: of the run's model. Opens the files, or makes them. Cuts each to its size in `keep`; nothing is
  // kept of a file without one. Warns of a file that is shorter, and cuts what it has of a last line. Without
  // `keep` all stay as they are. Throws OutputError.
  RunMetrics(const std::filesystem::path& folder, std::vector<MetricKind> metrics, Steps steps,
             const std::optional<FileSizes>& keep, std::function<double()> wall_clock = seconds_since_1970);

  // Appends an event to all files that have it. If one cannot be written, appends it to the others and then
  // throws OutputError.
  void append(const nlohmann::ordered_json& event);

  // Cuts the files to what they were, to do steps again. Throws OutputError.
  void cut(const FileSizes& sizes);

  // Returns when the disk has all that was appended before the call. May be called while another thread
  // appends. Throws OutputError.
  void flush_to_disk() const;

  FileSizes sizes() const;
  bool empty() const { return jsonl_.size() == 0; }  // no event yet

 private:
  int64_t step_of(const nlohmann::ordered_json& event) const;
  std::string event_record_of(const nlohmann::ordered_json& event) const;

  const std::vector<MetricKind> metrics_;
  const std::vector<std::string> columns_;  // of metrics.csv
  const Steps steps_;
  const std::function<double()> wall_clock_;
  GrowingFile jsonl_;
  GrowingFile csv_;
  GrowingFile events_;
};

}  // namespace lockstep
