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

// The report of this kind that came first; null: none.
const FailureReport* first_report(const FailureReports& reports, ReportKind kind) {
  const FailureReport* first = nullptr;
  for (const auto& report : reports) {
    if (report && report->kind == kind && (!first || report->order < first->order)) first = &*report;
  }
  return first;
}

int process_of(const FailureReports& reports, const FailureReport& wanted) {
  int process = 0;
  while (!reports[static_cast<size_t>(process)] || &*reports[static_cast<size_t>(process)] != &wanted)
    ++process;
  return process;
}

std::vector<int> processes_with(const FailureReports& reports, ReportKind kind) {
  std::vector<int> found;
  for (size_t i = 0; i < reports.size(); ++i) {
    if (reports[i] && reports[i]->kind == kind) found.push_back(static_cast<int>(i));
  }
  return found;
}

std::vector<int> silent_processes(const FailureReports& reports) {
  std::vector<int> found;
  for (size_t i = 0; i < reports.size(); ++i) {
    if (!reports[i]) found.push_back(static_cast<int>(i));
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

// "process 0 waited for allreduce 17 of 25,600 float32 for 0.2 s"
std::string waiting_text(const FailureReports& reports, const FailureReport& waits) {
  return fmt::format("process {} waited for {} for {:.1f} s", process_of(reports, waits), waits.collective,
                     waits.seconds);
}

// The first report that says for what its process waited; null: none.
const FailureReport* first_waiting(const FailureReports& reports) {
  const FailureReport* first = nullptr;
  for (const auto& report : reports) {
    if (!report || report->kind != ReportKind::kWaits || report->collective.empty()) continue;
    if (!first || report->order < first->order) first = &*report;
  }
  return first;
}

Verdict blame(std::vector<int> blamed, const std::string& what, const FailureReports& reports,
              const std::string& hint) {
  const auto* waits = first_waiting(reports);
  return {.blamed = std::move(blamed),
          .text = waits ? fmt::format("{}; {}", what, waiting_text(reports, *waits)) : what,
          .hint = hint};
}

Verdict blame_error(const FailureReports& reports, const FailureReport& error) {
  const int process = process_of(reports, error);
  const auto name = error.name.empty() ? fmt::format("process {}", process) : error.name;
  return {.blamed = {process},
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

// Two processes that wait for different collectives in one place of a channel's order; second is null if
// there are none. Different places prove nothing: a sum may have ended in one process and not in another.
struct Disagreement {
  const FailureReport* first = nullptr;
  const FailureReport* second = nullptr;
};

Disagreement find_disagreement(const FailureReports& reports) {
  for (const auto& first : reports) {
    if (!first || first->collective.empty()) continue;
    for (const auto& second : reports) {
      if (!second || second->collective.empty() || second->channel != first->channel) continue;
      if (second->number == first->number && second->collective != first->collective)
        return {.first = &*first, .second = &*second};
    }
  }
  return {};
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
  const auto* first = first_report(reports, ReportKind::kWaits);
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

std::optional<Verdict> find_different_calls(const FailureReports& reports) {
  const auto differ = find_disagreement(reports);
  if (!differ.second) return std::nullopt;
  return Verdict{
      .text = fmt::format("the processes wait for different collectives: process {} for {}, process {} "
                          "for {}",
                          process_of(reports, *differ.first), differ.first->collective,
                          process_of(reports, *differ.second), differ.second->collective),
      .hint =
          "all processes make the same calls in the same order. If a Trainer makes them, requires_grad "
          "may have changed in one process alone"};
}

Verdict judge(const FailureReports& reports, const std::vector<Presence>& processes,
              const StoreStatus& store) {
  if (const auto* error = first_report(reports, ReportKind::kError)) return blame_error(reports, *error);
  if (!store.answers && !host_has_left(reports, store)) return blame_store(reports, processes, store);
  if (const auto silent = silent_processes(reports); store.answers && !silent.empty()) {
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
