// `lockstep plot` as a process: what it writes, refuses and leaves unchanged.
#include <lockstep/tests/catch.h>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train_process.h>
#include <lockstep/tests/skip.h>
#include <lockstep/tests/support/in_folder.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::TempFolder;
namespace fs = std::filesystem;

namespace {

constexpr auto kSweep =
    R"({"format":"lockstep sweep","version":1,"cells":[{"devices":"[cpu]","lr":0.1,"accuracy":0.5}]})";

std::string written(const fs::path& path, const std::string& text) {
  std::ofstream(path) << text;
  return path.string();
}

bool has_cairo() {
  const TempFolder folder;
  const auto result = run_process(
      program({"plot", written(folder / "s.json", kSweep), "--output", (folder / "s.svg").string()}));
  if (result.exit_code == 0) return true;
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.err, ContainsSubstring("built without cairo") && ContainsSubstring("libcairo2-dev"));
  CHECK_FALSE(fs::exists(folder / "s.svg"));
  return false;
}

#define NEEDS_CAIRO \
  if (!has_cairo()) SKIP_CASE("this build has no cairo");

}  // namespace

TEST_CASE("the folder of a run is drawn as its metrics are, and gives the picture its name") {
  NEEDS_CAIRO
  const TempFolder folder;
  const SmallData data(64, 32);
  const auto run = folder / "runs/first.1";
  run_ending(0, train({"--data", data.folder(), "--limit-train", "64", "--batch-size", "16", "--epochs", "2",
                       "--output", run.string(), "--quiet"}));
  const auto drawn = [&](const std::string& named, const fs::path& in, const std::string& picture) {
    const InFolder here(in);
    const auto result = run_ending(0, program({"plot", named, "--overwrite"}));
    CHECK(result.out == picture + ": test accuracy and losses of 1 run\n");
    return read_file(in / picture);
  };
  const auto picture = drawn(run.string(), folder.path(), "first.1.svg");
  CHECK(drawn(run.string() + "/", folder.path(), "first.1.svg") == picture);
  CHECK(drawn(".", run, "first.1.svg") == picture);
  CHECK(drawn((run / "metrics.jsonl").string(), folder.path(), "metrics.svg").size() > 1000);

  const auto empty = (folder / "runs").string();
  CHECK_THAT(refusal(program({"plot", empty}), 3), ContainsSubstring("metrics.jsonl"));
}

TEST_CASE("a run and a benchmark that lockstep has just written become pictures") {
  NEEDS_CAIRO
  const TempFolder folder;
  const SmallData data(64, 32);
  const auto metrics = (folder / "run.jsonl").string(), figures = (folder / "all.json").string();
  run_ending(0, train({"--data", data.folder(), "--limit-train", "64", "--batch-size", "16", "--epochs", "2",
                       "--log-every", "2", "--metrics", metrics, "--quiet"}));
  run_ending(0, program({"bench", "allreduce", "--devices", "cpux2", "--max-bytes", "128", "--repeat", "1",
                         "--iterations", "1", "--json", figures}));
  for (const auto& [file, picture, says] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {metrics, "run.png", "test accuracy and losses of 1 run"},
           {figures, "all.svg", "bus bandwidth against size, 3 lines"}}) {
    const auto output = (folder / picture).string();
    const auto result = run_ending(0, program({"plot", file, "--output", output}));
    CHECK(result.out == output + ": " + says + "\n");
    CHECK(result.err.empty());
  }
  CHECK(read_file(folder / "run.png").substr(1, 3) == "PNG");
  CHECK_THAT(read_file(folder / "all.svg"),
             ContainsSubstring("bus bandwidth (GB/s)") && ContainsSubstring("two_shot"));
}

TEST_CASE("without --output the picture is an SVG in the current folder, named after the first file") {
  NEEDS_CAIRO
  const TempFolder here, there;
  const auto file = written(there / "my.sweep.json", kSweep);
  Process process;
  process.command = {"/usr/bin/env", "-C", here.path().string(), LOCKSTEP_PROGRAM, "plot", file};
  const auto result = run_ending(0, process);
  CHECK(result.out == "my.sweep.svg: test accuracy against learning rate, 1 line\n");
  CHECK(fs::exists(here / "my.sweep.svg"));
  CHECK(files_in(there) == 1);
}

TEST_CASE("an existing picture is kept, unless --overwrite is given") {
  NEEDS_CAIRO
  const TempFolder folder;
  const auto file = written(folder / "s.json", kSweep), output = written(folder / "s.svg", "mine\n");
  CHECK_THAT(refusal(program({"plot", file, "--output", output}), 7),
             ContainsSubstring("s.svg' already exists") && ContainsSubstring("--overwrite"));
  CHECK(read_file(output) == "mine\n");
  CHECK(run_process(program({"plot", file, "--output", output, "--overwrite"})).exit_code == 0);
  CHECK_THAT(read_file(output), ContainsSubstring("</svg>"));
}

TEST_CASE("an error leaves no file, and an existing file as it was") {
  const TempFolder folder;
  const auto bad = written(folder / "bad.json", R"({"model":"x"})"),
             empty = written(folder / "empty.jsonl", "");
  const auto sweep = written(folder / "s.json", kSweep);
  const auto plan = written(folder / "plan.jsonl", R"({"event":"plan","steps_per_epoch":4})");
  const auto kept = written(folder / "kept.svg", "mine\n");
  const std::string brackets = std::string(80'000, '[') + std::string(80'000, ']');
  const auto deep =
      written(folder / "deep.json", R"({"format":"lockstep bench","version":1,"bench":)" + brackets + "}");
  const auto before = files_in(folder);
  const std::vector<std::pair<Words, int>> cases = {{{bad}, 3},
                                                    {{empty}, 3},
                                                    {{plan}, 3},
                                                    {{(folder / "none.json").string()}, 3},
                                                    {{folder.path().string()}, 3},
                                                    {{"/dev/zero"}, 3},
                                                    {{deep}, 3},
                                                    {{sweep, bad}, 3},
                                                    {{sweep, plan}, 2}};
  for (const auto& [files, code] : cases) {
    INFO(files.back());
    for (const Words& output :
         {Words{"--output", (folder / "new.svg").string()}, Words{"--output", kept, "--overwrite"}}) {
      CHECK_THAT(refusal(program(Words{"plot"} + files + output), code), ContainsSubstring("\nhint: "));
    }
  }
  CHECK(files_in(folder) == before);
  CHECK(read_file(kept) == "mine\n");
}

TEST_CASE("characters that XML does not have do not reach the picture") {
  NEEDS_CAIRO
  if (run_process({.command = {"/usr/bin/env", "python3", "-c", "import xml.dom.minidom"}}).exit_code != 0) {
    SKIP_CASE("there is no Python with an XML parser");
  }
  const TempFolder folder;
  std::string every = "\"";
  for (int c = 0; c < 32; ++c)
    every += "\\u00" + std::string(c < 16 ? "0" : "1") + "0123456789abcdef"[c % 16];
  every += "\x7f\\ufffe\\uffff\\ud83d\\ude00<&>\"";  // and characters that XML has, or that are escaped
  const auto metrics =
      written(folder / "run\x01.jsonl", R"({"event":"plan","steps_per_epoch":4,"model":)" + every +
                                            R"(,"optimizer":)" + every + R"(,"devices":[)" + every +
                                            "]}\n"
                                            R"({"event":"epoch","epoch":1,"test_accuracy":0.5})"
                                            "\n");
  const auto sweep =
      written(folder / "s.json", R"({"format":"lockstep sweep","version":1,"cells":[{"devices":)" + every +
                                     R"(,"lr":0.1,"accuracy":0.5}]})");
  const auto overlap =
      written(folder / "o.json",
              R"({"format":"lockstep bench","version":1,"bench":"overlap","timeline":[{"experiment":)" +
                  every + R"(,"process":)" + every + R"(,"track":)" + every + R"(,"name":)" + every +
                  R"(,"begin":0,"end":1}]})");
  const auto allreduce =
      written(folder / "a.json",
              R"({"format":"lockstep bench","version":1,"bench":"allreduce","environment":{"cpu":)" + every +
                  R"(},"tables":[{"name":"allreduce","rows":[{"devices":)" + every + R"(,"algorithm":)" +
                  every + R"(,"bytes":8,"busbw":1}]}]})");
  for (const auto& file : {metrics, sweep, overlap, allreduce}) {
    const auto picture = (folder / "out.svg").string();
    const auto result = run_process(program({"plot", file, "--output", picture, "--overwrite"}));
    INFO(file << result.err);
    REQUIRE(result.exit_code == 0);
    const auto read =
        run_process({.command = {"/usr/bin/env", "python3", "-c",
                                 "import sys, xml.dom.minidom as x; x.parse(sys.argv[1])", picture}});
    CHECK(read.err == "");
    CHECK(read.exit_code == 0);
  }
}

TEST_CASE("a run that is still writing is drawn without its incomplete last line, with a warning") {
  NEEDS_CAIRO
  const TempFolder folder;
  const auto file = written(folder / "run.jsonl", R"({"event":"plan","steps_per_epoch":4}
{"event":"step","epoch":1,"step":2,"loss":2.5}
{"event":"step","epoch":1,"st)");
  const auto result = run_ending(0, program({"plot", file, "--output", (folder / "run.svg").string()}));
  CHECK_THAT(result.out, ContainsSubstring("losses while training of 1 run"));
  CHECK_THAT(result.err, ContainsSubstring("warning: the last line of '" + file + "' is incomplete"));
}

TEST_CASE("the ending of --output decides between SVG and PNG") {
  const TempFolder folder;
  const auto file = written(folder / "s.json", kSweep);
  for (const auto* name : {"s.pdf", "s", "s.SVG", ".png"}) {
    CHECK_THAT(refusal(program({"plot", file, "--output", (folder / name).string()}), 2),
               ContainsSubstring(".svg or .png") && ContainsSubstring(name));
  }
  CHECK_THAT(refusal(program({"plot"}), 2), ContainsSubstring("FILE is required"));
  CHECK_THAT(refusal(program({"plot", file, "--outptu", "x.svg"}), 2),
             ContainsSubstring("did you mean '--output'?"));
  CHECK(files_in(folder) == 1);
}

TEST_CASE("the help shows that plot takes files") {
  const auto result = run_ending(0, program({"plot", "--help"}));
  CHECK_THAT(result.out, ContainsSubstring("Usage: lockstep plot FILE... [FLAGS]") &&
                             ContainsSubstring("\nArguments:\n  FILE...  "));
}
