// The pictures of a run: what is drawn, and when.
#include <lockstep/tests/catch.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/app/plot/run_plots.h>
#include <lockstep/app/run_files/run_metrics.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/plot/plot_files.h>
#include <lockstep/tests/support/files.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

const nlohmann::ordered_json kStep = {{"event", "step"}};
const nlohmann::ordered_json kEpoch = {{"event", "epoch"}};

// Counts drawings, and those in another thread.
class Drawings {
 public:
  std::atomic<int> count = 0;
  std::atomic<int> in_background = 0;
  std::atomic<double> now = 0;
  std::promise<void> began;
  std::promise<void> go;

  // Each takes so many seconds.
  std::function<void()> lasting(double seconds) {
    return [this, seconds] {
      add();
      now = now + seconds;
    };
  }
  std::function<void()> first_waits() {
    return [this] {
      add();
      if (count > 1) return;
      began.set_value();
      go.get_future().wait();
    };
  }
  SecondsClock clock() {
    return [this] { return now.load(); };
  }

 private:
  void add() {
    ++count;
    if (std::this_thread::get_id() != main_) ++in_background;
  }

  const std::thread::id main_ = std::this_thread::get_id();
};

}  // namespace

TEST_CASE("a run's metrics are drawn to SVG and PNG under its folder's name, again and again") {
  const TempFolder folder;
  const auto path = folder / "lenet-0007";
  fs::create_directory(path);
  const auto all = run("[\"cpu\"]", "0.1");
  const auto second_epoch = all.find(R"({"event":"step","epoch":2)");
  write_file(path / kMetricsJsonl, all.substr(0, second_epoch));
  draw_run(path);
  const auto svg = read_file(path / "plots/accuracy_and_loss.svg");
  CHECK_THAT(svg, ContainsSubstring("<svg"));
  CHECK(read_file(path / "plots/accuracy_and_loss.png").starts_with("\x89PNG"));
  write_file(path / kMetricsJsonl, all + "{\"event\":\"ste");  // a line that is being written
  draw_run(path);
  CHECK(read_file(path / "plots/accuracy_and_loss.svg") != svg);
  CHECK(std::distance(fs::directory_iterator(path / "plots"), {}) == 2);
}

TEST_CASE("a run without a line to draw is an error of the drawing") {
  const TempFolder folder;
  write_file(folder / kMetricsJsonl, "{\"event\":\"plan\",\"steps_per_epoch\":4}\n");
  CHECK_THROWS_AS(draw_run(folder.path()), DataError);
}

TEST_CASE("an epoch does not wait for a drawing under way, and what came since is drawn once") {
  Drawings drawings;
  RunPlots plots(drawings.first_waits(), drawings.clock());
  drawings.now = 100;
  plots.recorded(kEpoch);
  drawings.began.get_future().wait();
  plots.recorded(kEpoch);
  plots.recorded(kEpoch);
  plots.recorded(kEpoch);
  CHECK(drawings.count == 1);
  drawings.go.set_value();
  plots.finish();
  CHECK(drawings.count == 2);
  plots.finish();
  CHECK(drawings.count == 2);
}

TEST_CASE("the end draws what has changed, and nothing twice") {
  Drawings drawings;
  RunPlots plots(drawings.lasting(0), drawings.clock());
  plots.finish();
  plots.recorded({{"event", "end"}});
  plots.finish();
  CHECK(drawings.count == 0);
  plots.recorded(kStep);
  plots.finish();
  CHECK(drawings.count == 1);
  plots.finish();
  CHECK(drawings.count == 1);
  CHECK(drawings.in_background == 0);
}

TEST_CASE("a run that ends by an error is drawn, too") {
  Drawings drawings;
  { RunPlots(drawings.lasting(0), drawings.clock()).recorded(kStep); }
  CHECK(drawings.count == 1);
}

TEST_CASE("drawings in the background take at most a twentieth of the time") {
  Drawings drawings;
  RunPlots plots(drawings.lasting(1), drawings.clock());
  drawings.now = 1.9;  // the first drawing is not before two seconds have passed
  plots.recorded(kEpoch);
  drawings.now = 2.5;
  plots.recorded(kStep);
  CHECK(drawings.count == 0);
  plots.recorded(kEpoch);
  plots.finish();
  CHECK(drawings.in_background == 1);  // until second 3.5
  for (const double second : {4., 10., 22.}) {
    drawings.now = second;
    plots.recorded(kEpoch);
  }
  drawings.now = 23;
  plots.recorded(kEpoch);
  plots.finish();
  CHECK(drawings.in_background == 2);
  CHECK(drawings.count == 2);
  plots.recorded(kEpoch);
  plots.finish();  // the end waits for no share
  CHECK(drawings.count == 3);
  CHECK(drawings.in_background == 2);
}

TEST_CASE("what cannot be drawn ends nothing and is told once") {
  std::atomic<int> count = 0;
  std::vector<std::string> messages;
  const MessageCopies copies([&](std::string_view message) { messages.emplace_back(message); });
  RunPlots plots([&] { throw OutputError("drawing " + std::to_string(++count)); });
  for (int epoch = 0; epoch < 3; ++epoch) {
    plots.recorded(kStep);
    plots.finish();
  }
  CHECK(count == 3);
  CHECK(messages == std::vector<std::string>{"warning: the plots of the run are not renewed: drawing 1"});
}
