#include <lockstep/app/train/run_output.h>

#include <nlohmann/json.hpp>
#include <utility>

#include <lockstep/app/terminal/terminal.h>
#include <lockstep/support/error.h>

namespace lockstep {

RunOutput::RunOutput(bool quiet, std::vector<LineFile*> files) : quiet_(quiet), files_(std::move(files)) {
  std::erase(files_, nullptr);
}

void RunOutput::print(const std::string& line) {
  if (!quiet_) attempt([&] { write_stdout(line + "\n"); });
}

void RunOutput::record(const nlohmann::ordered_json& event) {
  using Json = nlohmann::ordered_json;
  const auto line = event.dump(-1, ' ', false, Json::error_handler_t::replace);  // a path may hold any bytes
  for (auto* file : files_) attempt([&] { file->append_line(line); });
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
