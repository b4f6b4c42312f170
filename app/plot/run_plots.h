// The pictures of a run, renewed while it trains.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include <lockstep/app/terminal/line_timer.h>
#include <lockstep/parallel/threads/task_thread.h>

namespace lockstep {

// Draws what the folder's metrics.jsonl holds to plots/accuracy_and_loss.svg and .png there. Each appears
// whole. Throws OutputError; FailedError if this build has no cairo; DataError if there is nothing to draw.
void draw_run(const std::filesystem::path& folder);

// Draws in a thread of low priority while the run trains, and at its end in the calling thread. A picture
// that cannot be drawn gives one warning, whatever its reason. Not thread-safe.
class RunPlots {
 public:
  // Drawings may take this share of the time, so that short epochs are not held up by their pictures. The
  // first one is taken to last kFirstDrawing seconds.
  static constexpr double kMostTime = .05;
  static constexpr double kFirstDrawing = .1;

  // draw: draw_run(), or what a test counts.
  explicit RunPlots(std::function<void()> draw, SecondsClock clock = steady_seconds);

  ~RunPlots();  // as finish()
  RunPlots(const RunPlots&) = delete;
  RunPlots& operator=(const RunPlots&) = delete;

  // The metrics have this event. After an epoch it is drawn soon, unless the last drawing is so recent that
  // this one would take more than its share. Never waits.
  void recorded(const nlohmann::ordered_json& event);

  // Draws what has not been drawn.
  void finish();

 private:
  void draw();

  const std::function<void()> draw_;
  const SecondsClock clock_;
  bool posted_ = false;  // since the last finish()
  std::atomic<bool> stale_ = false;
  std::atomic<bool> queued_ = false;  // a drawing that has not begun: it will have all that there is by then
  std::atomic<double> next_;          // when the next drawing may begin
  bool warned_ = false;
  TaskThread thread_;  // last: it uses all of the above
};

}  // namespace lockstep
