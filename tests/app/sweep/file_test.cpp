// The file of a sweep: stopped, continued, refused.
#include <signal.h>

#include <lockstep/tests/catch.h>
#include <filesystem>
#include <iterator>
#include <string>

#include <lockstep/tests/app/sweep/sweep_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::TempFolder;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

// Everything that does not depend on time.
json without_times(json cells) {
  for (auto& cell : cells) {
    cell.erase("seconds_per_epoch");
    cell.erase("images_per_second");
  }
  return cells;
}

// Runs a sweep and sends it the signal once its output holds `text`.
ProcessResult stopped(const SmallData& data, const Words& words, int signal, const std::string& text) {
  return stopped_at(text, signal, sweep(data, words));
}

}  // namespace

TEST_CASE("a sweep that is stopped or killed keeps its finished cells and continues from them") {
  const SmallData data;
  const TempFolder folder;
  const auto path = folder / "sweep.json";
  const auto [signal, code] = GENERATE(table<int, int>({{SIGINT, 130}, {SIGTERM, 143}, {SIGKILL, -1}}));
  // The second cell never ends; "\n  cpu" begins the first cell's line.
  const auto first =
      stopped(data, {"--devices", "cpu", "--lr", ".1", "--epochs", "1,1000000", "--json", path.string()},
              signal, "\n  cpu");
  CHECK(first.exit_code == code);
  if (signal != SIGKILL) {
    CHECK_THAT(first.out,
               ContainsSubstring("# sweep: stopped before the end, 1 of 2 cells; continue with --resume " +
                                 path.string()));
    CHECK_THAT(first.err, ContainsSubstring("stopped by"));
  }
  auto file = read(path);
  CHECK(file.at("complete") == false);
  CHECK(axes_of(file) == std::vector<Axes>{{"cpu", 64, .1, 1}});
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
  const auto kept = file.at("cells")[0];

  file.at("environment").at("cpu") = "another";
  write(path, file.dump());
  const Words whole = {"--devices", "cpu", "--lr", ".1", "--epochs", "1,2,3"};
  const auto second = run_process(sweep(data, whole + Words{"--resume", path.string()}));
  INFO(second.err);
  REQUIRE(second.exit_code == 0);
  const auto rows = rows_of(second.out);
  REQUIRE(rows.size() == 3);
  CHECK_THAT(rows[0], ContainsSubstring("kept"));
  CHECK_THAT(rows[1] + rows[2], !ContainsSubstring("kept"));
  CHECK_THAT(second.out, ContainsSubstring("holds 1 of them"));
  CHECK_THAT(second.err, ContainsSubstring("cpu 'another' there"));

  const auto resumed = read(path);
  CHECK(resumed.at("complete") == true);
  CHECK(resumed.at("cells")[0] == kept);  // with its times: it was not trained again
  CHECK(resumed.at("resumed")[0].at("kept") == 1);
  CHECK(without_times(resumed.at("cells")) == without_times(finished(data, whole).file.at("cells")));
}

TEST_CASE("a sweep that is stopped in its first cell leaves the old file") {
  const SmallData data;
  const TempFolder folder;
  const auto path = folder / "sweep.json";
  const Words words = {"--devices", "cpu", "--epochs", "1000000", "--json", path.string(), "--overwrite"};
  CHECK(stopped(data, words, SIGINT, "test acc").exit_code == 130);
  CHECK_FALSE(fs::exists(path));
  write(path, "old");
  CHECK(stopped(data, words, SIGINT, "test acc").exit_code == 130);
  CHECK(read_file(path) == "old");
}

TEST_CASE("a sweep whose file another process changes ends and leaves the file as it is") {
  const SmallData data;
  const TempFolder folder;
  const auto path = folder / "sweep.json";
  std::string epochs = "1";
  for (int more = 2; more <= 40; ++more) epochs += "," + std::to_string(more);
  auto process = sweep(data, {"--devices", "cpu", "--epochs", epochs, "--json", path.string()});
  bool changed = false;
  process.on_output = [&](pid_t, const std::string& out) {
    if (changed || out.find("\n  cpu") == std::string::npos) return;
    write(path, "theirs");
    changed = true;
  };
  const auto result = run_process(process);
  CHECK(result.exit_code == 7);
  CHECK_THAT(result.err,
             ContainsSubstring("was changed by another process") && ContainsSubstring("--resume"));
  CHECK(read_file(path) == "theirs");
}

TEST_CASE("a sweep's file with the old name of the CPU is continued") {
  const SmallData data;
  const TempFolder folder;
  const auto path = folder / "sweep.json";
  const Words words = {"--devices", "cpu"};
  REQUIRE(run_process(sweep(data, words + Words{"--lr", ".1", "--json", path.string()})).exit_code == 0);
  auto file = nlohmann::ordered_json::parse(read_file(path));
  auto& environment = file["environment"];
  environment["processor"] = environment.at("cpu");
  environment.erase("cpu");
  write(path, file.dump());

  const auto result = run_process(sweep(data, words + Words{"--lr", ".1,.2", "--resume", path.string()}));
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("holds 1 of them"));
  CHECK_THAT(result.err, !ContainsSubstring("environment"));
}

TEST_CASE("a continued sweep keeps its other cells and trains nothing twice") {
  const SmallData data;
  const TempFolder folder;
  const auto path = folder / "sweep.json";
  const Words cpu = {"--devices", "cpu"};
  REQUIRE(run_process(sweep(data, cpu + Words{"--lr", ".1,.2", "--json", path.string()})).exit_code == 0);
  const auto before = read(path);
  // A hard link to the file: it changes only if the file is written into instead of replaced.
  fs::create_hard_link(path, folder / "before.json");

  const auto more = run_process(sweep(data, cpu + Words{"--lr", ".2,.4", "--resume", path.string()}));
  REQUIRE(more.exit_code == 0);
  CHECK_THAT(more.out, ContainsSubstring("holds 1 of them, and 1 more"));
  CHECK(axes_of(read(path)) == std::vector<Axes>{{"cpu", 64, .1, 1}, {"cpu", 64, .2, 1}, {"cpu", 64, .4, 1}});

  CHECK(read(folder / "before.json") == before);
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 2);

  const auto again = run_process(sweep(data, cpu + Words{"--lr", ".2,.1", "--resume", path.string()}));
  REQUIRE(again.exit_code == 0);
  REQUIRE(rows_of(again.out).size() == 2);
  CHECK_THAT(rows_of(again.out)[0], ContainsSubstring(" 0.2 ") && ContainsSubstring("kept"));
  CHECK(read(path).at("cells").size() == 3);
  CHECK(read(path).at("cells")[0] == before.at("cells")[0]);
}

// record_test.cpp has all damage.
TEST_CASE("a sweep refuses a file that it must not replace or cannot continue, and leaves it as it is") {
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
    CHECK(read_file(path) == text);
    return error;
  };
  const Words resume = {"--resume", file};

  CHECK_THAT(refused(good, {"--json", file}, 7),
             ContainsSubstring("already exists") && ContainsSubstring("--resume"));
  CHECK_THAT(refused(good, {"--json", (folder / "none" / "a.json").string()}, 7),
             ContainsSubstring("does not exist"));
  CHECK_THAT(refused(good, {"--resume", file, "--overwrite"}, 2), ContainsSubstring("--overwrite"));
  const auto other = (folder / "other.json").string();
  CHECK_THAT(refused(good, {"--resume", file, "--json", other}, 2),
             ContainsSubstring(file) && ContainsSubstring(other));
  CHECK_THAT(refused(good, {"--resume", other}, 3), ContainsSubstring("no such file"));

  CHECK_THAT(refused("{\"format\": ", resume, 3),
             ContainsSubstring("damaged") && ContainsSubstring("not JSON"));

  CHECK_THAT(refused(good, resume + Words{"--seed", "7"}, 2),
             ContainsSubstring("seed 0") && ContainsSubstring("has 7"));
  CHECK_THAT(refused(good, resume + Words{"--limit-train", "256"}, 2),
             ContainsSubstring("train_rows 128") && ContainsSubstring("has 256"));
  CHECK_THAT(refused(good, resume + Words{"--momentum", ".9"}, 2),
             ContainsSubstring("momentum 0.0") && ContainsSubstring("0.9"));
  CHECK_THAT(refused(good, resume + Words{"--recipe", "resnet18-warmup", "--model", "lenet"}, 2),
             ContainsSubstring("'lenet-scratch'") && ContainsSubstring("'resnet18-warmup'"));
}
