#include <lockstep/parallel/collectives/gloo/failures/verdict.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include <lockstep/parallel/collectives/gloo/messages.h>

namespace lockstep {
namespace {

constexpr size_t kMostPlaces = 3;  // processes that are named with their pids
constexpr const char* kSilentHint =
    "see its last output, and whether the system killed it, for want of memory for example (dmesg); if it is "
    "only slow use a longer timeout";

// The first of the reports that have this; null: none.
template <typename Has>
const FailureReport* first_with(const FailureReports& reports, const Has& has) {
  const FailureReport* first = nullptr;
  for (const auto& report : reports) {
    if (report && has(*report) && (!first || report->order < first->order)) first = &*report;
  }
  return first;
}

const FailureReport* first_of(const FailureReports& reports, ReportKind kind) {
  return first_with(reports, [&](const auto& report) { return report.kind == kind; });
}

// kind: nullopt for the processes that are silent.
std::vector<int> processes_with(const FailureReports& reports, std::optional<ReportKind> kind) {
  std::vector<int> found;
  for (size_t i = 0; i < reports.size(); ++i) {
    const auto own = reports[i] ? std::optional(reports[i]->kind) : std::nullopt;
    if (own == kind) found.push_back(static_cast<int>(i));
  }
  return found;
}

// "process 1 of 3 (node2, pid 77)"; of many processes only the hosts.
std::string with_places(const std::vector<int>& blamed, const std::vector<Presence>& all) {
  std::vector<std::string> places;
  std::set<std::string> hosts;
  for (const int process : blamed) {
    const auto& place = all[static_cast<size_t>(process)];
    places.push_back(fmt::format("{}, pid {}", place.host, place.pid));
    hosts.insert(place.host);
  }
  const auto named = name_processes(blamed, static_cast<int>(all.size()));
  if (blamed.size() <= kMostPlaces) return fmt::format("{} ({})", named, fmt::join(places, "; "));
  return fmt::format("{} ({})", named, fmt::join(hosts, ", "));
}

// Blames these processes. Adds for what the first process that says so has waited.
Verdict blame(std::vector<int> blamed, const std::string& what, const FailureReports& reports,
              const std::string& hint) {
  Verdict verdict{.blamed = std::move(blamed), .text = what, .hint = hint};
  if (const auto* waits =
          first_with(reports, [](const auto& report) { return !report.collective.empty(); })) {
    verdict.text += fmt::format("; process {} waited for {} for {:.1f} s", waits->process, waits->collective,
                                waits->seconds);
  }
  return verdict;
}

Verdict blame_error(const FailureReport& error) {
  const auto name = error.name.empty() ? fmt::format("process {}", error.process) : error.name;
  return {.blamed = {error.process},
          .text = fmt::format("{} failed first: {}", name, error.text),
          .hint = fmt::format("it ended with code {}: see its own message", error.code)};
}

Verdict blame_store(const FailureReports& reports, const std::vector<Presence>& processes,
                    const StoreStatus& store) {
  if (store.of_launcher) {
    return blame({}, fmt::format("the launcher's store at {} does not answer", store.place), reports,
                 "see the launcher's message, and those of other processes");
  }
  const auto what = fmt::format("{} does not answer, nor does the store that it serves: it ended or hangs",
                                with_places({0}, processes));
  return blame({0}, what, reports, kSilentHint);
}

// Gloo's words of a lost connection: "Connection closed by peer [10.0.0.2]:40412", "Broken pipe".
bool speaks_of_connection(const std::string& words) {
  return words.find("onnection") != std::string::npos || words.find("Broken pipe") != std::string::npos;
}

// "process 0 of 2 for allreduce 3 of 5 float32 on communicator 0; process 1 of 2 for gather 2 of 1 bytes on
// the store"; empty if all wait for the same.
std::string different_waits(const FailureReports& reports) {
  std::vector<std::pair<std::string, std::vector<int>>> waiting;
  for (size_t i = 0; i < reports.size(); ++i) {
    if (!reports[i] || reports[i]->collective.empty()) continue;
    const auto what = fmt::format("{} on {}", reports[i]->collective, reports[i]->channel);
    auto known =
        std::find_if(waiting.begin(), waiting.end(), [&](const auto& one) { return one.first == what; });
    if (known == waiting.end()) known = waiting.insert(known, {what, {}});
    known->second.push_back(static_cast<int>(i));
  }
  if (waiting.size() < 2) return {};
  std::vector<std::string> texts;
  texts.reserve(waiting.size());
  for (const auto& [what, processes] : waiting) {
    texts.push_back(
        fmt::format("{} for {}", name_processes(processes, static_cast<int>(reports.size())), what));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

// Every process answers, and every one has lost another one.
Verdict blame_nobody(const FailureReports& reports) {
  if (const auto differ = find_different_calls(reports)) return *differ;
  const auto* first = first_of(reports, ReportKind::kWaits);
  const auto words = first ? first->text : std::string();
  if (speaks_of_connection(words)) {
    return {.text = "all processes answer, but they have lost their connections: " + words,
            .hint = "check the network between the hosts"};
  }
  constexpr const char* what = "all processes answer, and wait for each other";
  constexpr const char* hint =
      "all processes make the same calls in the same order: see whether theirs differ; if not check the "
      "network between the hosts";
  if (const auto waits = different_waits(reports); !waits.empty()) {
    return {.text = fmt::format("{}: {}", what, waits), .hint = hint};
  }
  if (words.empty()) return blame({}, what, reports, hint);
  return {.text = fmt::format("{}: {}", what, words), .hint = hint};
}

// It was done, and has taken the store along.
bool host_has_left(const FailureReports& reports, const StoreStatus& store) {
  return !store.of_launcher && reports.front() && reports.front()->kind == ReportKind::kLeft;
}

}  // namespace

ReportKind kind_of_end(int code) {
  if (code == static_cast<int>(ExitCode::kDone)) return ReportKind::kLeft;
  return code == static_cast<int>(ExitCode::kPeer) ? ReportKind::kWaits : ReportKind::kError;
}

// All have the same error of usage, and when process 0 cannot write its output the others end with its code.
bool is_error_of_all(int code) {
  return code == static_cast<int>(ExitCode::kUsage) || code == static_cast<int>(ExitCode::kOutput);
}

bool has_failed(const FailureReports& reports) {
  return std::any_of(reports.begin(), reports.end(),
                     [](const auto& report) { return report && report->kind != ReportKind::kLeft; });
}

const FailureReport* most_to_blame(const FailureReports& reports) {
  const FailureReport* blamed = nullptr;
  for (const auto kind : {ReportKind::kError, ReportKind::kLeft, ReportKind::kBusy, ReportKind::kWaits}) {
    if (!blamed) blamed = first_of(reports, kind);
  }
  const auto& of_first = reports.front();
  const bool shared = blamed && is_error_of_all(blamed->code) && of_first && of_first->code == blamed->code;
  return shared ? &*of_first : blamed;
}

bool is_certain(const FailureReport& blamed, const FailureReports& reports) {
  return blamed.kind == ReportKind::kError && (!is_error_of_all(blamed.code) || reports.front());
}

// Different places in the order prove nothing: a sum may have ended in one process and not in another.
std::optional<Verdict> find_different_calls(const FailureReports& reports) {
  for (const auto& first : reports) {
    for (const auto& second : reports) {
      const bool both_wait = first && second && !first->collective.empty() && !second->collective.empty();
      if (!both_wait || second->channel != first->channel || second->number != first->number) continue;
      if (second->collective == first->collective) continue;
      return Verdict{
          .text = fmt::format("the processes wait for different collectives: process {} for {}, process {} "
                              "for {}",
                              first->process, first->collective, second->process, second->collective),
          .hint =
              "all processes make the same calls in the same order. If a Trainer makes them, requires_grad "
              "may have changed in one process alone"};
    }
  }
  return std::nullopt;
}

Verdict judge(const FailureReports& reports, const std::vector<Presence>& processes,
              const StoreStatus& store) {
  const auto* worst = most_to_blame(reports);
  if (worst && worst->kind == ReportKind::kError) return blame_error(*worst);
  if (!store.answers && !host_has_left(reports, store)) return blame_store(reports, processes, store);
  if (const auto silent = processes_with(reports, std::nullopt); store.answers && !silent.empty()) {
    const auto what = fmt::format(
        "{} {}", with_places(silent, processes),
        silent.size() == 1 ? "does not answer: it ended or hangs" : "do not answer: they ended or hang");
    return blame(silent, what, reports, kSilentHint);
  }
  if (const auto left = processes_with(reports, ReportKind::kLeft); !left.empty()) {
    return blame(left, fmt::format("{} left before the others", with_places(left, processes)), reports,
                 "all processes make the same calls in the same order: see why that one was done");
  }
  const auto busy = processes_with(reports, ReportKind::kBusy);
  if (!busy.empty() && busy.size() < reports.size()) {
    const auto what = fmt::format("{} {}", with_places(busy, processes),
                                  busy.size() == 1 ? "answers but takes no part: it still computes, or hangs"
                                                   : "answer but take no part: they still compute, or hang");
    return blame(busy, what, reports, "if a process is only slow use a longer timeout");
  }
  return blame_nobody(reports);
}

}  // namespace lockstep
