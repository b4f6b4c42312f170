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

// tests/app/train/plan/combinations_test.cpp has all combinations.
TEST_CASE("combinations that make no sense are refused before anything is read or written") {
  struct Case {
    Words words;
    Words names;  // the flags that the message names
  };
  const TempFolder folder;
  const auto file = (folder / "f").string();
  const std::vector<Case> cases = {
      {{"--deterministic", "--split", "auto"}, {"--deterministic", "--split auto"}},
      {{"--invariant", "--accumulate", "2"}, {"--invariant", "--accumulate"}},
      {{"--bn", "sync", "--cuda-graph", "on"}, {"--bn sync", "--cuda-graph on"}},
      {{"--recipe", "resnet18-fleet", "--nesterov", "--momentum", "0"}, {"--nesterov", "--momentum"}},
      {{"--allreduce", "nccl"}, {"--allreduce two_shot"}},
      {{"--compress", "bf16"}, {"--compress bf16"}},
      {{"--metrics", file, "--trace", file}, {"--metrics", "--trace"}},
      {{"--metrics", file, "--save", file}, {"--metrics", "--save"}},
      {{"--trace", file, "--save", file}, {"--trace", "--save"}},
  };
  for (const auto& [flags, names] : cases) {
    // Reading this folder would be another error, with another code.
    auto words = flags + Words{"--data", "/nonexistent", "--devices", "cpux2"};
    if (std::ranges::find(words, file) == words.end()) words = words + Words{"--metrics", file};
    INFO(flags[0] << " " << flags[1]);
    const auto error = refusal(train(words), 2);
    for (const auto& name : names) CHECK_THAT(error, ContainsSubstring(name));
    CHECK_THAT(error, ContainsSubstring("\nhint: "));
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}

TEST_CASE("limits above the number of images are refused") {
  const SmallData data(16, 8);
  CHECK_THAT(refusal(train({"--data", data.folder(), "--limit-train", "17"}), 2),
             ContainsSubstring("--limit-train 17 is more than the 16 training images of " + data.folder()));
  // train() would limit the training images.
  CHECK_THAT(refusal(train({"--data", data.folder(), "--limit-train", "16", "--limit-test", "9"}), 2),
             ContainsSubstring("--limit-test 9 is more than the 8 test images of " + data.folder()));
}

TEST_CASE("similar combinations that make sense are accepted") {
  const SmallData data(16, 8);
  const std::vector<Words> cases = {
      {"--recipe", "resnet18-fleet", "--model", "lenet", "--nesterov"},
      {"--recipe", "resnet18-fleet", "--model", "lenet", "--optimizer", "adamw"},
      {"--invariant", "--deterministic", "--clip-norm", "1", "--bn", "root"},
      {"--split", "even", "--invariant", "--accumulate", "1"}};
  for (const auto& words : cases) {
    const auto result = run_process(train(
        Words{"--data", data.folder(), "--limit-train", "16", "--devices", "cpux2", "--dry-run"} + words));
    INFO(words[1] << ": " << result.err);
    CHECK(result.exit_code == 0);
  }
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

TEST_CASE("the error for an unknown value names the nearest one") {
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--sync", "overlaped"}, "overlapped"}, {{"--allreduce", "twoshot"}, "two_shot"},
      {{"--optimizer", "adam"}, "adamw"},      {{"--schedule", "cosin"}, "cosine"},
      {{"--precision", "bf-16"}, "bf16"},      {{"--recipe", "resnet18-flet"}, "resnet18-fleet"}};
  for (const auto& [words, near] : cases) {
    CHECK_THAT(refusal(train(words), 2),
               ContainsSubstring(words[0]) && ContainsSubstring("did you mean '" + near + "'?"));
  }
  for (const auto& words : std::vector<Words>{{"--momentum", "1"},
                                              {"--weight-decay", "-1"},
                                              {"--clip-norm", "0"},
                                              {"--accumulate", "0"},
                                              {"--warmup-epochs", "-1"},
                                              {"--bucket-mb", "0"}}) {
    CHECK_THAT(refusal(train(words), 2), ContainsSubstring(words[0]) && ContainsSubstring(words[1]));
  }
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
