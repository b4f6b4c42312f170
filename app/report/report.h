// The report of a benchmark: a `#` preamble, tables with fixed columns, findings and checks, printed as text
// and written as JSON.
//
//   BenchReport report("allreduce", options, {{"min_bytes", 8}});
//   report.run([&] {
//     report.table("allreduce", {{.key = "us", .title = "time", .unit = "us", .digits = 1}});
//     const auto seconds = report.in_turns({[&] { return sum_by_root(); }, [&] { return sum_by_ring(); }});
//     report.row(times_row({{"algorithm", "root"}}, seconds[0], kMicroseconds));
//     report.check("sums", wrong == 0, "0 of 1,024 elements are wrong");
//     report.finding("two_shot is 1.9 x faster than root at 16 MB");
//   });
//
// In a world of several processes each has a report, and all make the same calls in run(). That of process 0
// prints and writes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/files/json.h>
#include <lockstep/app/processes/train_world.h>
#include <lockstep/app/report/bench_options.h>
#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/train/step_agreement.h>
#include <lockstep/support/files/atomic_file.h>

namespace lockstep {

// Marks a column of words, which is aligned to the left.
inline constexpr int kText = -1;

struct Column {
  std::string key;  // of the values in the JSON rows
  std::string title;
  std::string unit = {};
  int width = 10;  // at least; the column is wide enough for its title and unit
  int digits = 0;  // after the decimal point; kText: a column of words
};

// The seconds of a case, by repetition.
using Seconds = std::vector<double>;

class BenchReport {
 public:
  // The work that a signal lets end.
  static constexpr const char* kAwaited = "the measurement";

  // Prints the preamble. `settings`: the benchmark's own, for the JSON. Every process of the world constructs
  // one: what one of them must refuse ends all. Throws OutputError if the JSON file cannot be written.
  BenchReport(std::string bench, const BenchOptions& options, Json settings, const TrainWorld& world = {});

  // Runs the measurements, then writes the JSON and prints the footer, also if a signal or an error has cut
  // the measurements short. Several processes then leave together, unless one of them is lost. Throws what
  // the measurements throw, and FailedError if a check has failed.
  void run(const std::function<void()>& measurements);

  // Returns true if Ctrl-C, SIGTERM or SIGHUP has come, in run() to any process. A measurement may then end
  // early with the results it has.
  bool interrupted() const { return signal().has_value(); }

  // Measures every case once per repetition and returns their seconds, by case. Each repetition begins with
  // another case. There are as many as --repeat says, then more while `goes_on(seconds)` is true. The first
  // one is always taken, so that there is a result; after Ctrl-C there are no more.
  std::vector<Seconds> in_turns(
      const std::vector<std::function<double()>>& cases,
      const std::function<bool(const std::vector<Seconds>& seconds)>& goes_on = {}) const;

  // Call it between two measurements, after the rows of the first are printed. Throws InterruptedError if a
  // signal has come.
  void stop_if_interrupted(const std::string& where) const;

  // Prints "# text", a line of explanation.
  void note(const std::string& text) const;

  // Begins a table with these columns.
  void table(std::string name, std::vector<Column> columns);
  // Adds a row, one value per column. Values without a column go only to the JSON. null is printed as "-".
  void row(Json values);

  // Adds a conclusion from the numbers. `values`: the figures in the sentence.
  void finding(const std::string& sentence, Json values = Json::object());

  // Adds a value to the JSON only.
  void keep(const std::string& key, Json value);

  // Adds a check of the results. `detail`: what was compared.
  void check(const std::string& name, bool ok, const std::string& detail);

 private:
  std::optional<int> signal() const;
  void print(const std::string& text) const;  // process 0
  void keep_incomplete();
  void finish(bool complete);
  bool ok() const;

  const std::string bench_;
  const size_t repeat_;
  const TrainWorld world_;
  const InterruptGuard interrupt_;
  std::unique_ptr<StepAgreement> agreement_;  // in run()
  std::optional<AtomicFile> file_;
  std::vector<Column> columns_;  // of the last table
  Json json_;
};

// The unit of a row's times: its key, and how many of it a second has.
struct TimeUnit {
  const char* key;
  double per_second;
};
inline constexpr TimeUnit kSeconds = {"seconds", 1}, kMilliseconds = {"ms", 1e3}, kMicroseconds = {"us", 1e6};

// Adds to the row what these repetitions say: the median ("ms"), the quartiles ("low_ms" and "high_ms"),
// "iqr" (% of the median) and "repeats". Returns the row.
Json times_row(Json row, const Seconds& seconds, const TimeUnit& unit = kSeconds);

// Says that so many repetitions are too few for a ratio.
std::string too_few_repeats(size_t repeats);

// One row of a table, without a newline: "  cpux2       two_shot      1024".
std::string table_line(const std::vector<Column>& columns, const Json& values);
// Two lines: the titles and the units.
std::string table_heading(const std::vector<Column>& columns);

}  // namespace lockstep
