// lockstep sweep: its cells, its file, and what it refuses.
#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train_process.h>
#include <lockstep/tests/skip.h>

using namespace lockstep::test;
using Catch::Matchers::Contains;
using lockstep::testing::TempFolder;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

// Of the machine, without swapping; 0 where it does not say.
int64_t available_bytes() {
  std::ifstream info("/proc/meminfo");
  for (std::string word; info >> word;) {
    int64_t kibibytes = 0;
    if (word == "MemAvailable:" && info >> kibibytes) return 1024 * kibibytes;
  }
  return 0;
}

// devices, batch size, learning rate, epochs
using Axes = std::tuple<std::string, int, double, int>;

// The words of a small quick sweep, with these instead of its own where they name the same flag.
Words small(const SmallData& data, const Words& words) {
  const std::vector<std::pair<std::string, std::string>> defaults = {{"--data", data.folder()},
                                                                     {"--limit-train", "128"},
                                                                     {"--batch-size", "64"},
                                                                     {"--threads", "1"},
                                                                     {"--epochs", "1"}};
  Words all;
  for (const auto& [flag, value] : defaults) {
    if (std::find(words.begin(), words.end(), flag) == words.end()) all = all + Words{flag, value};
  }
  return all + words;
}

Process sweep(const SmallData& data, const Words& words) {
  return program(Words{"sweep"} + small(data, words));
}

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

json read(const fs::path& path) { return json::parse(bytes_of(path)); }

void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

// What a sweep that must succeed prints and keeps.
struct Done {
  std::string out, err;
  json file;
};

Done finished(const SmallData& data, const Words& words) {
  const TempFolder folder;
  const auto path = folder / "sweep.json";
  const auto result = run_process(sweep(data, words + Words{"--json", path.string()}));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return {result.out, result.err, read(path)};
}

// The lines of the cells; what follows them sums them up.
Words rows_of(const std::string& out) {
  Words rows;
  for (const auto& line : lines(out)) {
    if (line[0] != '#') rows.push_back(line);
    if (line[0] == '#' && !rows.empty()) break;
  }
  return rows;
}

std::vector<Axes> axes_of(const json& file) {
  std::vector<Axes> axes;
  for (const auto& cell : file.at("cells")) {
    axes.emplace_back(cell.at("devices"), cell.at("batch_size"), cell.at("lr"), cell.at("epochs"));
  }
  return axes;
}

// All that does not depend on the clock.
json without_times(json cells) {
  for (auto& cell : cells) {
    cell.erase("seconds_per_epoch");
    cell.erase("images_per_second");
  }
  return cells;
}

// A sweep that gets this signal once its output holds `text`.
ProcessResult stopped(const SmallData& data, const Words& words, int signal, const std::string& text) {
  auto process = sweep(data, words);
  bool sent = false;
  process.on_output = [&](pid_t pid, const std::string& out) {
    if (sent || out.find(text) == std::string::npos) return;
    ::kill(pid, signal);
    sent = true;
  };
  const auto result = run_process(process);
  CHECK(sent);
  return result;
}

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
  CHECK(done.file.at("environment").contains("processor"));
  CHECK_THAT(done.file.at("command").get<std::string>(), Contains("--lr .1,.05"));
  CHECK_THAT(done.out,
             Contains("16 cells: 2 device lists x 2 batch sizes x 2 learning rates x 2 epoch counts"));
  REQUIRE(rows_of(done.out).size() == 16);
  CHECK_THAT(rows_of(done.out)[11], Contains("cpux2") && Contains("128") && Contains("0.05"));
  CHECK_THAT(done.out, Contains("# best: test acc ") && Contains("# sweep: 16 cells\n"));
}

TEST_CASE("--scale-batch gives k devices k times the batch and the rate") {
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
  // Of these, one means its values for each device, the other for all.
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
  const auto plan = json::parse(lines(bytes_of(metrics)).front());
  CHECK(axes_of(read(path)) == std::vector<Axes>{{"cpux2", plan.at("batch_size"), plan.at("lr"), 1}});
}

TEST_CASE("a cell of a sweep is what train does alone") {
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

TEST_CASE("a sweep that is stopped or killed keeps the cells that were done, and goes on from them") {
  const SmallData data;
  const TempFolder folder;
  const auto path = folder / "sweep.json";
  const auto [signal, code] = GENERATE(table<int, int>({{SIGINT, 130}, {SIGTERM, 143}, {SIGKILL, -1}}));
  // The second cell has no end; "\n  cpu" begins the first cell's line.
  const auto first =
      stopped(data, {"--devices", "cpu", "--lr", ".1", "--epochs", "1,1000000", "--json", path.string()},
              signal, "\n  cpu");
  CHECK(first.exit_code == code);
  if (signal != SIGKILL) {
    CHECK_THAT(first.out,
               Contains("# sweep: stopped before the end, 1 of 2 cells; --resume " + path.string()));
    CHECK_THAT(first.err, Contains("stopped by"));
  }
  auto file = read(path);
  CHECK(file.at("complete") == false);
  CHECK(axes_of(file) == std::vector<Axes>{{"cpu", 64, .1, 1}});
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
  const auto kept = file.at("cells")[0];

  file.at("environment").at("processor") = "another";
  write(path, file.dump());
  const Words whole = {"--devices", "cpu", "--lr", ".1", "--epochs", "1,2,3"};
  const auto second = run_process(sweep(data, whole + Words{"--resume", path.string()}));
  INFO(second.err);
  REQUIRE(second.exit_code == 0);
  const auto rows = rows_of(second.out);
  REQUIRE(rows.size() == 3);
  CHECK_THAT(rows[0], Contains("kept"));
  CHECK_THAT(rows[1] + rows[2], !Contains("kept"));
  CHECK_THAT(second.out, Contains("holds 1 of them"));
  CHECK_THAT(second.err, Contains("processor 'another' there"));

  const auto resumed = read(path);
  CHECK(resumed.at("complete") == true);
  CHECK(resumed.at("cells")[0] == kept);  // its times too: it was not trained again
  CHECK(resumed.at("resumed")[0].at("kept") == 1);
  CHECK(without_times(resumed.at("cells")) == without_times(finished(data, whole).file.at("cells")));
}

TEST_CASE("a sweep that is stopped in its first cell leaves what was there") {
  const SmallData data;
  const TempFolder folder;
  const auto path = folder / "sweep.json";
  const Words words = {"--devices", "cpu", "--epochs", "1000000", "--json", path.string(), "--overwrite"};
  CHECK(stopped(data, words, SIGINT, "test acc").exit_code == 130);
  CHECK_FALSE(fs::exists(path));
  write(path, "old");
  CHECK(stopped(data, words, SIGINT, "test acc").exit_code == 130);
  CHECK(bytes_of(path) == "old");
}

TEST_CASE("going on with a sweep keeps its other cells, and trains nothing twice") {
  const SmallData data;
  const TempFolder folder;
  const auto path = folder / "sweep.json";
  const Words cpu = {"--devices", "cpu"};
  REQUIRE(run_process(sweep(data, cpu + Words{"--lr", ".1,.2", "--json", path.string()})).exit_code == 0);
  const auto before = read(path);
  // Another name of the file as it is now: one that is written into, and not replaced whole, changes here
  // too.
  fs::create_hard_link(path, folder / "before.json");

  const auto more = run_process(sweep(data, cpu + Words{"--lr", ".2,.4", "--resume", path.string()}));
  REQUIRE(more.exit_code == 0);
  CHECK_THAT(more.out, Contains("holds 1 of them, and 1 more"));
  CHECK(axes_of(read(path)) == std::vector<Axes>{{"cpu", 64, .1, 1}, {"cpu", 64, .2, 1}, {"cpu", 64, .4, 1}});

  CHECK(read(folder / "before.json") == before);
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 2);

  const auto again = run_process(sweep(data, cpu + Words{"--lr", ".2,.1", "--resume", path.string()}));
  REQUIRE(again.exit_code == 0);
  REQUIRE(rows_of(again.out).size() == 2);
  CHECK_THAT(rows_of(again.out)[0], Contains(" 0.2 ") && Contains("kept"));
  CHECK(read(path).at("cells").size() == 3);
  CHECK(read(path).at("cells")[0] == before.at("cells")[0]);
}

TEST_CASE("a cell that diverges is said to, and the sweep goes on") {
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
  CHECK_THAT(rows[0], Contains(" 100000 ") && Contains("diverged"));
  CHECK_THAT(rows[1], !Contains("diverged"));
  CHECK_THAT(done.out, Contains("# 1 of 2 cells diverged"));
}

TEST_CASE("a sweep refuses values that make no sense before anything is read") {
  const SmallData data(10, 10);
  const TempFolder folder;
  const auto path = (folder / "sweep.json").string();
  const auto refused = [&](const Words& words, int code) {
    const auto error = refusal(sweep(data, words + Words{"--data", "/nonexistent", "--json", path}), code);
    CHECK_FALSE(fs::exists(path));
    return error;
  };
  CHECK_THAT(refused({"--lr", ".1,,.2"}, 2), Contains("--lr has an empty value in '.1,,.2'"));
  CHECK_THAT(refused({"--lr", ".1,"}, 2), Contains("--lr has an empty value in '.1,'"));
  CHECK_THAT(refused({"--lr", ".1,0"}, 2), Contains("--lr must be above 0, got 0"));
  CHECK_THAT(refused({"--lr", ".1,-.2"}, 2), Contains("--lr must be above 0, got -.2"));
  CHECK_THAT(refused({"--lr", ".1,fast"}, 2), Contains("--lr is not a number: 'fast'"));
  CHECK_THAT(refused({"--batch-size", "0,64"}, 2), Contains("--batch-size must be at least 1, got 0"));
  CHECK_THAT(refused({"--epochs", "1.5"}, 2), Contains("--epochs is not a whole number: '1.5'"));
  CHECK_THAT(refused({"--lr", ".1,0.1"}, 2), Contains("--lr names 0.1 twice"));
  CHECK_THAT(refused({"--batch-size", "64,+64"}, 2), Contains("--batch-size names 64 twice"));
  CHECK_THAT(refused({"--devices", "cpu", "--devices", "cpux1"}, 2), Contains("--devices names cpu twice"));
  CHECK_THAT(refused({"--devices", "cpu", "--devices", "gpu"}, 2), Contains("gpu"));
  CHECK_THAT(refused({"--nesterov"}, 2), Contains("--nesterov"));
  CHECK_THAT(refused({"--devices", "cpu", "--devices", "cpux3", "--invariant"}, 2), Contains("3"));
  CHECK_THAT(refused({"--warmup-epochs", "2", "--epochs", "3,2"}, 2), Contains("--warmup-epochs 2"));
  CHECK_THAT(refused({}, 3), Contains("/nonexistent"));
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
  CHECK_THAT(error, Contains("training 60000 images a step on cpu") && Contains("are free") &&
                        Contains("--batch-size"));
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE("a sweep refuses a file that it must not replace or cannot go on with, and leaves it alone") {
  const SmallData data;
  const TempFolder folder;
  const auto path = folder / "sweep.json";
  const auto file = path.string();
  const Words words = {"--devices", "cpu", "--lr", ".1"};
  REQUIRE(run_process(sweep(data, words + Words{"--json", file})).exit_code == 0);
  const auto good = read(path);
  const auto refused = [&](const json& content, const Words& more, int code) {
    const auto text = content.is_string() ? content.get<std::string>() : content.dump();
    write(path, text);
    const auto error = refusal(sweep(data, words + more), code);
    CHECK(bytes_of(path) == text);
    return error;
  };
  const auto changed = [&](const std::string& at, const json& value) {
    auto content = good;
    content[json::json_pointer(at)] = value;
    return content;
  };
  const Words resume = {"--resume", file};

  CHECK_THAT(refused(good, {"--json", file}, 7), Contains("already exists") && Contains("--resume"));
  CHECK_THAT(refused(good, {"--json", (folder / "none" / "a.json").string()}, 7), Contains("does not exist"));
  CHECK_THAT(refused(good, {"--resume", file, "--overwrite"}, 2), Contains("--overwrite"));
  const auto other = (folder / "other.json").string();
  CHECK_THAT(refused(good, {"--resume", file, "--json", other}, 2), Contains(file) && Contains(other));
  CHECK_THAT(refused(good, {"--resume", other}, 3), Contains("no such file"));

  CHECK_THAT(refused("{\"format\": ", resume, 3), Contains("damaged") && Contains("not JSON"));
  CHECK_THAT(refused("[1]", resume, 3), Contains("damaged"));
  CHECK_THAT(refused(changed("/format", "lockstep bench"), resume, 3),
             Contains("\"lockstep bench\"") && Contains("\"lockstep sweep\""));
  CHECK_THAT(refused(changed("/version", 2), resume, 3), Contains("version 2") && Contains("version 1"));
  CHECK_THAT(refused(changed("/cells/0/lr", "fast"), resume, 3), Contains("damaged") && Contains("cell 1"));
  CHECK_THAT(refused(changed("/cells/0/accuracy", nullptr), resume, 3), Contains("cell 1"));
  CHECK_THAT(refused(changed("/cells", 3), resume, 3), Contains("damaged"));
  auto without = good;
  without.erase("settings");
  CHECK_THAT(refused(without, resume, 3), Contains("\"settings\""));

  CHECK_THAT(refused(good, resume + Words{"--seed", "7"}, 2), Contains("seed 0") && Contains("has 7"));
  CHECK_THAT(refused(good, resume + Words{"--limit-train", "256"}, 2),
             Contains("train_rows 128") && Contains("has 256"));
  CHECK_THAT(refused(good, resume + Words{"--momentum", ".9"}, 2),
             Contains("momentum 0.0") && Contains("0.9"));
  CHECK_THAT(refused(good, resume + Words{"--recipe", "resnet18-warmup", "--model", "lenet"}, 2),
             Contains("'lenet-scratch'") && Contains("'resnet18-warmup'"));
}

TEST_CASE("--limit-steps and the environment serve a sweep as they serve train") {
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
