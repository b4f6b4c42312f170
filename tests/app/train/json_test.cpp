// JSON on standard output: train --metrics -, train --dry-run --json, eval --json, data verify --json.
#include <lockstep/tests/catch.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train_process.h>
#include <lockstep/tests/data/idx_bytes.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

std::vector<json> json_lines(const std::string& text) {
  std::vector<json> result;
  for (const auto& line : lines(text)) result.push_back(json::parse(line));
  return result;
}

// The plan without what differs from run to run.
json lasting(json plan) {
  plan.erase("command");
  plan.at("environment").erase("date");
  plan.erase("memory_estimate_bytes");
  return plan;
}

}  // namespace

TEST_CASE("train --metrics - prints the run as JSON lines and nothing else") {
  const SmallData data(640, 20);
  const TempFolder folder;
  const Words words = {"--data", data.folder(), "--epochs", "2", "--log-every", "5"};
  const auto result =
      run_process(train(words + Words{"--metrics", "-", "--print-weights-hash", "--save",
                                      (folder / "w").string(), "--trace", (folder / "t").string()}));
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  const auto printed = json_lines(result.out);
  Words kinds;
  for (const auto& event : printed) kinds.push_back(event.at("event"));
  CHECK(kinds == Words{"plan", "step", "epoch", "step", "epoch", "end"});
  CHECK(printed.back().at("weights_sha256").get<std::string>().size() == 64);
  CHECK(files_in(folder) == 2);

  const auto in_file = metrics_of(words);
  CHECK(lasting(printed.front()) == lasting(in_file.front()));
  CHECK(printed.back().at("test_accuracy") == in_file.back().at("test_accuracy"));
}

TEST_CASE("a file of the name - can be named with its folder") {
  const TempFolder folder;
  const auto file = (folder / "-").string();
  const auto result =
      run_process(train({"--limit-steps", "1", "--limit-test", "10", "--quiet", "--metrics", file}));
  CHECK_THAT(result.out, ContainsSubstring("test acc: "));
  CHECK(metrics_in(file).size() == 4);
}

TEST_CASE("train --metrics - ends with SIGPIPE's code when its reader has gone, and keeps the weights") {
  const TempFolder folder;
  const auto weights = (folder / "w").string(), code = (folder / "code").string();
  auto process = train({"--epochs", "100", "--limit-train", "8000", "--batch-size", "2", "--log-every", "1",
                        "--metrics", "-", "--save", weights});
  process.command =
      Words{"/bin/sh", "-c", R"(code=$1; shift; { "$@"; echo $? > "$code"; } | head -n 3)", "sh", code} +
      process.command;
  const auto result = run_process(process);
  CHECK(json_lines(result.out).size() == 3);
  CHECK(read_file(code) == "141\n");
  CHECK(std::filesystem::file_size(weights) > 200'000);
}

TEST_CASE("train --metrics - that is stopped ends with a line that says so") {
  const auto result = stopped_run({"--log-every", "1", "--metrics", "-"}, SIGTERM, "\"step\":2,");
  CHECK(result.exit_code == 143);
  const auto end = json_lines(result.out).back();
  CHECK(end.at("event") == "end");
  CHECK(end.at("status") == "stopped");
}

TEST_CASE("train --dry-run --json prints the plan that the metrics begin with") {
  const SmallData data(64, 20);
  const Words words = {"--data", data.folder(), "--limit-train", "64", "--limit-steps", "1"};
  const auto first = lasting(metrics_of(words).front());
  for (const auto& flags : {Words{"--json"}, Words{"--metrics", "-"}, Words{"--json", "--quiet"}}) {
    const auto dry = run_process(train(words + Words{"--dry-run"} + flags));
    CHECK(dry.exit_code == 0);
    const auto printed = json_lines(dry.out);
    REQUIRE(printed.size() == 1);
    CHECK(printed.front().at("event") == "plan");
    CHECK(lasting(printed.front()) == first);
  }
}

TEST_CASE("train --json without --dry-run is refused, and --metrics - is named") {
  CHECK_THAT(refusal(train({"--json"}), 2),
             ContainsSubstring("--json prints the plan of a --dry-run") && ContainsSubstring("--metrics -"));
}

TEST_CASE("eval --json prints the figures of the run's last evaluation") {
  const SmallData data(640, 300);
  const TempFolder folder;
  const auto file = (folder / "w").string();
  const auto last = events_named("epoch", metrics_of({"--data", data.folder(), "--epochs", "1", "--lr", ".5",
                                                      "--batch-size", "32", "--save", file}))
                        .back();
  const auto eval = run_process(program({"eval", "--weights", file, "--data", data.folder(), "--json",
                                         "--devices", "cpux2", "--limit-test", "300"}));
  CHECK(eval.exit_code == 0);
  const auto printed = json_lines(eval.out);
  REQUIRE(printed.size() == 1);
  const auto& result = printed.front();
  CHECK(result.at("weights") == file);
  CHECK(result.at("model") == "lenet");
  CHECK(result.at("devices") == json{"cpu", "cpu"});
  CHECK(result.at("test_rows") == 300);
  CHECK(result.at("all_test_rows") == 300);
  CHECK(result.at("test_accuracy") == last.at("test_accuracy"));
  CHECK(result.at("test_top5") == last.at("test_top5"));
  CHECK(result.at("test_loss").get<double>() == Approx(last.at("test_loss").get<double>()).epsilon(1e-5));
}

TEST_CASE("data verify --json prints one object, also when files differ") {
  const SmallData data(1, 1);
  const auto result = run_process(program({"data", "verify", "--data", data.folder(), "--json"}));
  CHECK(result.exit_code == 3);
  const auto printed = json_lines(result.out);
  REQUIRE(printed.size() == 1);
  CHECK(printed.front().at("folder") == data.folder());
  CHECK(printed.front().at("ok") == false);
  const auto& files = printed.front().at("files");
  REQUIRE(files.size() == 4);
  for (const auto& file : files) {
    CHECK(file.at("ok") == false);
    CHECK(file.at("sha256") != file.at("published_sha256"));
    CHECK(file.at("sha256").get<std::string>().size() == 64);
  }
  CHECK(files.front().at("file") == "train-images-idx3-ubyte");
}
