#include <lockstep/app/report/report.h>

#include <fmt/format.h>

#include <algorithm>

#include <lockstep/app/files/distinct_files.h>
#include <lockstep/app/files/json_file.h>
#include <lockstep/app/machine/environment.h>
#include <lockstep/app/processes/together.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/plan/notices.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/statistics.h>
#include <lockstep/support/words_of.h>

namespace lockstep {
namespace {

std::string value_text(const Column& column, const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return fmt::format("{}", value.get<int64_t>());
  if (value.is_number()) return fmt::format("{:.{}f}", value.get<double>(), std::max(column.digits, 0));
  return value.dump();
}

// Aligns words to the left and numbers to the right.
std::string padded(const std::string& text, int width, bool left) {
  return left ? fmt::format("{:<{}}", text, width) : fmt::format("{:>{}}", text, width);
}

std::string unit_text(const Column& column) {
  return column.unit.empty() ? "" : fmt::format("({})", column.unit);
}

bool is_text(const Column& column) { return column.digits == kText; }

std::string rtrimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string table_line(const std::vector<Column>& columns, const Json& values) {
  std::string line;
  for (const auto& column : columns) {
    const auto value = values.contains(column.key) ? values.at(column.key) : Json();
    line += "  " + padded(value_text(column, value), column.width, is_text(column));
  }
  return rtrimmed(line);
}

std::string table_heading(const std::vector<Column>& columns) {
  std::string titles = "#", units = "#";
  for (const auto& column : columns) {
    const auto lead = titles.size() == 1 ? " " : "  ";  // the # takes the place of a row's first blank
    titles += lead + padded(column.title, column.width, is_text(column));
    units += lead + padded(unit_text(column), column.width, is_text(column));
  }
  return rtrimmed(titles) + "\n" + rtrimmed(units);
}

Json times_row(Json row, const Seconds& seconds, const TimeUnit& unit) {
  const auto time = quartiles_of(seconds);
  const std::string key = unit.key;
  row[key] = unit.per_second * time.median;
  row["low_" + key] = unit.per_second * time.low;
  row["high_" + key] = unit.per_second * time.high;
  row["iqr"] = 100 * time.relative_iqr();
  row["repeats"] = time.repeats;
  return row;
}

std::string too_few_repeats(size_t repeats) {
  return fmt::format("no ratio from {}: at least {} are needed (--repeat)",
                     counted(static_cast<int64_t>(repeats), "repetition"), kRatioRepeats);
}

BenchReport::BenchReport(std::string bench, const BenchOptions& options, Json settings,
                         const TrainWorld& world)
    : bench_(std::move(bench)),
      repeat_(static_cast<size_t>(options.repeat)),
      world_(world),
      interrupt_(kAwaited) {
  settings["repeat"] = options.repeat;
  settings["seed"] = options.seed;
  json_ = {{"format", "lockstep bench"},
           {"version", 1},
           {"bench", bench_},
           {"command", command_line()},
           {"environment", environment_json()},
           {"settings", std::move(settings)},
           {"tables", Json::array()},
           {"findings", Json::array()},
           {"checks", Json::array()}};
  together(world, [&] {
    check_distinct_files({{"--json", options.json}});
    if (!world.leads()) return Json();
    if (options.json) file_.emplace(*options.json, options.overwrite);
    print(environment_text());
    if (const auto notice = many_threads_notice(options.threads)) warn(*notice);
    return Json();
  });
}

void BenchReport::run(const std::function<void()>& measurements) {
  agreement_ = std::make_unique<StepAgreement>(world_.process_group.get());
  try {
    measurements();
    stop_if_interrupted("after the last measurement");  // which may be incomplete
  } catch (const InterruptedError&) {                   // in all processes
    finish(/*complete=*/false);
    leave_together(world_);
    throw;
  } catch (...) {
    keep_incomplete();
    throw;
  }
  finish(/*complete=*/true);
  leave_together(world_);
  if (!ok()) throw FailedError(fmt::format("a check of bench {} has failed: see the lines above", bench_));
}

std::vector<Seconds> BenchReport::in_turns(
    const std::vector<std::function<double()>>& cases,
    const std::function<bool(const std::vector<Seconds>& seconds)>& goes_on) const {
  std::vector<Seconds> seconds(cases.size());
  for (size_t taken = 0; taken < repeat_ || (goes_on && goes_on(seconds)); ++taken) {
    if (taken > 0 && interrupted()) break;
    for (size_t i = 0; i < cases.size(); ++i) {
      const auto turn = (taken + i) % cases.size();
      seconds[turn].push_back(cases[turn]());
    }
  }
  return seconds;
}

void BenchReport::stop_if_interrupted(const std::string& where) const {
  if (const auto noted = signal()) throw InterruptedError(*noted, where);
}

std::optional<int> BenchReport::signal() const {
  const auto own = interrupt_.signal();
  return agreement_ ? agreement_->agree_now({.signal = own}).signal : own;
}

void BenchReport::print(const std::string& text) const {
  if (world_.leads()) write_stdout(text);
}

void BenchReport::note(const std::string& text) const { print(rtrimmed("# " + text) + "\n"); }

void BenchReport::table(std::string name, std::vector<Column> columns) {
  for (auto& column : columns) {
    const auto widest = std::max(column.title.size(), unit_text(column).size());
    column.width = std::max(column.width, static_cast<int>(widest));
  }
  columns_ = std::move(columns);
  Json described = Json::array();
  for (const auto& column : columns_) {
    described.push_back({{"key", column.key}, {"title", column.title}, {"unit", column.unit}});
  }
  json_["tables"].push_back({{"name", std::move(name)}, {"columns", described}, {"rows", Json::array()}});
  print(fmt::format("#\n{}\n", table_heading(columns_)));
}

void BenchReport::row(Json values) {
  print(table_line(columns_, values) + "\n");
  json_["tables"].back()["rows"].push_back(std::move(values));
}

void BenchReport::finding(const std::string& sentence, Json values) {
  print(fmt::format("# {}\n", sentence));
  json_["findings"].push_back({{"sentence", sentence}, {"values", std::move(values)}});
}

void BenchReport::keep(const std::string& key, Json value) { json_[key] = std::move(value); }

void BenchReport::check(const std::string& name, bool ok, const std::string& detail) {
  print(fmt::format("# check {}: {} ({})\n", name, ok ? "OK" : "FAILED", detail));
  json_["checks"].push_back({{"name", name}, {"ok", ok}, {"detail", detail}});
}

bool BenchReport::ok() const {
  const auto& checks = json_.at("checks");
  return std::all_of(checks.begin(), checks.end(), [](const auto& check) { return check.at("ok") == true; });
}

// While another error ends the benchmark: that one stays.
void BenchReport::keep_incomplete() {
  try {
    finish(/*complete=*/false);
  } catch (const std::exception& error) {
    warn(words_of(error));
  }
}

void BenchReport::finish(bool complete) {
  json_["complete"] = complete;
  json_["ok"] = ok();
  const auto checks = counted(static_cast<int64_t>(json_.at("checks").size()), "check");
  const auto verdict = !ok() ? "FAILED" : complete ? "OK" : "stopped before the end";
  if (file_) {  // before standard output, which may be closed
    file_->write(json_text(json_));
    file_->commit();
  }
  print(fmt::format("# {}: {} ({})\n", bench_, verdict, checks));
}

}  // namespace lockstep
