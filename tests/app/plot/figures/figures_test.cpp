// From files to figures. Every test writes its file by hand.
#include <lockstep/tests/catch.h>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/tests/app/plot/plot_files.h>

using namespace lockstep::plot;
using namespace lockstep::testing;

namespace {

using Texts = std::vector<std::string>;

void check_points(const Series& series, const std::vector<std::pair<double, double>>& expected) {
  REQUIRE(series.points.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(series.points[i].x == Approx(expected[i].first));
    CHECK(series.points[i].y == Approx(expected[i].second));
  }
}

Texts legend_of(const Figure& figure) {
  Texts texts;
  for (const auto& entry : figure.legend) texts.push_back(entry.text);
  return texts;
}

}  // namespace

TEST_CASE("a run becomes two panels: accuracy, and loss by parts of an epoch") {
  const auto figure = figure_from({{"a/run.jsonl", run(R"(["cpu"])", "0.2")}});
  REQUIRE(figure.panels.size() == 2);
  CHECK(figure.columns == 2);
  const auto& accuracy = figure.panels[0];
  const auto& loss = figure.panels[1];
  REQUIRE(accuracy.series.size() == 2);
  check_points(accuracy.series[0], {{1, .25}, {2, .625}});
  check_points(accuracy.series[1], {{1, .5}, {2, .75}});
  REQUIRE(loss.series.size() == 2);
  check_points(loss.series[0], {{.5, 2.5}, {1, 2.25}, {1.75, 1.5}});  // step 3 of 4 in epoch 2
  check_points(loss.series[1], {{1, 2}, {2, 1.25}});
  for (const auto& panel : figure.panels) {
    CHECK(panel.x.label == "epoch");
    CHECK(panel.x.high == 2);
    CHECK(panel.series[0].style.pale);
    CHECK_FALSE(panel.series[1].style.pale);
    CHECK(panel.series[1].style.marker != Marker::kNone);
  }
  CHECK(figure.subtitle == "run.jsonl, lenet, [cpu], batch 256, lr 0.2, seed 3");
  CHECK(legend_of(figure) == Texts{"test, after each epoch", "while training"});
  CHECK(figure.summary == "test accuracy and losses of 1 run");
}

TEST_CASE("where a run has fewer lines of steps than of epochs, the loss of its epochs is drawn") {
  const auto plan = [](const std::string& loss) {
    return R"({"event":"plan","steps_per_epoch":2,"loss":)" + loss + R"(,"lr":0.2}
{"event":"epoch","epoch":1,"train_loss":3.5,"train_accuracy":0.25,"test_loss":2.0,"test_accuracy":0.5}
{"event":"step","epoch":2,"step":2,"loss":1.5}
{"event":"epoch","epoch":2,"train_loss":1.5,"train_accuracy":0.5,"test_loss":1.0,"test_accuracy":0.5}
)";
  };
  const auto figure = figure_from({{"run.jsonl", plan("null")}});
  check_points(figure.panels[1].series[0], {{1, 3.5}, {2, 1.5}});
  CHECK(figure.panels[1].y.label == "loss (mean cross-entropy)");
  CHECK(figure_from({{"run.jsonl", plan("\"mse:out\"")}}).panels[1].y.label == "loss (mean, mse:out)");
  CHECK(figure_from({{"a", plan("\"mse\"")}, {"b", plan("null")}}).panels[1].y.label == "loss (mean)");
}

TEST_CASE("a run in its first epoch shows the loss of its steps") {
  const auto whole = run(R"(["cpu"])", "0.2");
  const auto first = whole.substr(0, whole.find("{\"event\":\"epoch\""));
  const auto figure = figure_from({{"run.jsonl", first}});
  REQUIRE(figure.panels.size() == 1);
  CHECK(figure.panels[0].title == "loss");
  CHECK(figure.panels[0].x.high == 1);
  REQUIRE(figure.panels[0].series.size() == 1);
  check_points(figure.panels[0].series[0], {{.5, 2.5}, {1, 2.25}});
  CHECK(legend_of(figure) == Texts{"while training"});
  CHECK(figure.summary == "losses while training of 1 run");

  // Together with a run that has more epochs.
  const auto both = figure_from({{"one.jsonl", whole}, {"two.jsonl", first}});
  REQUIRE(both.panels.size() == 2);
  CHECK(both.panels[0].series.size() == 2);
  CHECK(both.panels[1].series.size() == 3);
  CHECK(legend_of(both).size() == 3);
}

TEST_CASE("diverged cells have no point, and a note says so") {
  const std::string cell =
      R"({"devices":"cpu","batch_size":256,"epochs":3,"lr":0.1,"accuracy":0.5,"diverged":false},)";
  const auto diverged = [](const std::string& lr) {
    return R"({"devices":"cpu","batch_size":256,"epochs":3,"lr":)" + lr +
           R"(,"accuracy":null,"diverged":true})";
  };
  const auto figure = figure_from(
      {{"s.json", sweep(cell + diverged("3.2") + "," + diverged("1.6") + "," + diverged("3.2"))}});
  CHECK(figure.subtitle.find("3 of 4 cells diverged (lr 1.6, 3.2); ") == 0);
  CHECK(figure.summary == "test accuracy against learning rate, 1 line; 3 of 4 cells diverged (lr 1.6, 3.2)");
  CHECK_THROWS_WITH(figure_from({{"s.json", sweep(diverged("1.6"))}}),
                    Catch::Matchers::ContainsSubstring("1 of 1 cell diverged"));
}

TEST_CASE("the test point of a run that --limit-steps ended is drawn where it was measured") {
  const auto cut = [](const std::string& plan, const std::string& end) {
    return figure_from({{"run.jsonl", R"({"event":"plan","steps_per_epoch":235,)" + plan + R"("lr":0.2}
{"event":"step","epoch":1,"step":20,"loss":2.25}
{"event":"epoch","epoch":1,"train_accuracy":0.125,"test_loss":2.0,"test_accuracy":0.25}
)" + end + "\n"}});
  };
  const double at = 20. / 235;
  for (const auto* end :
       {R"({"event":"end","status":"done","steps":20})", R"({"event":"done","steps":20})"}) {
    const auto figure = cut(R"("total_steps":20,)", end);
    check_points(figure.panels[0].series[0], {{at, .125}});
    check_points(figure.panels[0].series[1], {{at, .25}});
    check_points(figure.panels[1].series[0], {{at, 2.25}});  // at its last step
    check_points(figure.panels[1].series[1], {{at, 2}});
  }
  // A whole epoch, and a file without the number of steps.
  check_points(cut(R"("total_steps":235,)", "").panels[0].series[1], {{1, .25}});
  check_points(cut("", "").panels[0].series[1], {{1, .25}});
}

TEST_CASE("several runs are named by their differences") {
  const auto figure =
      figure_from({{"one.jsonl", run(R"(["cpu"])", "0.2")}, {"two.jsonl", run(R"(["cpu","cpu"])", "0.4")}});
  CHECK(figure.subtitle == "lenet, batch 256, seed 3");
  CHECK(legend_of(figure) == Texts{"one.jsonl, [cpu], lr 0.2", "two.jsonl, [cpu, cpu], lr 0.4",
                                   "pale, without marks: while training"});
  REQUIRE(figure.panels[0].series.size() == 4);
  const auto& one = figure.panels[0].series[2].style;
  const auto& two = figure.panels[0].series[3].style;
  CHECK(one.color != two.color);
  CHECK(one.marker != two.marker);
  CHECK(figure.panels[0].series[1].style.color == two.color);  // the pale line of the same run
  CHECK(figure.summary == "test accuracy and losses of 2 runs");
}

TEST_CASE("files with equal names are named by their paths") {
  const auto text = run(R"(["cpu"])", "0.2");
  const auto figure = figure_from({{"a/run.jsonl", text}, {"b/run.jsonl", text}});
  CHECK(legend_of(figure)[0] == "a/run.jsonl");
  CHECK(legend_of(figure)[1] == "b/run.jsonl");
}

TEST_CASE("benchmarks and sweeps with equal names are named by their paths too") {
  const auto allreduce =
      bench("allreduce",
            R"("tables":[)" +
                table("allreduce", R"({"devices":"cpux2","algorithm":"root","bytes":8,"busbw":1.5})") + "]");
  CHECK(legend_of(figure_from({{"a/x.json", allreduce}, {"b/x.json", allreduce}})) ==
        Texts{"a/x.json", "b/x.json"});
  const std::string timeline =
      R"("timeline":[{"experiment":"copy","process":"cpu:0","track":"compute","name":"matmul 0","begin":0,"end":1}])";
  const auto overlap =
      figure_from({{"a/x.json", bench("overlap", timeline)}, {"b/x.json", bench("overlap", timeline)}});
  REQUIRE(overlap.panels.size() == 2);
  CHECK(overlap.panels[0].title == "a/x.json: copy");
  CHECK(overlap.panels[1].title == "b/x.json: copy");
}

TEST_CASE("allreduce: one line per devices and algorithm, without missing values") {
  const auto rows = R"({"devices":"[cpu, cpu]","algorithm":"root","bytes":2048,"busbw":4.5},
    {"devices":"[cpu, cpu]","algorithm":"ring","bytes":2048,"busbw":2.5},
    {"devices":"[cpu, cpu]","algorithm":"ring","bytes":32768,"busbw":null},
    {"devices":"[cpu, cpu]","algorithm":"root","bytes":8,"busbw":0.5},
    {"devices":"[cpu, cpu]","algorithm":"root","bytes":512,"busbw":0},
    {"devices":"[cuda:0, cuda:1]","algorithm":"root","bytes":8,"busbw":0.125})";
  const auto figure =
      figure_from({{"all.json", bench("allreduce", R"("tables":[)" + table("allreduce", rows) + "]")}});
  REQUIRE(figure.panels.size() == 1);
  const auto& panel = figure.panels[0];
  REQUIRE(panel.series.size() == 3);
  check_points(panel.series[0], {{8, .5}, {2048, 4.5}});  // sorted by size
  check_points(panel.series[1], {{2048, 2.5}});
  check_points(panel.series[2], {{8, .125}});
  CHECK(panel.x.scale == Scale::kLog);
  CHECK(panel.y.scale == Scale::kLog);
  CHECK(panel.x.label == "size (bytes)");
  CHECK(panel.y.label == "bus bandwidth (GB/s)");
  CHECK(figure.subtitle == "all.json, Zen");
  CHECK(legend_of(figure) == Texts{"[cpu, cpu], root", "[cpu, cpu], ring", "[cuda:0, cuda:1], root"});
  CHECK(figure.summary == "bus bandwidth against size, 3 lines");
}

TEST_CASE("scaling: speed-up with its efficiency, the ideal, and what was predicted") {
  const auto rows =
      R"({"mode":"one","devices":"cpu","replicas":1,"ms":60.0,"speedup":1.0,"efficiency":100.0},
    {"mode":"strong","devices":"cpux2","replicas":2,"ms":33.1,"speedup":1.8125,"efficiency":90.625},
    {"mode":"weak","devices":"cpux2","replicas":2,"ms":33.1,"speedup":1.9375,"efficiency":null})";
  const auto predicted = R"({"mode":"weak","replicas":8,"ms":9.0,"speedup":6.5,"efficiency":81.25})";
  const auto figure =
      figure_from({{"scaling.json", bench("scaling", R"("tables":[)" + table("scaling", rows) + "," +
                                                         table("prediction", predicted) + "]")}});
  REQUIRE(figure.panels.size() == 1);
  const auto& series = figure.panels[0].series;
  REQUIRE(series.size() == 4);
  check_points(series[0], {{1, 1}, {8, 8}});
  CHECK(series[0].style.line == Line::kDashed);
  check_points(series[1], {{1, 1}, {2, 1.8125}});
  check_points(series[2], {{1, 1}, {2, 1.9375}});
  check_points(series[3], {{8, 6.5}});
  CHECK(series[1].points[1].label == "91 %");
  CHECK(series[2].points[1].label.empty());  // null
  CHECK(series[3].points[0].label == "81 %");
  CHECK(series[3].style.hollow);
  CHECK(series[3].style.line == Line::kDashed);
  CHECK(series[3].style.color == series[2].style.color);  // the colour of its mode
  CHECK_FALSE(series[1].style.hollow);
  CHECK(legend_of(figure) == Texts{"strong", "weak", "predicted", "ideal"});
  CHECK(figure.panels[0].x.label == "replicas");
  CHECK(figure.panels[0].y.label == "speed-up over one replica");
}

TEST_CASE("scaling: lines are named by their kinds of devices") {
  const auto row = [](const std::string& devices) {
    return R"({"mode":"strong","devices":")" + devices + R"(","replicas":2,"speedup":1.5,"efficiency":75.0})";
  };
  const auto rows =
      row("cpux2") + "," + row("cuda:0x2") + "," + row("cuda:0,cuda:1") + "," + row("cuda:0,cpu");
  const auto figure =
      figure_from({{"s.json", bench("scaling", R"("tables":[)" + table("scaling", rows) + "]")}});
  CHECK(legend_of(figure) == Texts{"cpu", "cuda", "cuda and cpu", "ideal"});
}

TEST_CASE("scaling without a prediction has none in its legend") {
  const auto rows = R"({"mode":"strong","devices":"cpux2","replicas":2,"speedup":1.5,"efficiency":75.0})";
  const auto figure =
      figure_from({{"s.json", bench("scaling", R"("tables":[)" + table("scaling", rows) + "]")}});
  CHECK(legend_of(figure) == Texts{"ideal"});
}

TEST_CASE("overlap: one panel per experiment, tracks from the top, one time scale from 0") {
  const auto events = R"("timeline":[
    {"experiment":"run, then copy","track":"cpu:0 compute","name":"matmul 0","begin":5.010,"end":5.030},
    {"experiment":"run, then copy","track":"cpu:0 copy","name":"copy 0","begin":5.030,"end":5.035},
    {"experiment":"at once","track":"cpu:1 compute","name":"matmul 0","begin":7.0,"end":7.040},
    {"experiment":"at once","track":"cpu:0 compute","name":"copy 0","begin":7.010,"end":7.020},
    {"experiment":"at once","track":"cpu:1 compute","name":"matmul 1","begin":7.040,"end":null}],"tables":[])";
  const auto figure = figure_from({{"overlap.json", bench("overlap", events)}});
  REQUIRE(figure.panels.size() == 2);
  const auto& first = figure.panels[0];
  CHECK(first.title == "run, then copy");
  REQUIRE(first.bars.size() == 2);
  CHECK(first.bars[0].begin == Approx(0).margin(1e-6));
  CHECK(first.bars[0].end == Approx(20));  // ms
  CHECK(first.bars[1].begin == Approx(20));
  CHECK(first.bars[1].end == Approx(25));
  CHECK(first.bars[0].track == 0);
  CHECK(first.bars[1].track == 1);
  CHECK(first.bars[0].color != first.bars[1].color);
  CHECK(first.bars[0].label == "matmul 0");
  REQUIRE(first.y.ticks.size() == 2);
  CHECK(first.y.ticks[0].label == "cpu:0 compute");
  CHECK(first.y.ticks[0].at == .5);
  CHECK(first.y.low > first.y.high);  // track 0 is on top
  const auto& second = figure.panels[1];
  REQUIRE(second.bars.size() == 2);                   // null: not measured
  CHECK(second.y.ticks[0].label == "cpu:0 compute");  // sorted by name
  CHECK(second.bars[0].track == 1);
  CHECK(second.bars[1].track == 0);
  CHECK(second.bars[1].color == first.bars[1].color);  // the colour of copies
  for (const auto& panel : figure.panels) CHECK(panel.x.high == Approx(40));
  CHECK(figure.panels[1].x.label == "time (ms)");
  CHECK(legend_of(figure) == Texts{"computing", "copying"});
  CHECK(figure.summary == "a timeline of 2 experiments");
}

TEST_CASE("sweep: accuracy against learning rate, one line per devices, batch and epochs") {
  const auto cells = R"({"devices":"[cpu]","lr":0.2,"batch_size":256,"epochs":3,"accuracy":0.75},
    {"devices":"[cpu]","lr":0.05,"batch_size":256,"epochs":3,"accuracy":0.5},
    {"devices":"[cpu]","lr":0.8,"batch_size":256,"epochs":3,"accuracy":null},
    {"devices":"[cpu, cpu]","lr":0.1,"batch_size":512,"epochs":3,"accuracy":0.625})";
  const auto figure = figure_from({{"sweep.json", sweep(cells)}});
  const auto& panel = figure.panels.at(0);
  REQUIRE(panel.series.size() == 2);
  check_points(panel.series[0], {{.05, .5}, {.2, .75}});
  check_points(panel.series[1], {{.1, .625}});
  CHECK(panel.x.scale == Scale::kLog);
  CHECK(panel.y.scale == Scale::kLinear);
  CHECK(figure.subtitle == "sweep.json, 3 epochs");
  CHECK(legend_of(figure) == Texts{"[cpu], batch 256", "[cpu, cpu], batch 512"});
}

TEST_CASE("sweep: the test loss where no cell has an accuracy") {
  const auto figure =
      figure_from({{"sweep.json", sweep(R"({"devices":"cpu","lr":0.2,"accuracy":null,"test_loss":0.25},
    {"devices":"cpu","lr":0.1,"accuracy":null,"test_loss":0.5})")}});
  check_points(figure.panels.at(0).series.at(0), {{.1, .5}, {.2, .25}});
  CHECK(figure.title == "Test loss against learning rate");
  CHECK(figure.panels[0].y.label == "test loss");
}

TEST_CASE("several benchmarks of one kind share a picture and are named by file") {
  const auto text = [](const std::string& busbw) {
    return bench("allreduce",
                 R"("tables":[)" +
                     table("allreduce",
                           R"({"devices":"[cpu, cpu]","algorithm":"ring","bytes":8,"busbw":)" + busbw + "}") +
                     "]");
  };
  const auto figure = figure_from({{"old.json", text("0.5")}, {"new.json", text("0.75")}});
  CHECK(legend_of(figure) == Texts{"old.json", "new.json"});
  check_points(figure.panels[0].series[1], {{8, .75}});
}

TEST_CASE("a test with its confusion becomes a matrix, the first class at the top") {
  const auto figure = figure_from({{"a/eval.json", kTestOfTwoClasses}});
  REQUIRE(figure.panels.size() == 1);
  const auto& panel = figure.panels[0];
  CHECK(panel.y.low == 2);
  CHECK(panel.y.high == 0);
  REQUIRE(panel.y.ticks.size() == 2);
  CHECK(panel.y.ticks[0].label == "0 cat");
  CHECK(panel.x.ticks[1].label == "1");
  REQUIRE(panel.cells.size() == 4);
  CHECK(panel.cells[1].row == 0);
  CHECK(panel.cells[1].column == 1);
  CHECK(panel.cells[1].share == Approx(.25));
  CHECK(panel.cells[1].label == "1");
  CHECK(panel.cells[2].label.empty());  // no row
  CHECK(panel.title == "eval.json: lenet on pets");
  CHECK(panel.height == 2 * 48);
}
