#include <lockstep/app/terminal/logging.h>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <lockstep/app/terminal/live_block.h>

namespace lockstep {
namespace {

constexpr const char* kInformation = "information";

std::shared_ptr<spdlog::logger> make_logger(const char* name, const std::string& pattern) {
  auto logger = std::make_shared<spdlog::logger>(name, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern(pattern);
  return logger;
}

struct Copies {
  std::mutex mutex;
  std::function<void(std::string_view)> copy;
};

Copies& copies() {
  static Copies all;
  return all;
}

void set_copy(std::function<void(std::string_view)> copy) {
  const std::lock_guard lock(copies().mutex);
  copies().copy = std::move(copy);
}

void give_copy(const std::string& message) {
  const std::lock_guard lock(copies().mutex);
  if (copies().copy) copies().copy(message);
}

}  // namespace

void set_up_logging(const Terminal& terminal) {
  spdlog::set_default_logger(
      make_logger("warnings", "lockstep: " + terminal.style().yellow("warning:") + " %v"));
  spdlog::drop(kInformation);  // if set up before
  spdlog::register_logger(make_logger(kInformation, "lockstep: %v"));
}

void warn(std::string_view message) {
  const AboveBlock above(STDERR_FILENO);
  spdlog::warn(message);
  give_copy("warning: " + std::string(message));
}

void inform(std::string_view message) {
  const AboveBlock above(STDERR_FILENO);
  if (const auto logger = spdlog::get(kInformation)) logger->info(message);
  give_copy(std::string(message));
}

MessageCopies::MessageCopies(std::function<void(std::string_view)> copy) { set_copy(std::move(copy)); }

MessageCopies::~MessageCopies() { set_copy({}); }

}  // namespace lockstep
