// The plan of a run of an exported program: what it says, and what is refused before the first step.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <lockstep/tests/catch.h>

#include <string>
#include <vector>

#include <lockstep/app/train/plan/first_pass.h>
#include <lockstep/app/train/plan/loss_choice.h>
#include <lockstep/app/train/plan/program.h>
#include <lockstep/models/program.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/program_data.h>
#include <lockstep/tests/app/train_command.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// The exit code of what planning throws, and its words; 0 if it throws nothing.
std::pair<ExitCode, std::string> refused(const Words& words) {
  try {
    planned(words);
  } catch (const Error& error) {
    return {error.exit_code(), error.message() + " | " + error.hint()};
  }
  return {ExitCode::kDone, ""};
}

}  // namespace

TEST_CASE("a loss is a name, or a name and an output") {
  CHECK(parse_loss("mse") == LossChoice{.loss = ProgramLoss::kMse});
  CHECK(parse_loss("cross_entropy:logits") ==
        LossChoice{.loss = ProgramLoss::kCrossEntropy, .output = "logits"});
  CHECK(parse_loss("own:output.0") == LossChoice{.loss = ProgramLoss::kOwn, .output = "output.0"});
  for (const auto* text : {"", "mae", "mse:", ":mse", "MSE"}) {
    INFO(text);
    CHECK_FALSE(parse_loss(text));
  }
  for (const auto* text : {"classification", "smooth_l1:price"}) CHECK(loss_text(*parse_loss(text)) == text);
}

TEST_CASE("what a program excludes is refused before the data are read") {
  struct Case {
    Words words;
    ExitCode code;
    Words says;
  };
  const auto mlp = fixture("mlp.pt2");
  const std::vector<Case> cases = {
      {{"--program", mlp, "--recipe", "lenet-scratch"}, ExitCode::kUsage, {"--program", "--recipe"}},
      {{"--program", mlp, "--model", "lenet"}, ExitCode::kUsage, {"--program", "--model"}},
      {{"--program", mlp, "--kernels", "torch"}, ExitCode::kUsage, {"--program", "--kernels"}},
      {{"--program", fixture("assigned_buffer.pt2"), "--invariant"},
       ExitCode::kUsage,
       {"--invariant", "buffers"}},
      {{"--program", fixture("view_of_buffer.pt2"), "--invariant"},
       ExitCode::kUsage,
       {"--invariant", "buffers"}},
      {{"--program", fixture("instance_norm.pt2"), "--invariant"},
       ExitCode::kUsage,
       {"--invariant", "buffers"}},
      {{"--program", fixture("functional_norm.pt2"), "--bn", "average"},
       ExitCode::kUsage,
       {"--bn average", "belong to no module", "make_fixtures.py, line "}},
      {{"--loss", "mse"}, ExitCode::kUsage, {"--loss", "--program"}},
      {{"--save", "net.pt2"}, ExitCode::kUsage, {"--save", ".pt2", "--program"}},
      {{"--save", "net.PT2"}, ExitCode::kUsage, {"--save", ".PT2", "--program"}},
      {{"--save", "net.pt"}, ExitCode::kUsage, {"--save", ".pt", ".safetensors"}},
      {{"--save", "net.bin"}, ExitCode::kUsage, {"--save", ".bin", ".safetensors"}},
      {{"--program", mlp, "--save", "net.PTH"}, ExitCode::kUsage, {"--save", ".pth", ".safetensors", ".pt2"}},
      {{"--program", mlp, "--save", "net.ckpt"}, ExitCode::kUsage, {"--save", ".ckpt", ".pt2"}},
      {{"--program", mlp, "--loss", "mae"}, ExitCode::kUsage, {"--loss", "mae", "classification"}},
      {{"--program", mlp, "--loss", "mse:"}, ExitCode::kUsage, {"--loss", "no output"}},
      {{"--program", fixture("dict_output.pt2"), "--loss", "mse:logit"},
       ExitCode::kUsage,
       {"no output 'logit'", "hidden, logits", "did you mean 'mse:logits'?"}},
      {{"--program", fixture("plain_dropout.pt2")}, ExitCode::kWeights, {"evaluation", "export_program.py"}},
      {{"--program", "/nonexistent.pt2"}, ExitCode::kWeights, {"/nonexistent.pt2", "--program"}}};
  for (const auto& [words, code, says] : cases) {
    INFO(fmt::format("{}", fmt::join(words, " ")));
    const auto [found, text] = refused(words + Words{"--data", "/nonexistent"});
    CHECK(found == code);
    for (const auto& each : says) CHECK_THAT(text, ContainsSubstring(each));
  }
}

TEST_CASE("data that do not fit a program, and shards that it does not take, are refused with both values") {
  struct Case {
    const char* program;
    const char* data;  // of this fixture
    Words words;
    ExitCode code;
    Words says;
  };
  const std::vector<Case> cases = {
      {"mlp", "dict_output", {"--loss", "mse"}, ExitCode::kData, {"[2]", "[2, 1]"}},  // classes for prices
      {"conv_bn", "mlp", {}, ExitCode::kData, {"input"}},
      {"dict_output",
       "dict_output",
       {},
       ExitCode::kUsage,  // the first output, hidden, is before head
       {"2 of the 4", "head.weight, head.bias", "hidden, logits, more.0"}},
      // exported for 2 to 8 rows
      {"narrowed", "narrowed", {"--batch-size", "9"}, ExitCode::kUsage, {"9 rows", "8"}},
      {"narrowed", "narrowed", {"--batch-size", "16", "--accumulate", "2"}, ExitCode::kDone, {}},
      {"narrowed", "narrowed", {"--batch-size", "16", "--devices", "cpux2"}, ExitCode::kDone, {}}};
  for (const auto& [program, of, words, code, says] : cases) {
    INFO(program << " with data of " << of << " " << fmt::format("{}", fmt::join(words, " ")));
    const TempFolder folder;
    const auto data = write_program_data(folder / "d.safetensors", fixture_json(of), 16, 8);
    const auto [found, text] =
        refused(Words{"--program", fixture(std::string(program) + ".pt2"), "--data", data} + words);
    INFO(text);
    CHECK(found == code);
    for (const auto& each : says) CHECK_THAT(text, ContainsSubstring(each));
  }
}

TEST_CASE("a program is tried with two rows, or the number next to it that it takes") {
  struct Case {
    int64_t least, most, rows;
  };
  for (const auto& [least, most, rows] :
       {Case{1, 8, 2}, {1, 1, 1}, {3, 8, 3}, {4, 4, 4}, {5, 1, 1}, {INT64_MAX, 8, 8}}) {
    INFO(least << " to " << most);
    CHECK(rows_to_try({.least = least, .most = most}) == rows);
  }
}

TEST_CASE("a plan names the program: its file, torch, tensors, operations, digest and loss") {
  const TempFolder folder;
  const auto data = write_program_data(folder / "d.safetensors", fixture_json("mlp"), 16, 8);
  const auto [flags, plan] = planned({"--program", fixture("mlp.pt2"), "--data", data, "--loss", "mse"});
  const auto text = describe(plan);
  const auto digest = plan.program->digest();
  CHECK(digest.size() == 64);
  // 6 x 16 + 16, 16 x 16 + 16, 16 + 1
  for (const auto& words : Words{"mlp.pt2", "torch 2.15", digest.substr(0, 16), "Float [n, 6]", "linear 3",
                                 "401 parameters", "loss mse", "lr 0.01", "momentum 0.9", "256 rows"}) {
    CHECK_THAT(text, ContainsSubstring(words));
  }
  CHECK(plan_fields(plan).at("program") == digest);
  CHECK(plan_fields(plan).at("loss") == "mse");
  CHECK(plan.memory_estimate > 0);
}
