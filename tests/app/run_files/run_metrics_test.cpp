// The files that a run's metrics go to, and how they go on after a break.
#include <sys/resource.h>

#include <lockstep/tests/catch.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/app/run_files/metrics_csv.h>
#include <lockstep/app/run_files/run_metrics.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/run_files/classified.h>
#include <lockstep/tests/app/run_files/event_file.h>
#include <lockstep/tests/support/files.h>

using namespace lockstep;
using namespace lockstep::testing;
using Json = nlohmann::ordered_json;

namespace {

constexpr double kNow = 1700000000.25;
const auto kCsvColumns = csv_columns(kClassified);

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  if (text.ends_with(at)) parts.emplace_back();
  return parts;
}

std::string cell(const std::string& row, const std::string& column) {
  const auto names = kCsvColumns;
  const auto cells = split(row.substr(0, row.size() - 1), ',');
  REQUIRE(cells.size() == names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == column) return cells[i];
  }
  FAIL("no column " << column);
  return "";
}

Json step_event(int64_t epoch, int64_t step, double loss) {
  return {{"event", "step"}, {"epoch", epoch}, {"step", step},
          {"loss", loss},    {"top1", .5},     {"top5", .75},
          {"lr", .1},        {"step_ms", 4},   {"images_per_second", 1e5}};
}

Json epoch_event(int64_t epoch, double loss) {
  return {{"event", "epoch"},  {"epoch", epoch},       {"train_loss", 2},
          {"test_loss", loss}, {"test_accuracy", .25}, {"test_top5", .875}};
}

RunMetrics opened(const TempFolder& folder, const std::optional<FileSizes>& keep) {
  return {folder.path(), kClassified, {.per_epoch = 4, .total = 10}, keep, [] { return kNow; }};
}

std::vector<std::string> contents(const TempFolder& folder) {
  return {read_file(folder / kMetricsJsonl), read_file(folder / kMetricsCsv), read_file(folder / kEventFile)};
}

void limit_file_size(rlim_t bytes) {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  limit.rlim_cur = bytes;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

}  // namespace

TEST_CASE("numbers in metrics.csv read back as the same doubles") {
  for (const double value : {1. / 3, .1, 1e-300, 1.7976931348623157e308, 4.9e-324, -2.5, 0., 123456789.125}) {
    const auto text = cell(csv_row(kCsvColumns, {{"event", "step"}, {"loss", value}}), "loss");
    INFO(text);
    CHECK(std::strtod(text.c_str(), nullptr) == value);
  }
  const int64_t large = (int64_t{1} << 53) + 1;  // no double
  CHECK(cell(csv_row(kCsvColumns, {{"event", "step"}, {"resident_bytes", large}}), "resident_bytes") ==
        "9007199254740993");
}

TEST_CASE("what a line of the metrics lacks is empty in its row") {
  const auto row =
      csv_row(kCsvColumns, {{"event", "epoch"}, {"epoch", 3}, {"test_loss", .5}, {"test_accuracy", nullptr}});
  CHECK(cell(row, "event") == "epoch");
  CHECK(cell(row, "epoch") == "3");
  CHECK(cell(row, "test_loss") == "0.5");
  for (const std::string empty : {"step", "loss", "test_accuracy", "data_ms"})
    CHECK(cell(row, empty).empty());
  const auto infinite = std::numeric_limits<double>::infinity();
  CHECK(cell(csv_row(kCsvColumns, {{"event", "step"}, {"loss", infinite}}), "loss").empty());
  CHECK(cell(csv_row(kCsvColumns, {{"event", "step"}, {"loss", std::nan("")}}), "loss").empty());
  for (const std::string other : {"plan", "split", "end"})
    CHECK(csv_row(kCsvColumns, {{"event", other}, {"step", 1}}).empty());
}

TEST_CASE("TensorBoard's file counts steps over the epochs, and an epoch ends at its last step") {
  const TempFolder folder;
  auto metrics = opened(folder, FileSizes{});
  metrics.append({{"event", "plan"}, {"epochs", 3}});
  metrics.append(step_event(2, 3, 1.5));
  metrics.append(epoch_event(2, .5));
  metrics.append(epoch_event(3, .25));  // a limit cuts it after 2 of 4 steps
  metrics.append({{"event", "end"}, {"status", "done"}});
  const auto records = records_in(folder / kEventFile);
  REQUIRE(records.size() == 4);
  CHECK(records[0].version == "brain.Event:2");
  CHECK(records[1].wall_time == kNow);
  CHECK(records[1].step == 7);
  CHECK(records[1].scalars == Scalars{{"train/loss", 1.5},
                                      {"train/top1", .5},
                                      {"train/top5", .75},
                                      {"lr", .1f},
                                      {"images_per_second", 1e5}});
  CHECK(records[2].step == 8);
  CHECK(records[2].scalars == Scalars{{"test/loss", .5}, {"test/accuracy", .25}, {"test/top5", .875}});
  CHECK(records[3].step == 10);
  CHECK(split(read_file(folder / kMetricsCsv), '\n').size() == 1 + 3 + 1);
  CHECK(split(read_file(folder / kMetricsJsonl), '\n').size() == 5 + 1);
}

TEST_CASE("a run that goes on after a break has the same bytes as one without, wherever it was cut") {
  const TempFolder whole_folder;
  auto whole = opened(whole_folder, FileSizes{});
  for (int step = 1; step <= 4; ++step) whole.append(step_event(1, step, 1. / step));
  whole.append(epoch_event(1, .5));
  const auto expected = contents(whole_folder);

  const TempFolder folder;
  FileSizes kept;
  {
    auto metrics = opened(folder, FileSizes{});
    metrics.append(step_event(1, 1, 1.));
    metrics.append(step_event(1, 2, 1. / 2));
    kept = metrics.sizes();
    metrics.append(step_event(1, 3, 9));  // behind the checkpoint
  }
  // A kill while a line is written.
  for (const auto* name : {kMetricsJsonl, kMetricsCsv, kEventFile}) {
    write_file(folder / name, read_file(folder / name) + "half a li");
  }
  auto metrics = opened(folder, kept);
  metrics.append(step_event(1, 3, 1. / 3));
  metrics.append(step_event(1, 4, 1. / 4));
  metrics.append(epoch_event(1, .5));
  CHECK(contents(folder) == expected);
  CHECK(metrics.sizes() == whole.sizes());
}

TEST_CASE("without sizes the files stay, and with none they begin anew") {
  const TempFolder folder;
  opened(folder, FileSizes{}).append(step_event(1, 1, 1.));
  const auto before = contents(folder);
  static_cast<void>(opened(folder, std::nullopt));
  CHECK(contents(folder) == before);
  static_cast<void>(opened(folder, FileSizes{}));
  CHECK(read_file(folder / kMetricsJsonl).empty());
  CHECK(read_file(folder / kMetricsCsv) == csv_header(kCsvColumns));
  CHECK(records_in(folder / kEventFile).size() == 1);
}

TEST_CASE("a file that cannot grow is an error, and the others still get the event") {
  const TempFolder folder;
  auto metrics = opened(folder, FileSizes{});
  metrics.append({{"event", "plan"}, {"command", std::string(5000, 'x')}});  // makes it the longest by far
  const auto sizes = metrics.sizes();
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  limit_file_size(static_cast<rlim_t>(sizes.at(kMetricsJsonl)) + 1);
  CHECK_THROWS_AS(metrics.append(step_event(1, 2, 1.)), OutputError);
  limit_file_size(before.rlim_cur);
  std::signal(SIGXFSZ, old);
  CHECK(metrics.sizes().at(kMetricsJsonl) == sizes.at(kMetricsJsonl));
  CHECK(read_file(folder / kMetricsJsonl).size() == static_cast<size_t>(sizes.at(kMetricsJsonl)));
  CHECK(metrics.sizes().at(kMetricsCsv) > sizes.at(kMetricsCsv));
  CHECK(metrics.sizes().at(kEventFile) > sizes.at(kEventFile));
}

TEST_CASE("a folder that is not there is an error") {
  CHECK_THROWS_AS(RunMetrics("/nowhere", kClassified, {.per_epoch = 1, .total = 1}, FileSizes{}),
                  OutputError);
}
