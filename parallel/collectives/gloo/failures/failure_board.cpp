#include <lockstep/parallel/collectives/gloo/failures/failure_board.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/parallel/collectives/gloo/c10d_store.h>

namespace lockstep {
namespace {

using nlohmann::json;

constexpr const char* kReportsKey = "failure/reports";  // their number
constexpr const char* kVerdictKey = "failure/verdict";

std::string report_key(size_t order) { return fmt::format("failure/report/{}", order); }
std::string left_key(int process) { return fmt::format("failure/left/{}", process); }
std::string beat_key(int process) { return fmt::format("failure/beat/{}", process); }

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FailureReport, process, kind, name, text, code, collective, number,
                                   channel, seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Verdict, blamed, text, hint)

FailureBoard::FailureBoard(std::shared_ptr<C10dStore> client, int process, int processes)
    : client_(std::move(client)), process_(process), reports_(static_cast<size_t>(processes)) {}

bool FailureBoard::has(const std::string& key) const { return client_->store->check({key}); }

std::string FailureBoard::set_if_new(const std::string& key, const json& value) {
  return client_->store->compareSet(key, std::string(), wire_text(value));
}

void FailureBoard::publish(FailureReport report) {
  report.process = process_;
  const auto order = static_cast<size_t>(client_->store->add(kReportsKey, 1));
  client_->store->set(report_key(order), wire_text(report));
}

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
  auto report = json::parse(text).get<FailureReport>();
  report.order = static_cast<int64_t>(order);
  auto& known = reports_.at(static_cast<size_t>(report.process));
  if (!known || known->order < report.order) known = std::move(report);
  read_[order] = true;
}

// One key at a time: what has ended here is of no interest to this process. Another one that still waits
// there writes the key again.
void FailureBoard::compare(const FailureReport& waits, FailureReports& reports) {
  const auto key = fmt::format("failure/waits/{}/{}", waits.channel, waits.number);
  if (!compared_key_.empty() && compared_key_ != key) client_->store->deleteKey(compared_key_);
  compared_key_ = key;
  auto first = json::parse(set_if_new(compared_key_, waits)).get<FailureReport>();
  reports.at(static_cast<size_t>(first.process)) = std::move(first);
}

void FailureBoard::beat() { client_->store->add(beat_key(process_), 1); }

int64_t FailureBoard::beats(int process) { return client_->store->add(beat_key(process), 0); }

Verdict FailureBoard::agree(const Verdict& own) {
  return json::parse(set_if_new(kVerdictKey, own)).get<Verdict>();
}

std::optional<Verdict> FailureBoard::verdict() {
  if (!has(kVerdictKey)) return std::nullopt;
  return json::parse(client_->store->get_to_str(kVerdictKey)).get<Verdict>();
}

void FailureBoard::leave() { client_->store->set(left_key(process_), std::string("1")); }

bool FailureBoard::left(int process) { return has(left_key(process)); }

}  // namespace lockstep
