#include <lockstep/parallel/collectives/gloo/failures/failure_board.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>

#include <lockstep/parallel/collectives/gloo/c10d_store.h>

namespace lockstep {
namespace {

constexpr const char* kAlarmKey = "failure/alarm";
constexpr const char* kReportsKey = "failure/reports";  // their number
constexpr const char* kVerdictKey = "failure/verdict";

std::string report_key(size_t order) { return fmt::format("failure/report/{}", order); }
std::string left_key(int process) { return fmt::format("failure/left/{}", process); }
std::string beat_key(int process) { return fmt::format("failure/beat/{}", process); }

// Each value is a line.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string text_of_report(int process, const FailureReport& report) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", process, static_cast<int>(report.kind),
                     one_line(report.name), one_line(report.text), report.code, report.collective,
                     report.number, report.channel, report.seconds);
}

struct ParsedReport {
  int process = 0;
  FailureReport report = {};
};

ParsedReport parse_report(const std::string& text) {
  std::istringstream in(text);
  const auto line = [&in] {
    std::string value;
    std::getline(in, value);
    return value;
  };
  ParsedReport parsed{.process = std::stoi(line())};
  auto& report = parsed.report;
  report.kind = static_cast<ReportKind>(std::stoi(line()));
  report.name = line();
  report.text = line();
  report.code = std::stoi(line());
  report.collective = line();
  report.number = std::stoull(line());
  report.channel = line();
  report.seconds = std::stod(line());
  return parsed;
}

// The text, the hint, and the blamed processes, a line each.
std::string text_of_verdict(const Verdict& verdict) {
  auto text = fmt::format("{}\n{}\n", one_line(verdict.text), one_line(verdict.hint));
  for (const int process : verdict.blamed) text += fmt::format("{}\n", process);
  return text;
}

Verdict parse_verdict(const std::string& text) {
  std::istringstream in(text);
  Verdict verdict;
  std::getline(in, verdict.text);
  std::getline(in, verdict.hint);
  for (int process = 0; in >> process;) verdict.blamed.push_back(process);
  return verdict;
}

}  // namespace

FailureBoard::FailureBoard(std::shared_ptr<C10dStore> client, int process, int processes)
    : client_(std::move(client)), process_(process), reports_(static_cast<size_t>(processes)) {}

bool FailureBoard::has(const std::string& key) const { return client_->store->check({key}); }

void FailureBoard::publish(const FailureReport& report, bool alarm) {
  const auto order = static_cast<size_t>(client_->store->add(kReportsKey, 1));
  client_->store->set(report_key(order), text_of_report(process_, report));
  if (alarm) client_->store->set(kAlarmKey, std::string("1"));
}

bool FailureBoard::alarmed() { return has(kAlarmKey); }

const FailureReports& FailureBoard::reports() {
  const auto count = static_cast<size_t>(client_->store->add(kReportsKey, 0));
  read_.resize(std::max(read_.size(), count));
  std::vector<size_t> unread;
  for (size_t i = 0; i < read_.size(); ++i) {
    if (!read_[i]) unread.push_back(i);
  }
  read(unread);
  return reports_;
}

// A process may die between counting its report and writing it. So all are asked for at once; if one is
// missing, each half.
void FailureBoard::read(const std::vector<size_t>& orders) {
  if (orders.empty()) return;
  std::vector<std::string> keys;
  for (const auto order : orders) keys.push_back(report_key(order + 1));
  if (client_->store->check(keys)) {
    const auto texts = client_->store->multiGet(keys);
    for (size_t i = 0; i < orders.size(); ++i) take(orders[i], {texts[i].begin(), texts[i].end()});
  } else if (orders.size() > 1) {
    const auto middle = orders.begin() + static_cast<std::ptrdiff_t>(orders.size() / 2);
    read({orders.begin(), middle});
    read({middle, orders.end()});
  }
}

void FailureBoard::take(size_t order, const std::string& text) {
  auto parsed = parse_report(text);
  parsed.report.order = static_cast<int64_t>(order);
  auto& known = reports_.at(static_cast<size_t>(parsed.process));
  if (!known || known->order < parsed.report.order) known = std::move(parsed.report);
  read_[order] = true;
}

// One key at a time: what has ended here is of no interest to this process. Another one that still waits
// there writes the key again.
void FailureBoard::compare(const FailureReport& waits, FailureReports& reports) {
  const auto key = fmt::format("failure/waits/{}/{}", waits.channel, waits.number);
  if (!compared_key_.empty() && compared_key_ != key) client_->store->deleteKey(compared_key_);
  compared_key_ = key;
  const auto first =
      client_->store->compareSet(compared_key_, std::string(), text_of_report(process_, waits));
  auto parsed = parse_report(first);
  reports.at(static_cast<size_t>(parsed.process)) = std::move(parsed.report);
}

void FailureBoard::beat() { client_->store->add(beat_key(process_), 1); }

int64_t FailureBoard::beats(int process) { return client_->store->add(beat_key(process), 0); }

Verdict FailureBoard::agree(const Verdict& own) {
  return parse_verdict(client_->store->compareSet(kVerdictKey, std::string(), text_of_verdict(own)));
}

std::optional<Verdict> FailureBoard::verdict() {
  if (!has(kVerdictKey)) return std::nullopt;
  return parse_verdict(client_->store->get_to_str(kVerdictKey));
}

void FailureBoard::leave() { client_->store->set(left_key(process_), std::string("1")); }

bool FailureBoard::left(int process) { return has(left_key(process)); }

}  // namespace lockstep
