// `lockstep sweep`: its cells, their results, and the values that it refuses.
#include <lockstep/tests/catch.h>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include <lockstep/tests/app/sweep/sweep_process.h>
#include <lockstep/tests/skip.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::TempFolder;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

}  // namespace

TEST_CASE("a sweep trains every cell of its grid once, in the order of its axes") {
  const SmallData data;
  const auto done = finished(data, {"--devices", "cpu", "--devices", "cpux2", "--batch-size", "128,64",
                                    "--lr", ".1,.05", "--epochs", "1,2"});
  const std::vector<Axes> expected = {
      {"cpu", 128, .1, 1},   {"cpu", 128, .1, 2},   {"cpu", 128, .05, 1},   {"cpu", 128, .05, 2},
      {"cpu", 64, .1, 1},    {"cpu", 64, .1, 2},    {"cpu", 64, .05, 1},    {"cpu", 64, .05, 2},
      {"cpux2", 128, .1, 1}, {"cpux2", 128, .1, 2}, {"cpux2", 128, .05, 1}, {"cpux2", 128, .05, 2},
      {"cpux2", 64, .1, 1},  {"cpux2", 64, .1, 2},  {"cpux2", 64, .05, 1},  {"cpux2", 64, .05, 2},
  };
  CHECK(axes_of(done.file) == expected);
  CHECK(done.file.at("format") == "lockstep sweep");
  CHECK(done.file.at("version") == 1);
  CHECK(done.file.at("complete") == true);
  CHECK(done.file.at("settings").at("train_rows") == 128);
  CHECK(done.file.at("environment").contains("cpu"));
  CHECK_THAT(done.file.at("command").get<std::string>(), ContainsSubstring("--lr .1,.05"));
  CHECK_THAT(done.out, ContainsSubstring(
                           "16 cells: 2 device lists x 2 batch sizes x 2 learning rates x 2 epoch counts"));
  REQUIRE(rows_of(done.out).size() == 16);
  CHECK_THAT(rows_of(done.out)[11],
             ContainsSubstring("cpux2") && ContainsSubstring("128") && ContainsSubstring("0.05"));
  CHECK_THAT(done.out, ContainsSubstring("# best: test acc ") && ContainsSubstring("# sweep: 16 cells\n"));
}

TEST_CASE("--scale-batch multiplies batch size and learning rate by the number of devices") {
  const SmallData data;
  const Words lists = {"--devices", "cpu", "--devices", "cpux3"};
  const Words values = lists + Words{"--batch-size", "16,32", "--lr", ".25"};
  CHECK(axes_of(finished(data, values + Words{"--scale-batch"}).file) ==
        std::vector<Axes>{
            {"cpu", 16, .25, 1}, {"cpu", 32, .25, 1}, {"cpux3", 48, .75, 1}, {"cpux3", 96, .75, 1}});
  CHECK(axes_of(finished(data, values).file) ==
        std::vector<Axes>{
            {"cpu", 16, .25, 1}, {"cpu", 32, .25, 1}, {"cpux3", 16, .25, 1}, {"cpux3", 32, .25, 1}});
}

TEST_CASE("a sweep takes from a recipe what train takes from it") {
  const SmallData data;
  // One recipe's values are per device, the other's for all devices.
  const auto recipe = GENERATE(as<std::string>{}, "resnet18-pytorch", "lenet-scratch");
  const Words words = {"--data",    data.folder(), "--limit-train", "128",  "--threads", "1",
                       "--epochs",  "1",           "--recipe",      recipe, "--model",   "lenet",
                       "--devices", "cpux2"};
  const TempFolder folder;
  const auto path = folder / "sweep.json";
  REQUIRE(run_process(program(Words{"sweep"} + words + Words{"--json", path.string()})).exit_code == 0);
  const bool per_device = recipe == "resnet18-pytorch";
  CHECK(axes_of(read(path)) == std::vector<Axes>{{"cpux2", per_device ? 512 : 256, .2, 1}});

  const auto metrics = folder / "run.jsonl";
  REQUIRE(run_process(program(Words{"train"} + words + Words{"--metrics", metrics.string()})).exit_code == 0);
  const auto plan = json::parse(lines(read_file(metrics)).front());
  CHECK(axes_of(read(path)) == std::vector<Axes>{{"cpux2", plan.at("batch_size"), plan.at("lr"), 1}});
}

TEST_CASE("a cell of a sweep has the results of train") {
  const SmallData data;
  const Words common = {"--seed", "3", "--momentum", "0.5", "--limit-train", "640"};
  const auto done = finished(
      data, common + Words{"--devices", "cpu", "--devices", "cpux2", "--lr", ".1,.2", "--epochs", "2"});
  const auto& cells = done.file.at("cells");
  REQUIRE(cells.size() == 4);
  for (const auto& cell : cells) {
    const auto events = metrics_of(small(data, common + Words{"--devices", cell.at("devices"), "--lr",
                                                              cell.at("lr").dump(), "--epochs", "2"}));
    const auto epoch = events_named("epoch", events).back();
    CHECK(cell.at("accuracy") == epoch.at("test_accuracy"));
    CHECK(cell.at("test_loss") == epoch.at("test_loss"));
    CHECK(cell.at("train_loss") == epoch.at("train_loss"));
    CHECK(cell.at("diverged") == false);
    CHECK(cell.at("images_per_second").get<double>() ==
          Approx(640 / cell.at("seconds_per_epoch").get<double>()));
  }
  CHECK(cells[0].at("train_loss") != cells[1].at("train_loss"));  // their rates differ
}

TEST_CASE(
    "a sweep with --limit-test evaluates on the first images and refuses to continue with another limit") {
  const SmallData all(128, 300), only(128, 100);  // the same images, except for the number of test images
  const TempFolder folder;
  const auto path = folder / "sweep.json";
  const auto limited =
      run_process(sweep(all, {"--devices", "cpu", "--limit-test", "100", "--json", path.string()}));
  REQUIRE(limited.exit_code == 0);
  CHECK_THAT(limited.out, ContainsSubstring("128 training and the first 100 of 300 test images"));
  const auto cell = read(path).at("cells").at(0);
  CHECK(cell.at("test_loss") == finished(only, {"--devices", "cpu"}).file.at("cells").at(0).at("test_loss"));
  CHECK(cell.at("test_loss") != finished(all, {"--devices", "cpu"}).file.at("cells").at(0).at("test_loss"));
  CHECK_THAT(refusal(sweep(all, {"--devices", "cpu", "--resume", path.string()}), 2),
             ContainsSubstring("test_rows 100, this command has 300"));
}

TEST_CASE("a sweep marks a cell that diverges and continues") {
  const SmallData data;
  const auto done =
      finished(data, {"--devices", "cpu", "--lr", "1e5,.1", "--limit-train", "640", "--epochs", "2"});
  const auto& cells = done.file.at("cells");
  REQUIRE(cells.size() == 2);
  CHECK(cells[0].at("diverged") == true);
  for (const auto* key : {"accuracy", "test_loss", "train_loss", "seconds_per_epoch", "images_per_second"}) {
    CHECK(cells[0].at(key).is_null());
    CHECK(cells[1].at(key).is_number());
  }
  const auto rows = rows_of(done.out);
  REQUIRE(rows.size() == 2);
  CHECK_THAT(rows[0], ContainsSubstring(" 100000 ") && ContainsSubstring("diverged"));
  CHECK_THAT(rows[1], !ContainsSubstring("diverged"));
  CHECK_THAT(done.out, ContainsSubstring("# 1 of 2 cells diverged"));
}

// The error of the first cell that was trained, with its hint: not every one is of a rate that is too large.
TEST_CASE("a sweep whose cells have all diverged ends with code 6, tells how, and keeps its file") {
  const SmallData data;
  const TempFolder folder;
  const auto path = folder / "sweep.json";
  const Words words = {"--devices", "cpu", "--lr", "1e5,1e6", "--limit-train", "640"};
  for (const bool trains : {true, false}) {
    const auto file = trains ? Words{"--json", path.string()} : Words{"--resume", path.string()};
    const auto result = run_process(sweep(data, words + file));
    CHECK(result.exit_code == 6);
    CHECK_THAT(result.out,
               ContainsSubstring("# all 2 cells have diverged") && ContainsSubstring("# sweep: 2 cells"));
    CHECK_THAT(result.err, ContainsSubstring("diverged in every cell") && ContainsSubstring("\nhint: "));
    CHECK((result.err.find("a learning rate below 1e+05") != std::string::npos) == trains);
    CHECK(read(path).at("complete") == true);
    CHECK(read(path).at("cells").size() == 2);
  }
}

TEST_CASE("a sweep refuses wrong values before it reads data") {
  const SmallData data(10, 10);
  const TempFolder folder;
  const auto path = (folder / "sweep.json").string();
  const auto refused = [&](const Words& words, int code) {
    const auto error = refusal(sweep(data, words + Words{"--data", "/nonexistent", "--json", path}), code);
    CHECK_FALSE(fs::exists(path));
    return error;
  };
  CHECK_THAT(refused({"--lr", ".1,,.2"}, 2), ContainsSubstring("--lr has an empty value in '.1,,.2'"));
  CHECK_THAT(refused({"--lr", ".1,"}, 2), ContainsSubstring("--lr has an empty value in '.1,'"));
  CHECK_THAT(refused({"--lr", ".1,0"}, 2), ContainsSubstring("--lr must be above 0, got 0"));
  CHECK_THAT(refused({"--lr", ".1,-.2"}, 2), ContainsSubstring("--lr must be above 0, got -.2"));
  CHECK_THAT(refused({"--lr", ".1,fast"}, 2), ContainsSubstring("--lr is not a number: 'fast'"));
  CHECK_THAT(refused({"--batch-size", "0,64"}, 2),
             ContainsSubstring("--batch-size must be at least 1, got 0"));
  CHECK_THAT(refused({"--epochs", "1.5"}, 2), ContainsSubstring("--epochs is not a whole number: '1.5'"));
  CHECK_THAT(refused({"--lr", ".1,0.1"}, 2), ContainsSubstring("--lr names 0.1 twice"));
  CHECK_THAT(refused({"--batch-size", "64,+64"}, 2), ContainsSubstring("--batch-size names 64 twice"));
  CHECK_THAT(refused({"--devices", "cpu", "--devices", "cpux1"}, 2),
             ContainsSubstring("--devices names cpu twice"));
  CHECK_THAT(refused({"--devices", "cpu", "--devices", "gpu"}, 2), ContainsSubstring("gpu"));
  CHECK_THAT(refused({"--nesterov"}, 2), ContainsSubstring("--nesterov"));
  CHECK_THAT(refused({"--devices", "cpu", "--devices", "cpux3", "--invariant"}, 2), ContainsSubstring("3"));
  CHECK_THAT(refused({"--warmup-epochs", "2", "--epochs", "3,2"}, 2), ContainsSubstring("--warmup-epochs 2"));
  CHECK_THAT(refused({}, 3), ContainsSubstring("/nonexistent"));
}

TEST_CASE("a cell that cannot fit into memory is refused before the first trains") {
  if (available_bytes() > int64_t{500'000'000'000})
    SKIP_CASE("this machine has the 600 GB that it would take");
  const TempFolder folder;
  const auto path = (folder / "sweep.json").string();
  const auto error =
      refusal(program({"sweep", "--devices", "cpu", "--recipe", "resnet18-pytorch", "--data", "synthetic",
                       "--batch-size", "16,60000", "--threads", "1", "--precision", "fp64", "--json", path}),
              8);
  CHECK_THAT(error, ContainsSubstring("training 60,000 images per step on [cpu]") &&
                        ContainsSubstring("are free") && ContainsSubstring("--batch-size"));
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE("--limit-steps and the environment work as in train") {
  const SmallData data;
  auto process = sweep(data, {"--devices", "cpu", "--limit-train", "640", "--limit-steps", "1"});
  process.environment = {{"LOCKSTEP_FLAG_LR", ".1,.2"}};
  const TempFolder folder;
  const auto path = folder / "sweep.json";
  process.command = process.command + Words{"--json", path.string()};
  REQUIRE(run_process(process).exit_code == 0);
  const auto file = read(path);
  CHECK(axes_of(file) == std::vector<Axes>{{"cpu", 64, .1, 1}, {"cpu", 64, .2, 1}});
  const auto events = metrics_of({"--data", data.folder(), "--limit-train", "640", "--batch-size", "64",
                                  "--limit-steps", "1", "--devices", "cpu", "--lr", ".2", "--epochs", "1"});
  CHECK(file.at("cells")[1].at("test_loss") == events_named("epoch", events).back().at("test_loss"));
}
