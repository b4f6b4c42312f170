// The plan of a run of an exported program: what it says, and what is refused before the first step.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <lockstep/tests/catch.h>
#include <torch/types.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/train/plan/first_pass.h>
#include <lockstep/app/train/plan/loss_choice.h>
#include <lockstep/app/train/plan/notices.h>
#include <lockstep/app/train/plan/program.h>
#include <lockstep/data/safetensors.h>
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

void write_tensors(const std::string& file, std::vector<NamedTensor> tensors) {
  save_safetensors(file, {.tensors = std::move(tensors), .metadata = {}}, /*overwrite=*/true);
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
      {{"--save", ".pt"}, ExitCode::kUsage, {"--save", ".pt", ".safetensors"}},
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
      {"lm", "lm", {}, ExitCode::kData, {"[n, 8]", "--loss cross_entropy"}},
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

TEST_CASE(
    "a program that was exported after eval() trains as such, and plan, notice and program show say so") {
  struct Case {
    const char* program;
    const char* says;  // the row of the plan; empty: none
    bool notice;
  };
  const TempFolder folder;
  for (const auto& [name, says, notice] :
       {Case{"plain_eval", "1 batch norm and 1 dropout compute as after eval(), also in training", true},
        Case{"frozen_norm", "1 batch norm computes as after eval(), also in training", false},
        Case{"conv_bn", "", false}, Case{"dropout", "", false}, Case{"mlp", "", false}}) {
    INFO(name);
    TrainPlan plan;
    plan.program = open_program(fixture(std::string(name) + ".pt2"));
    std::string row;
    for (const auto& [key, value] : program_rows(*plan.program)) {
      if (key == "mode") row = value;
    }
    CHECK(row == says);
    const auto notices = task_notices(plan);
    REQUIRE(notices.size() == (notice ? 1U : 0U));
    if (notice) {
      CHECK_THAT(notices[0], ContainsSubstring("plain_eval.pt2") && ContainsSubstring(says) &&
                                 ContainsSubstring("train()"));
    }
  }
}

TEST_CASE(
    "targets that are not the classes of a loss are refused before the first step, with row and value") {
  struct Case {
    const char* program;
    const char* loss;
    torch::Tensor train_y, test_y;
    ExitCode code;
    Words says;
  };
  const auto longs = [](std::vector<int64_t> values) { return torch::tensor(values); };
  const auto good = longs({0, 1, 4, 2}), tokens = longs({0, 1, 2, 3, 4, 5, 6, 22}).repeat({4, 1});
  const auto with = [](torch::Tensor y, int64_t row, int64_t value) {
    y = y.clone();
    y[row].view(-1)[-1] = value;
    return y;
  };
  const std::vector<Case> cases = {
      {"frozen_layers", "classification", good, good, ExitCode::kDone, {}},
      {"frozen_layers",
       "classification",
       with(good, 2, -1),
       good,
       ExitCode::kData,
       {"train.y has -1 in row 2"}},
      {"frozen_layers",
       "classification",
       with(good, 1, -100),
       good,
       ExitCode::kData,
       {"-100 in row 1", "leave"}},
      {"frozen_layers",
       "classification",
       good,
       with(good, 3, 5),
       ExitCode::kData,
       {"test.y has 5 in row 3", "5 logits", "0 to 4"}},
      {"frozen_layers",
       "classification",
       good.to(torch::kFloat32),
       good.to(torch::kFloat32),
       ExitCode::kData,
       {"y Float [n]", "int64", "--loss mse"}},
      {"lm", "cross_entropy", with(tokens, 2, -100), tokens, ExitCode::kDone, {}},
      {"lm", "cross_entropy", with(tokens, 3, -1), tokens, ExitCode::kData, {"train.y has -1 in row 3"}},
      {"lm",
       "cross_entropy",
       tokens,
       with(tokens, 1, 23),
       ExitCode::kData,
       {"test.y has 23 in row 1", "0 to 22"}},
  };
  for (const auto& one : cases) {
    INFO(one.program << " " << fmt::format("{}", fmt::join(one.says, ", ")));
    const auto program = open_program(fixture(std::string(one.program) + ".pt2"));
    const auto& input = program->inputs().at(0);
    std::vector<int64_t> sizes = input.sizes;
    sizes[0] = 4;
    const auto X = torch::zeros(sizes, input.dtype);
    const TempFolder folder;
    const auto file = (folder / "d.safetensors").string();
    write_tensors(file, {{"train.X", X}, {"train.y", one.train_y}, {"test.X", X}, {"test.y", one.test_y}});
    const auto [code, text] =
        refused({"--program", program->path().string(), "--data", file, "--loss", one.loss});
    INFO(text);
    CHECK(code == one.code);
    for (const auto& each : one.says) CHECK_THAT(text, ContainsSubstring(each));
  }
}

TEST_CASE("a plan warns of numbers that are not finite, with tensor and row") {
  const TempFolder folder;
  const auto file = (folder / "d.safetensors").string();
  auto X = torch::ones({4, 6});
  const auto y = torch::ones({4, 1});
  const auto notices = [&](const torch::Tensor& test) {
    write_tensors(file, {{"train.X", X}, {"train.y", y}, {"test.X", X}, {"test.y", test}});
    return task_notices(planned({"--program", fixture("mlp.pt2"), "--data", file, "--loss", "mse"}).plan);
  };
  CHECK(notices(y).empty());
  auto bad = y.clone();
  bad[3] = std::numeric_limits<float>::infinity();
  REQUIRE(notices(bad).size() == 1);
  CHECK_THAT(notices(bad)[0], ContainsSubstring("test.y has inf in row 3"));
  X[1][5] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THAT(notices(bad).at(0), ContainsSubstring("train.X has nan in row 1"));
}

TEST_CASE("an input of another dtype is refused with what to save instead") {
  const TempFolder folder;
  const auto file = (folder / "d.safetensors").string();
  const auto program = open_program(fixture("lm.pt2"));
  auto sizes = program->inputs().at(0).sizes;
  sizes[0] = 4;
  for (const auto dtype : {torch::kInt32, torch::kUInt8, torch::kFloat32}) {
    const auto X = torch::zeros(sizes, dtype);
    const auto y = torch::zeros(sizes, torch::kInt64);
    write_tensors(file, {{"train.X", X}, {"train.y", y}, {"test.X", X}, {"test.y", y}});
    const auto [code, text] =
        refused({"--program", program->path().string(), "--data", file, "--loss", "cross_entropy"});
    CHECK(code == ExitCode::kData);
    CHECK_THAT(text, ContainsSubstring("takes Long") && ContainsSubstring(torch::toString(dtype)) &&
                         ContainsSubstring(".to(torch.int64)"));
  }
}

TEST_CASE("the rows that a program takes are named alike everywhere") {
  struct Case {
    int64_t least, most;
    const char* text;
  };
  for (const auto& [least, most, text] :
       {Case{0, INT64_MAX, "any number of rows"}, Case{1, INT64_MAX, "any number of rows"},
        Case{2, INT64_MAX, "at least 2 rows"}, Case{1, 8, "1 to 8 rows"}, Case{4, 4, "exactly 4 rows"},
        Case{1, 1, "exactly 1 row"}, Case{INT64_MAX, INT64_MAX, "no number of rows"},
        Case{5, 2, "no number of rows"}}) {
    CHECK(to_string(Program::Rows{.least = least, .most = most}) == text);
  }
}
