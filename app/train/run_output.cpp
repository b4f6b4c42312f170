#include <lockstep/app/train/run_output.h>

#include <nlohmann/json.hpp>

#include <lockstep/app/files/json_file.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/support/error.h>

namespace lockstep {

void RunOutput::print(const std::string& line, bool shown) {
  if (to_.log) attempt([&] { to_.log->write(line); });
  if (shown) attempt([&] { write_stdout(line + "\n"); });
}

void RunOutput::record_plan(const nlohmann::ordered_json& plan, const nlohmann::ordered_json& resumed) {
  const bool goes_on = to_.run_metrics && !to_.run_metrics->empty();
  record(plan, to_.run_metrics && !goes_on);
  if (goes_on && !resumed.is_null()) attempt([&] { to_.run_metrics->append(resumed); });
}

void RunOutput::record_end(const nlohmann::ordered_json& end) {
  record(end, to_.run_metrics && !to_.run_metrics_finished);
}

void RunOutput::record(const nlohmann::ordered_json& event) { record(event, to_.run_metrics != nullptr); }

void RunOutput::record(const nlohmann::ordered_json& event, bool in_run_metrics) {
  if (to_.metrics) {
    auto line = json_line(event);
    line.pop_back();  // append_line() ends it
    attempt([&] { to_.metrics->append_line(line); });
  }
  if (in_run_metrics) attempt([&] { to_.run_metrics->append(event); });
  if (to_.plots) to_.plots->recorded(event);
}

void RunOutput::attempt(const std::function<void()>& write) {
  try {
    write();
  } catch (const OutputError&) {
    if (!first_error_) first_error_ = std::current_exception();
  }
}

void RunOutput::throw_if_failed() const {
  if (first_error_) std::rethrow_exception(first_error_);
}

}  // namespace lockstep
