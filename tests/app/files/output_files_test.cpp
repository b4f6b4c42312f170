// The contents of the output files if one of them, or standard output, cannot be written.
#include <sys/stat.h>

#include <lockstep/tests/catch.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::TempFolder;
namespace fs = std::filesystem;

namespace {

const Words kTwoSteps = {"--epochs", "1", "--limit-steps", "2"};
// Thousands of small steps before the first evaluation.
const Words kLong = {"--epochs", "100", "--limit-train", "8000", "--batch-size", "2"};
const Words kSmallBench = {"bench",       "allreduce", "--devices", "cpux2",
                           "--max-bytes", "1024",      "--repeat",  "1"};

// Limits the size of the command's files.
Process limited(const std::string& bytes, Process process) {
  process.command = Words{"/usr/bin/prlimit", "--fsize=" + bytes} + process.command;
  return process;
}

// Pipes the command's output into `head`, and writes its exit code to the file `code`.
Process into_head(const std::string& lines, const fs::path& code, Process process) {
  process.command = Words{"/bin/sh",
                          "-c",
                          R"(code=$1; lines=$2; shift 2; { "$@"; echo $? > "$code"; } | head -n "$lines")",
                          "sh",
                          code.string(),
                          lines} +
                    process.command;
  return process;
}

// Appends the command's output to a file that can grow by `room` bytes. Weights still fit into a file.
Process into_full_file(const fs::path& file, size_t room, Process process) {
  constexpr size_t kFileLimit = 600'000;
  write_file(file, std::string(kFileLimit - room, '\n'));
  process = limited(std::to_string(kFileLimit), std::move(process));
  process.command =
      Words{"/bin/sh", "-c", R"(out=$1; shift; exec "$@" >> "$out")", "sh", file.string()} + process.command;
  return process;
}

}  // namespace

TEST_CASE("output flags that name the same file are refused before any work") {
  const TempFolder folder;
  fs::create_directory(folder / "sub");
  const auto a = (folder / "a").string(), same = (folder / "sub/../a").string();
  for (const auto& words : {Words{"--save", a, "--trace", same}, Words{"--save", a, "--metrics", same},
                            Words{"--trace", a, "--metrics", same}}) {
    CHECK_THAT(
        refusal(train(words + Words{"--overwrite", "--data", "/nonexistent"}), 2),
        ContainsSubstring("are the same file") && ContainsSubstring(words[0]) && ContainsSubstring(words[2]));
  }
  const Words overlap = {"bench", "overlap", "--json", a, "--trace", same};
  CHECK_THAT(refusal(program(overlap), 2), ContainsSubstring("are the same file"));
  write_file(a + ".svg", "{}");
  CHECK_THAT(refusal(program({"plot", a + ".svg", "--output", same + ".svg", "--overwrite"}), 2),
             ContainsSubstring("are the same file"));
  CHECK(read_file(a + ".svg") == "{}");
  write_file(folder / "c.toml", "epochs = 1\n");
  CHECK_THAT(refusal(train({"--config", (folder / "c.toml").string(), "--save",
                            (folder / "sub/../c.toml").string(), "--overwrite"}),
                     2),
             ContainsSubstring("--config") && ContainsSubstring("are the same file"));
  CHECK(read_file(folder / "c.toml") == "epochs = 1\n");
  auto process = train({"--metrics", a, "--overwrite"});
  process.stdout_path = a;
  const auto result = run_ending(2, process);
  CHECK_THAT(result.err, ContainsSubstring("standard output"));
}

TEST_CASE("if the trace cannot be written, the weights are still written") {
  const TempFolder folder;
  const auto weights = (folder / "w").string();
  const auto result = run_ending(7, train(kTwoSteps + Words{"--save", weights, "--trace", "/dev/full"}));
  CHECK_THAT(result.err, ContainsSubstring("/dev/full") && ContainsSubstring("No space left"));
  CHECK(fs::file_size(weights) > 200'000);
}

TEST_CASE("if the trace does not fit on the disk, the old one is kept") {
  const TempFolder folder;
  const auto trace = (folder / "trace").string();
  write_file(trace, "old");
  const auto result =
      run_ending(7, limited("500", train(kTwoSteps + Words{"--trace", trace, "--overwrite"})));
  CHECK_THAT(result.err, ContainsSubstring("trace") && ContainsSubstring("File too large"));
  CHECK(read_file(trace) == "old");
  CHECK(files_in(folder) == 1);
}

TEST_CASE("a run whose metrics cannot be written stops before it trains") {
  const TempFolder folder;
  const auto weights = (folder / "w").string();
  const auto result = run_ending(7, train(kTwoSteps + Words{"--save", weights, "--metrics", "/dev/full"}));
  CHECK_THAT(result.err, ContainsSubstring("/dev/full"));
  CHECK_FALSE(fs::exists(weights));
}

TEST_CASE("a run whose metrics can no longer be written stops, and keeps its weights") {
  const TempFolder folder;
  const auto weights = (folder / "w").string(), pipe = (folder / "pipe").string();
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  auto process = train(kLong + Words{"--log-every", "1", "--metrics", pipe, "--save", weights});
  std::string plan, step;
  process.on_start = [&](pid_t) {  // reads two lines
    std::ifstream metrics(pipe);
    std::getline(metrics, plan);
    std::getline(metrics, step);
  };
  const auto result = run_process(process);
  CHECK_THAT(step, ContainsSubstring("\"step\":1"));
  CHECK(result.exit_code == 7);
  CHECK_THAT(result.err, ContainsSubstring("pipe") && ContainsSubstring("Broken pipe"));
  CHECK(fs::file_size(weights) > 200'000);
}

TEST_CASE("a run whose standard output can no longer be written stops, and keeps its files") {
  const TempFolder folder;
  const auto weights = (folder / "w").string(), trace = (folder / "trace").string();
  const auto run = train(kLong + Words{"--log-every", "1", "--save", weights, "--trace", trace});
  SECTION("its reader has gone") {
    const auto result = run_process(into_head("25", folder / "code", run));
    CHECK(lines(result.out).size() == 25);
    CHECK(read_file(folder / "code") == "141\n");  // SIGPIPE's
  }
  SECTION("its file has reached its size limit") {
    const auto result = run_ending(7, into_full_file(folder / "out", 4000, run));
    CHECK_THAT(result.err, ContainsSubstring("standard output"));
  }
  CHECK(fs::file_size(weights) > 200'000);
  CHECK(nlohmann::json::parse(read_file(trace)).size() > 0);
}

TEST_CASE("if a file appears at the weights' path during training, the weights are written beside it") {
  const TempFolder folder;
  const auto weights = (folder / "w.safetensors").string();
  write_file(folder / "w-1.safetensors", "taken, too");
  const auto trace = (folder / "trace").string();
  const auto result = stopped_run({"--log-every", "1", "--save", weights, "--trace", trace}, SIGINT,
                                  "step 2/5", [&](pid_t) { write_file(weights, "theirs"); });
  CHECK(result.exit_code == 7);
  CHECK_THAT(result.err,
             ContainsSubstring("already exists") && ContainsSubstring("w-2.safetensors' instead"));
  CHECK(read_file(weights) == "theirs");
  CHECK(nlohmann::json::parse(read_file(trace)).size() > 0);
  const auto again = run_process(program(
      {"eval", "--weights", (folder / "w-2.safetensors").string(), "--data", "synthetic", "--threads", "1"}));
  CHECK(again.exit_code == 0);
}

TEST_CASE("the JSON file of a benchmark is complete or absent") {
  const TempFolder folder;
  const auto file = (folder / "bench.json").string();
  const auto run = program(kSmallBench + Words{"--json", file, "--overwrite"});
  SECTION("standard output takes only the first lines") {
    CHECK(run_process(into_full_file(folder / "out", 1500, run)).exit_code == 7);
    CHECK(nlohmann::json::parse(read_file(file)).at("complete") == false);
  }
  SECTION("the file would exceed its size limit") {
    write_file(file, "old");
    const auto result = run_ending(7, limited("300", run));
    CHECK(read_file(file) == "old");
    CHECK(files_in(folder) == 1);
  }
}

// A path may hold any bytes, and each file names the command, or the data.
TEST_CASE("every command writes its files where paths are not UTF-8") {
  const TempFolder folder;
  const SmallData data(128, 64);
  const auto data_link = (folder / "d\xfc").string();
  fs::create_directory_symlink(data.folder(), data_link);
  const auto path = [&](const std::string& name) { return (folder / (name + "\xfc.json")).string(); };
  const auto run = [](const Process& process) {
    const auto result = run_ending(0, process);
    return result.out;
  };
  const auto command_in = [](const std::string& text) {
    return nlohmann::json::parse(text).at("command").get<std::string>();
  };
  const Words small = {"--data", data_link, "--limit-train", "128", "--threads", "1", "--epochs", "1"};

  run(program(kSmallBench + Words{"--json", path("bench")}));
  CHECK_THAT(command_in(read_file(path("bench"))), ContainsSubstring("bench\uFFFD.json"));

  run(program(Words{"sweep", "--json", path("sweep")} + small));
  CHECK_THAT(command_in(read_file(path("sweep"))), ContainsSubstring("sweep\uFFFD.json"));
  CHECK_THAT(run(program(Words{"sweep", "--resume", path("sweep")} + small)), ContainsSubstring("kept"));

  const auto runs = (folder / "r\xfc").string(), weights = path("weights");
  run(train(small + Words{"--metrics", path("metrics"), "--trace", path("trace"), "--save", weights,
                          "--output", runs}));
  CHECK_THAT(metrics_in(path("metrics")).front().at("command").get<std::string>(),
             ContainsSubstring("metrics\uFFFD.json"));
  CHECK(nlohmann::json::parse(read_file(path("trace"))).is_array());
  CHECK_THAT(command_in(read_file(runs + "/env.json")), ContainsSubstring("metrics\uFFFD.json"));
  run(train({"--resume", runs, "--data", data_link, "--limit-train", "128", "--epochs", "2"}));

  // No configuration can name these data.
  CHECK_THAT(refusal(train(small + Words{"--print-config"}), 2),
             ContainsSubstring("of 'data' cannot stand in a configuration"));
  CHECK_THAT(read_file(runs + "/config.toml"),
             ContainsSubstring("\n# data has a name that is not UTF-8: give it again\n") &&
                 !ContainsSubstring("\ndata ="));

  // So they are named again when the run goes on, and others are refused by their hash.
  const Words goes_on = {"train", "--resume", runs, "--dry-run", "--quiet"};
  run(program(goes_on, {{"LOCKSTEP_DATA", data_link}}));
  CHECK_THAT(refusal(program(goes_on, {{"LOCKSTEP_DATA", "synthetic"}}), 4),
             ContainsSubstring("train data hash"));

  for (const Words& words : {Words{"eval", "--weights", weights, "--data", data_link, "--threads", "1"},
                             {"data", "verify", "--data", data_link},
                             {"checkpoint", "ls", runs}}) {
    const auto result = run_process(program(words + Words{"--json"}));
    INFO(words.front() << ": " << result.err);
    CHECK(nlohmann::json::parse(result.out).is_object());
  }
}
