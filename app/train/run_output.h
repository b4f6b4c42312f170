// Where the lines and events of a run go.
#pragma once

#include <exception>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include <lockstep/app/files/line_file.h>

namespace lockstep {

// Writes lines for people to standard output, and events as JSON lines to files. An output that fails does
// not throw: the run ends its step, asks failed() and keeps its weights. Not thread-safe.
class RunOutput {
 public:
  // quiet: prints no lines. files: for the events; null ones are left out.
  RunOutput(bool quiet, std::vector<LineFile*> files);

  void print(const std::string& line);
  void record(const nlohmann::ordered_json& event);

  // Calls write(), and keeps the OutputError that it throws.
  void attempt(const std::function<void()>& write);

  bool failed() const { return first_error_ != nullptr; }

  // Throws the first OutputError, if there was one.
  void throw_if_failed() const;

 private:
  const bool quiet_;
  std::vector<LineFile*> files_;
  std::exception_ptr first_error_;
};

}  // namespace lockstep
