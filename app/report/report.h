// What a benchmark prints and keeps: a `#` preamble, tables with fixed columns, findings, checks; and the
// same as JSON.
//
//   BenchReport report("allreduce", options, {{"min_bytes", 8}});
//   report.run([&] {
//     report.table("allreduce", {{.key = "time", .title = "time", .unit = "us", .digits = 1}});
//     report.row({{"time", 12.5}});
//     report.check("sums", wrong == 0, "0 of 1,024 elements are wrong");
//     report.finding("two_shot is 1.9 x faster than root at 16 MB");
//   });
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/report/bench_options.h>
#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/support/atomic_file.h>

namespace lockstep {

using Json = nlohmann::ordered_json;

// A column of words, aligned to the left.
inline constexpr int kText = -1;

struct Column {
  std::string key;    // of the value in a row's JSON
  std::string title;  // over the column
  std::string unit = {};
  int width = 10;  // title, unit and values are made to fit
  int digits = 0;  // after the point; kText: a column of words
};

class BenchReport {
 public:
  // Throws OutputError where the JSON file cannot be written, then prints the preamble. settings: what
  // was asked for or derived, in the benchmark's own words.
  BenchReport(std::string bench, const BenchOptions& options, Json settings);

  // Runs the measurements, prints the footer and writes the JSON; also for what was done before a signal or
  // an error ended them, which goes on to the caller. Throws FailedError when a check has failed.
  void run(const std::function<void()>& measurements);

  // Whether Ctrl-C, SIGTERM or SIGHUP has come: for measurements that can end early with what they have.
  bool interrupted() const { return interrupt_.signal().has_value(); }

  // for (int turn = 0; report.takes_turn(turn, repeat); ++turn): the first turn is always taken, so that
  // there is something to show; after Ctrl-C no other.
  bool takes_turn(int taken, int repeat) const;

  // Between two measurements, when the rows of the first are shown. Throws InterruptedError when a signal has
  // come.
  void stop_if_interrupted(const std::string& where) const;

  // "# text", a line of explanation beside the figures.
  void note(const std::string& text) const;

  // What follows are rows of these columns.
  void table(std::string name, std::vector<Column> columns);
  // One value a column; what has no column is kept for the JSON alone. null prints as "-".
  void row(Json values);

  // A sentence drawn from the numbers. `values`: the figures in it.
  void finding(const std::string& sentence, Json values = Json::object());

  // Kept in the JSON alone, under this key.
  void keep(const std::string& key, Json value);

  // Something the benchmark itself can tell to be right or wrong. `detail`: both values.
  void check(const std::string& name, bool ok, const std::string& detail);

 private:
  void finish(bool complete);
  bool ok() const;

  const std::string bench_;
  const InterruptGuard interrupt_;
  std::optional<AtomicFile> file_;
  std::vector<Column> columns_;  // of the table under way
  Json json_;
};

// null where there is no value.
template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

// One line of a table, without its newline: "  [cpu, cpu]  two_shot      1024".
std::string table_line(const std::vector<Column>& columns, const Json& values);
// Titles and units over it, two lines.
std::string table_heading(const std::vector<Column>& columns);

}  // namespace lockstep
