#include <lockstep/app/processes/together.h>

#include <c10/util/Logging.h>
#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <string>
#include <utility>

#include <lockstep/app/cli/as_error.h>
#include <lockstep/app/files/json_file.h>
#include <lockstep/app/machine/version.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// {"version", "value"}, or {"version", "error": {"code", "what", "hint"}}
using Told = nlohmann::ordered_json;

Told told_error(const std::exception_ptr& thrown) {
  const auto error = as_error(thrown);
  Told told;
  told["code"] = static_cast<int>(error.exit_code());
  told["what"] = error.message();
  told["hint"] = error.hint();
  return told;
}

// Another version may say other things.
Told read_told(const std::string& text) {
  auto told = Told::parse(text, nullptr, /*allow_exceptions=*/false);
  if (told.is_object() && told.contains("version")) return told;
  told = Told::object();
  told["version"] = "unknown";
  return told;
}

constexpr const char* kUnknown = "unknown";  // a build without git

std::string commit_of(const Told& told) { return told.value("commit", kUnknown); }

std::string program_of(const Told& told) {
  const auto version = told.at("version").get<std::string>();
  return told.contains("commit") ? fmt::format("{} of commit {}", version, commit_of(told)) : version;
}

bool same_program(const Told& a, const Told& b) {
  const bool known = commit_of(a) != kUnknown && commit_of(b) != kUnknown;
  return a.at("version") == b.at("version") && (!known || commit_of(a) == commit_of(b));
}

void refuse_other_versions(const std::vector<Told>& all) {
  for (size_t process = 1; process < all.size(); ++process) {
    if (same_program(all[process], all[0])) continue;
    throw UsageError(fmt::format("process {} is {}, process 0 is {}", process, program_of(all[process]),
                                 program_of(all[0])),
                     "start the same program on all hosts");
  }
}

void throw_error_of(const std::vector<Told>& all) {
  for (size_t process = 0; process < all.size(); ++process) {
    if (!all[process].contains("error")) continue;
    const auto& error = all[process].at("error");
    throw Error(static_cast<ExitCode>(error.at("code").get<int>()),
                fmt::format("process {} cannot start: {}", process, error.at("what").get<std::string>()),
                error.at("hint").get<std::string>());
  }
}

// The error that a process ends by: where it has lost another one, with what all of them know.
Error explained(const TrainWorld& world, const Error& error) {
  if (!world.process_group) return error;
  const auto own = std::make_exception_ptr(error);
  const auto common = world.process_group->explain(own, world.name());
  return common == own ? error : as_error(common);
}

}  // namespace

std::vector<nlohmann::ordered_json> together(const TrainWorld& world,
                                             const std::function<nlohmann::ordered_json()>& action) {
  std::vector<nlohmann::ordered_json> values;
  if (world.single_process()) {
    values.push_back(action());
    return values;
  }
  Told own;
  own["version"] = version_text();
  own["commit"] = built_commit();
  std::exception_ptr failed;
  try {
    own["value"] = action();
  } catch (const std::exception&) {
    failed = std::current_exception();
    own["error"] = told_error(failed);
  }
  std::vector<Told> all;
  try {
    for (const auto& text : world.process_group->gather(json_line(own))) all.push_back(read_told(text));
  } catch (const std::exception&) {
    if (!failed) throw;
  }
  if (failed) std::rethrow_exception(failed);
  refuse_other_versions(all);
  throw_error_of(all);
  for (auto& told : all) values.push_back(std::move(told.at("value")));
  return values;
}

void leave_together(const TrainWorld& world) noexcept {
  if (world.single_process()) return;
  try {
    world.process_group->gather("done");
  } catch (const std::exception&) {  // a process that has failed meanwhile
  }
}

void as_process(const TrainWorld& world, const std::function<void()>& action) {
  if (world.single_process()) return action();
  // When a process is lost c10d prints warnings with a stack: only errors that end the program are left.
  FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  try {
    action();
  } catch (const ReaderGoneError& error) {
    static_cast<void>(explained(world, error));  // this process says nothing, but the others do
    throw;
  } catch (const std::exception&) {
    throw ProcessError(world.name(), explained(world, as_error(std::current_exception())));
  }
}

}  // namespace lockstep
