#include <lockstep/app/logging.h>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <utility>

namespace lockstep {
namespace {

// "warning: " before a warning, nothing before information.
class LevelPrefix : public spdlog::custom_flag_formatter {
 public:
  explicit LevelPrefix(Style style) : style_(std::move(style)) {}

  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& into) override {
    if (message.level < spdlog::level::warn) return;
    const auto prefix =
        message.level == spdlog::level::warn ? style_.yellow("warning:") : style_.red("error:");
    into.append(prefix + " ");
  }

  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
    return std::make_unique<LevelPrefix>(style_);
  }

 private:
  Style style_;
};

}  // namespace

void set_up_logging(const Terminal& terminal) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelPrefix>('*', terminal.style()).set_pattern("lockstep: %*%v");
  auto logger =
      std::make_shared<spdlog::logger>("lockstep", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_formatter(std::move(formatter));
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace lockstep
