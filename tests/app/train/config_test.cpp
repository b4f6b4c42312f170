// `lockstep train --print-config` and `--config`: the same weights again.
#include <lockstep/tests/catch.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <lockstep/tests/app/processes/hand_started.h>
#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Command {
  Words words;
  std::map<std::string, std::string> environment = {};
};

ProcessResult result_of(const Command& command, const Words& more) {
  auto result = run_process(program(Words{"train"} + command.words + more, command.environment));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return result;
}

std::string hash_of(const Command& command) {
  const auto out = result_of(command, {"--print-weights-hash", "--quiet"}).out;
  REQUIRE(out.rfind("weights sha256: ", 0) == 0);
  return out.substr(0, out.find('\n'));
}

}  // namespace

TEST_CASE("a printed configuration trains the same weights") {
  const SmallData data(160, 8);
  const TempFolder folder;
  const auto odd = (folder / "a \"b\" # c\\d").string();
  std::filesystem::create_symlink(data.folder(), odd);
  const Words small = {"--data", odd, "--limit-steps", "3"};
  const std::vector<Command> commands = {
      // batch and rate for each device; the split changes the sums
      {small + Words{"--recipe", "resnet18-gluon", "--model", "lenet", "--devices", "cpux2", "--split", "3:1",
                     "--threads", "1"}},
      {{"--limit-steps", "3", "--batch-size", "64"},
       {{"LOCKSTEP_DATA", odd}, {"LOCKSTEP_FLAG_OPTIMIZER", "adamw"}, {"LOCKSTEP_FLAG_SEED", "5"}}},
      {small + Words{"--invariant", "--devices", "cpux2", "--precision", "fp64", "--batch-size", "32"}}};
  std::vector<std::string> hashes;
  for (const auto& command : commands) {
    const auto printed = result_of(command, {"--print-config", "--save", (folder / "w").string()});
    CHECK(printed.err.empty());
    CHECK_FALSE(std::filesystem::exists(folder / "w"));
    INFO(printed.out);
    const auto file = (folder / "c.toml").string();
    std::ofstream(file) << printed.out;
    const auto run = folder / std::to_string(hashes.size());
    hashes.push_back(hash_of({command.words + Words{"--output", run.string()}, command.environment}));
    CHECK(read_file(run / "config.toml") == printed.out);
    CHECK(hash_of({{"--config", file}}) == hashes.back());
  }
  CHECK(hashes[0] != hashes[1]);
  CHECK(hashes[1] != hashes[2]);
  // A flag changes what the file says.
  const auto file = (folder / "c.toml").string();
  CHECK(hash_of({{"--config", file, "--seed", "1"}}) != hashes[2]);
}

TEST_CASE("a configuration that is not there ends with exit code 2") {
  CHECK_THAT(refusal(train({"--config", "/nonexistent/c.toml"}), 2),
             ContainsSubstring("cannot read the configuration '/nonexistent/c.toml': there is no such file"));
}

TEST_CASE("of several processes the first prints the configuration") {
  const auto results =
      run_all(small_world({"--print-config"}, {{"--devices", "cpux2"}, {"--devices", "cpu"}}));
  INFO(results[0].err << results[1].err);
  CHECK(results[0].exit_code == 0);
  CHECK(results[1].exit_code == 0);
  CHECK_THAT(results[0].out, ContainsSubstring("\n# of 2 processes, with the devices [cpu, cpu] + [cpu]: ") &&
                                 ContainsSubstring("\nallreduce = \"gloo\"\n"));
  CHECK(results[1].out.empty());
}
