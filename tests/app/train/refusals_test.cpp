// Runs that are refused (combinations of flags that make no sense) or that fail (the loss is NaN).
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <lockstep/support/cpu/capability.h>
#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train_process.h>
#include <lockstep/tests/skip.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using lockstep::CpuCapability;
using lockstep::has_capability;
using lockstep::testing::TempFolder;

// The tests of plan/ have all combinations and values.
TEST_CASE("flags that make no sense are refused before anything is read or written") {
  struct Case {
    Words words;
    Words names;  // the flags that the message names
  };
  const TempFolder folder;
  const std::vector<Case> cases = {
      {{"--deterministic", "--split", "auto"}, {"--deterministic", "--split auto"}},
      {{"--allreduce", "nccl"}, {"--allreduce two_shot"}}};
  for (const auto& [flags, names] : cases) {
    // Reading this folder would be another error, with another code.
    const auto error = refusal(train(flags + Words{"--data", "/nonexistent", "--devices", "cpux2",
                                                   "--metrics", (folder / "f").string()}),
                               2);
    for (const auto& name : names) CHECK_THAT(error, ContainsSubstring(name));
    CHECK_THAT(error, ContainsSubstring("\nhint: "));
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}

TEST_CASE("what is refused once the data is known writes nothing") {
  const TempFolder folder;
  refusal(train({"--data", "synthetic", "--limit-train", "128", "--limit-test", "16", "--recipe",
                 "resnet18-pytorch", "--batch-size", "64", "--devices", "cpux2", "--split", "0:1", "--save",
                 (folder / "weights.safetensors").string()}),
          2);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("limits above the number of images are refused") {
  const SmallData data(16, 8);
  CHECK_THAT(refusal(train({"--data", data.folder(), "--limit-train", "17"}), 2),
             ContainsSubstring("--limit-train 17 is more than the 16 training images of " + data.folder()));
  // train() would limit the training images.
  CHECK_THAT(refusal(train({"--data", data.folder(), "--limit-train", "16", "--limit-test", "9"}), 2),
             ContainsSubstring("--limit-test 9 is more than the 8 test images of " + data.folder()));
}

TEST_CASE("a loss that is not finite ends a run of several replicas; the error says when and where") {
  const SmallData data;
  const auto result = run_process(train(
      {"--data", data.folder(), "--devices", "cpux2", "--lr", "1e30", "--epochs", "1", "--log-every", "1"}));
  CHECK(result.exit_code == 6);
  CHECK_THAT(result.err,
             ContainsSubstring("the loss was not finite at epoch 1, step 2, on replica 0 (cpu)") &&
                 ContainsSubstring("hint: training has diverged; try a learning rate below 1e+30"));
  CHECK_THAT(result.out, ContainsSubstring("step 1/5") && !ContainsSubstring("step 2/5") &&
                             !ContainsSubstring("test acc"));
}

TEST_CASE("an unknown CPU capability is refused before anything is read or printed") {
  const std::map<std::string, std::string> nonsense = {{"LOCKSTEP_CPU_CAPABILITY", "nonsense"}};
  const Words list = {"--devices", "cpux2"};
  for (const auto& words : std::vector<Words>{{"train", "--dry-run", "--data", "/nonexistent"},
                                              {"bench", "step", "--data", "/nonexistent"},
                                              {"eval", "--weights", "/nonexistent"}}) {
    INFO(words[0]);
    CHECK_THAT(
        refusal(program(words + list, nonsense), 2),
        ContainsSubstring("LOCKSTEP_CPU_CAPABILITY must be avx512, avx2 or portable, got 'nonsense'") &&
            ContainsSubstring("\nhint: "));
  }
}

TEST_CASE("LOCKSTEP_CPU_CAPABILITY chooses the kernels") {
  const auto hash = [](const std::map<std::string, std::string>& environment) {
    auto process = train({"--epochs", "1", "--limit-steps", "2", "--quiet", "--print-weights-hash"});
    process.environment = environment;
    const auto result = run_process(process);
    REQUIRE(result.exit_code == 0);
    return lines(result.out).front();
  };
  const auto portable = hash({{"LOCKSTEP_CPU_CAPABILITY", "portable"}});
  CHECK(hash({{"LOCKSTEP_CPU_CAPABILITY", "portable"}}) == portable);
  if (!has_capability(CpuCapability::kAvx2)) SKIP_CASE("this CPU has no other capability");
  CHECK(hash({{"LOCKSTEP_CPU_CAPABILITY", "avx2"}}) != portable);
  CHECK(hash({{"LOCKSTEP_CPU_CAPABILITY", ""}}) != portable);  // as if it were not set
}

TEST_CASE("--quiet prints warnings and the last line only") {
  const SmallData data(640, 10);
  auto process = train({"--data", data.folder(), "--devices", "cpux2", "--split", "auto", "--batch-size",
                        "16", "--epochs", "1", "--log-every", "1", "--quiet"});
  process.environment = {{"LOCKSTEP_FLAG_BATCHSIZE", "7"}};
  const auto result = run_process(process);
  CHECK(result.exit_code == 0);
  CHECK(lines(result.out).size() == 1);
  CHECK(result.out.rfind("test acc: ", 0) == 0);
  CHECK(lines(result.err).size() == 1);
  CHECK_THAT(result.err, ContainsSubstring("LOCKSTEP_FLAG_BATCHSIZE"));
}

TEST_CASE("an error does not repeat a long value whole") {
  const std::string word(100'000, 'q'), nines(100'000, '9');
  CHECK_THAT(refusal(program({"train", "--devices", word}), 2),
             ContainsSubstring("device list '" + word.substr(0, 49) + "...") &&
                 ContainsSubstring("is not a device\nhint: "));
  const auto number = refusal(program({"train", "--epochs", nines}), 2);
  CHECK_THAT(number, ContainsSubstring(", got " + nines.substr(0, 50) + "..." + nines.substr(0, 50) + "\n"));
  CHECK(number.size() < 500);
}

TEST_CASE("an error has no control characters of the names in it") {
  const auto result = run_process(program({"train", "--data", "/x\x1b[31m\ny"}));
  CHECK(result.exit_code == 3);
  CHECK_THAT(result.err, ContainsSubstring("/x?[31m?y"));
  CHECK(result.err.find('\x1b') == std::string::npos);
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 2);  // the error and its hint
}
