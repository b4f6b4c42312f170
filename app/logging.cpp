#include <lockstep/app/logging.h>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

namespace lockstep {

void set_up_logging(const Terminal& terminal) {
  auto logger =
      std::make_shared<spdlog::logger>("lockstep", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("lockstep: " + terminal.style().yellow("warning:") + " %v");
  spdlog::set_default_logger(std::move(logger));
}

void warn(std::string_view message) { spdlog::warn(message); }

}  // namespace lockstep
