#include <lockstep/app/plot/run_plots.h>

#include <fmt/format.h>

#include <exception>
#include <future>
#include <string>
#include <system_error>
#include <utility>

#include <lockstep/app/files/text_file.h>
#include <lockstep/app/plot/figures/figures.h>
#include <lockstep/app/plot/figures/source.h>
#include <lockstep/app/plot/picture/draw.h>
#include <lockstep/app/run_files/low_priority.h>
#include <lockstep/app/run_files/run_metrics.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/output_failure.h>
#include <lockstep/support/words_of.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

}  // namespace

void draw_run(const fs::path& folder) {
  auto source = plot::read_source((folder / kMetricsJsonl).native());
  source.path = fs::absolute(folder / kMetricsJsonl).lexically_normal().parent_path().native();  // its name
  const auto figure = plot::figure_of({std::move(source)});
  const auto plots = folder / "plots";
  std::error_code error;
  fs::create_directory(plots, error);
  if (error) throw output_failure(fmt::format("cannot make '{}'", plots.native()), error.value());
  write_text_file(plots / "accuracy_and_loss.svg", plot::draw(figure, plot::PictureFormat::kSvg));
  write_text_file(plots / "accuracy_and_loss.png", plot::draw(figure, plot::PictureFormat::kPng));
}

RunPlots::RunPlots(std::function<void()> draw, SecondsClock clock)
    : draw_(std::move(draw)),
      clock_(std::move(clock)),
      next_(clock_() + kFirstDrawing / kMostTime),
      thread_(lower_priority) {}

RunPlots::~RunPlots() { finish(); }

void RunPlots::recorded(const nlohmann::ordered_json& event) {
  const auto name = event.value("event", "");
  if (name != "step" && name != "epoch") return;
  stale_ = true;
  if (name == "step" || clock_() < next_ || queued_.exchange(true)) return;
  posted_ = true;
  thread_.post([this] { draw(); });
}

void RunPlots::finish() {
  if (std::exchange(posted_, false)) {
    std::promise<void> done;
    thread_.post([&done] { done.set_value(); });
    done.get_future().wait();
  }
  if (stale_) draw();
}

void RunPlots::draw() {
  queued_ = false;
  stale_ = false;
  const double begin = clock_();
  try {
    draw_();
  } catch (const std::exception& error) {
    if (!std::exchange(warned_, true))
      warn(fmt::format("the plots of the run are not renewed: {}", words_of(error)));
  }
  const double end = clock_();
  next_ = end + (end - begin) * (1 / kMostTime - 1);
}

}  // namespace lockstep
