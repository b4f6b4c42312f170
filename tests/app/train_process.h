// Runs the program's commands as processes, for tests.
#pragma once

#include <signal.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/process.h>
#include <lockstep/tests/support/temp_folder.h>

namespace lockstep::testing {

using Words = std::vector<std::string>;

inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline Process program(const Words& words, std::map<std::string, std::string> environment = {}) {
  Process process;
  process.command = Words{LOCKSTEP_PROGRAM} + words;
  process.environment = std::move(environment);
  return process;
}

// A quick run. `words` replace its default flags.
inline Process train(const Words& words) {
  const std::vector<std::pair<std::string, std::string>> small = {
      {"--data", "synthetic"}, {"--limit-train", "640"}, {"--batch-size", "128"}, {"--threads", "1"}};
  Words all = {"train"};
  for (const auto& [flag, value] : small) {
    if (std::find(words.begin(), words.end(), flag) == words.end()) all = all + Words{flag, value};
  }
  return program(all + words);
}

// Runs the process and sends it the signal once it has printed `line`. Calls `look` before that.
inline ProcessResult stopped_at(const std::string& line, int signal, Process process,
                                const std::function<void(pid_t)>& look = {}) {
  bool sent = false;
  process.on_output = [&](pid_t pid, const std::string& out) {
    if (sent || out.find(line) == std::string::npos) return;
    if (look) look(pid);
    ::kill(pid, signal);
    sent = true;
  };
  const auto result = run_process(process);
  CHECK(sent);
  return result;
}

// Starts a small run without end and stops it with the signal.
inline ProcessResult stopped_run(const Words& words, int signal, const std::string& line,
                                 const std::function<void(pid_t)>& look = {}) {
  return stopped_at(line, signal, train(Words{"--epochs", "1000000"} + words), look);
}

inline Words lines(const std::string& text) {
  Words result;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) result.push_back(line);
  return result;
}

// The words of the text with one blank between any two.
inline std::string with_single_blanks(const std::string& text) {
  std::string result;
  std::istringstream in(text);
  for (std::string word; in >> word;) result += (result.empty() ? "" : " ") + word;
  return result;
}

// In bytes. A terminal ends its lines with "\r\n".
inline size_t widest_line(const std::string& text) {
  size_t widest = 0;
  for (const auto& line : lines(text)) {
    widest = std::max(widest, line.size() - (line.ends_with('\r') ? 1u : 0u));
  }
  return widest;
}

inline std::string weights_hash(const Words& words) {
  auto all = words + Words{"--print-weights-hash", "--quiet"};
  if (std::find(words.begin(), words.end(), "--epochs") == words.end()) all = all + Words{"--epochs", "1"};
  const auto result = run_process(train(all));
  REQUIRE(result.exit_code == 0);
  std::smatch match;
  REQUIRE(std::regex_search(result.out, match, std::regex("^weights sha256: ([0-9a-f]{64})\n")));
  return match[1];
}

// Free memory of the machine without swapping; 0 if unknown.
inline int64_t available_bytes() {
  std::ifstream info("/proc/meminfo");
  for (std::string word; info >> word;) {
    int64_t kibibytes = 0;
    if (word == "MemAvailable:" && info >> kibibytes) return 1024 * kibibytes;
  }
  return 0;
}

// The lines of a --metrics file.
inline std::vector<nlohmann::json> metrics_in(const std::string& file) {
  std::vector<nlohmann::json> events;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) events.push_back(nlohmann::json::parse(line));
  return events;
}

// The metrics of a run that must succeed.
inline std::vector<nlohmann::json> metrics_of(const Words& words) {
  const testing::TempFolder folder;
  const auto file = (folder / "run.jsonl").string();
  const auto result = run_process(train(words + Words{"--metrics", file, "--quiet"}));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return metrics_in(file);
}

inline std::vector<nlohmann::json> events_named(const std::string& name,
                                                const std::vector<nlohmann::json>& events) {
  std::vector<nlohmann::json> result;
  for (const auto& event : events) {
    if (event.at("event") == name) result.push_back(event);
  }
  return result;
}

// The learning rates of these events of steps, each once for consecutive steps that have it.
inline std::vector<double> rates_in(const std::vector<nlohmann::json>& events) {
  std::vector<double> rates;
  for (const auto& step : events_named("step", events)) {
    const double rate = step.at("lr");
    if (rates.empty() || rates.back() != rate) rates.push_back(rate);
  }
  return rates;
}

// Runs a process that must end with this exit code.
inline ProcessResult run_ending(int exit_code, const Process& process) {
  auto result = run_process(process);
  INFO(result.err);
  CHECK(result.exit_code == exit_code);
  return result;
}

// The command must print nothing to standard output, end with this exit code, and print one error of at most
// two lines. Returns the error.
inline std::string refusal(const Process& process, int exit_code) {
  const auto result = run_ending(exit_code, process);
  CHECK(result.out.empty());
  CHECK(result.err.rfind("lockstep: error: ", 0) == 0);
  CHECK(lines(result.err).size() <= 2);
  return result.err;
}

}  // namespace lockstep::testing
