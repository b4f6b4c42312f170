#include <limits>

#include <lockstep/data/resident_rows.h>
#include <lockstep/models/program/parts.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/catch.h>
#include <lockstep/tests/models/program/fixture.h>
#include <lockstep/tests/support/refusal.h>

namespace lockstep {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::Fixture;
using testing::refusal_and_hint;

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

TEST_CASE("The rows that a program takes are those for which it computes what Python does") {
  struct Case {
    const char* name;
    bool training, whole_batch;
    int64_t least, most;
    bool empty;
  };
  const std::vector<Case> cases{
      {"mlp", true, false, 1, kAny, true},           {"mlp", false, false, 1, kAny, true},
      {"narrowed", true, false, 1, 8, true},         {"one_row", true, false, 2, kAny, true},
      {"one_row", false, false, 2, kAny, true},      {"norm_of_rows", true, false, 2, kAny, true},
      {"norm_of_rows", true, true, 1, kAny, true},   {"norm_of_rows", false, false, 1, kAny, true},
      {"encoder", true, false, 1, kAny, false},      {"lstm", true, false, 1, kAny, true},
      {"channels_last", true, false, 1, kAny, true},
  };
  for (const auto& one : cases) {
    INFO(one.name << (one.training ? " in training" : " in evaluation"));
    const auto rows = Fixture(one.name).program->rows(one.training, one.whole_batch);
    CHECK(rows.least == one.least);
    CHECK(rows.most == one.most);
    CHECK(rows.empty == one.empty);
    CHECK(rows.why.empty() == (one.least == 1 && one.most == kAny && one.empty));
  }
}

TEST_CASE("Ranges and reports of rows together say what may run") {
  using program::RowOutcome;
  using Report = program::RowReport;
  struct Case {
    program::Range range;
    std::vector<Report> reports;
    int64_t least, most;
    bool empty;
  };
  const std::string norm = "Expected more than 1 value per channel when training";
  const std::vector<Case> cases{
      {{2, kAny}, {}, 2, kAny, false},
      {{2, kAny}, {{"model", 1, RowOutcome::kEqual, ""}}, 1, kAny, false},
      {{2, kAny}, {{"eval", 1, RowOutcome::kEqual, ""}}, 2, kAny, false},
      {{2, 8}, {{"model", 0, RowOutcome::kEqual, ""}, {"model", 1, RowOutcome::kClose, ""}}, 1, 8, true},
      {{0, kAny}, {{"model", 1, RowOutcome::kRefused, norm}}, 2, kAny, true},
      {{0, kAny},
       {{"model", 3, RowOutcome::kDifferent, ""}, {"model", 6, RowOutcome::kEqual, ""}},
       4,
       kAny,
       true},
      {{0, kAny}, {{"model", 6, RowOutcome::kDifferent, ""}}, kAny, kAny, true},
      {{5, kAny},
       {{"model", 3, RowOutcome::kRefused, ""}, {"model", 6, RowOutcome::kEqual, ""}},
       5,
       kAny,
       false},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    INFO("case " << i);
    const auto& one = cases[i];
    const auto rows = program::rows_of(one.range, -1, one.reports, "model", false);
    CHECK(rows.least == one.least);
    CHECK(rows.most == one.most);
    CHECK(rows.empty == one.empty);
  }
  const auto fixed = program::rows_of({}, 4, {}, "model", false);
  CHECK(fixed.least == 4);
  CHECK(fixed.most == 4);
  CHECK_FALSE(fixed.empty);
}

TEST_CASE("A program refuses inputs that it was not exported for") {
  struct Case {
    const char* name;
    std::vector<torch::Tensor> inputs;
    std::vector<std::string> words;
  };
  const auto floats = [](std::vector<int64_t> sizes) { return torch::zeros(sizes); };
  const auto whole = [](std::vector<int64_t> sizes) { return torch::zeros(sizes, torch::kInt64); };
  const std::vector<Case> cases{
      {"mlp", {floats({4, 7})}, {"(any, 6)", "(4, 7)", "'input'"}},
      {"mlp", {floats({4, 6, 1})}, {"(any, 6)", "(4, 6, 1)"}},
      {"mlp", {whole({4, 6})}, {"Float", "Long"}},
      {"lm", {floats({4, 8})}, {"Long", "Float", "'ids'"}},
      {"two_inputs", {floats({4, 6}), whole({3})}, {"'word'", "4 and 3"}},
      {"narrowed", {floats({9, 4})}, {"1 to 8 rows", "9"}},
      {"one_row", {floats({1, 4})}, {"at least 2 rows", "1", "with 1 row it differs from Python"}},
      {"norm_of_rows", {floats({1, 4})}, {"at least 2 rows"}},
      {"encoder", {whole({0, 7})}, {"any number of rows but 0", "gets 0"}},
      {"lm",
       {torch::full({2, 8}, 99, torch::kInt64)},
       {"aten::embedding", "index out of range", "line of Python: "}},
  };
  for (const auto& one : cases) {
    INFO(one.name << ": " << one.words.back());
    ProgramModule module(Fixture(one.name).program);
    const auto refusal = refusal_and_hint<DataError>([&] { module.run(one.inputs); });
    for (const auto& word : one.words) CHECK_THAT(refusal, ContainsSubstring(word));
  }
  ProgramModule module(Fixture("two_inputs").program);
  CHECK_THAT(refusal_and_hint<UsageError>([&] {
               module.forward(floats({4, 6}));
             }),
             ContainsSubstring("takes 2 inputs, and gets 1"));
}

TEST_CASE("Batches and programs that do not fit are refused, with the names of both") {
  const auto x = torch::zeros({4, 6}), y = torch::zeros({4}, torch::kInt64);
  struct Case {
    const char* name;
    bool own_loss;
    Batch batch;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases{
      {"two_inputs", false, {{"numbers", x}, {"y", y, Role::kTarget}}, {"numbers, word", "'word'"}},
      {"two_inputs", false, {{"numbers", x}, {"word", y}, {"more", x}, {"y", y, Role::kTarget}}, {"'more'"}},
      {"mlp", false, {{"a", x}, {"b", x}, {"y", y, Role::kTarget}}, {"'input'", "a, b, y"}},
      {"mlp", false, {{"X", torch::zeros({4, 5})}, {"y", y, Role::kTarget}}, {"(any, 6)", "[n, 5]"}},
      {"lm", false, {{"X", torch::zeros({4, 8})}, {"y", y, Role::kTarget}}, {"Long", "Float"}},
      {"mlp", false, {{"X", x}}, {"wants a target", "the input X"}},
      {"own_loss", true, {{"x", x}, {"label", y, Role::kTarget}}, {"x, y", "'y'"}},
      {"own_loss", true, {{"x", x}, {"y", y, Role::kTarget}, {"z", y, Role::kTarget}}, {"'z'"}},
  };
  for (const auto& one : cases) {
    INFO(one.name << ": " << one.words.back());
    const auto program = Fixture(one.name).program;
    const auto refusal =
        refusal_and_hint<DataError>([&] { check_batch(*program, one.batch.spec(), one.own_loss); });
    for (const auto& word : one.words) CHECK_THAT(refusal, ContainsSubstring(word));
  }
  const auto program = Fixture("mlp").program;
  check_batch(*program, Batch({{"anything", x}, {"y", y, Role::kTarget}}).spec());
  check_batch(*Fixture("own_loss").program, Batch({{"x", x}, {"y", y, Role::kTarget}}).spec(),
              /*own_loss=*/true);
}

TEST_CASE("An output that the program does not have is refused, with those that it has") {
  const auto program = Fixture("dict_output").program;
  CHECK_THAT(refusal_and_hint([&] { program_factory(program, classification(), "logit"); }),
             ContainsSubstring("'logit'") && ContainsSubstring("hidden, logits, more.0"));
  CHECK_THAT(refusal_and_hint([&] { program_factory_own_loss(program, "loss"); }),
             ContainsSubstring("'loss'"));
}

TEST_CASE("A program without a graph for evaluation is evaluated only where nothing depends on the mode") {
  const auto same = read_program(testing::fixture_path("plain_save"));
  CHECK(same->has_eval_graph());
  ProgramModule plain(same);
  plain.eval();
  CHECK(plain.forward(torch::ones({4, 4})).size(0) == 4);
  const auto program = read_program(testing::fixture_path("plain_dropout"));
  CHECK_FALSE(program->has_eval_graph());
  ProgramModule dropout(program);
  dropout.forward(torch::ones({4, 4}));
  dropout.eval();
  CHECK_THAT(refusal_and_hint([&] {
               dropout.forward(torch::ones({4, 4}));
             }),
             ContainsSubstring("depends on the mode") && ContainsSubstring("export_program.py"));
}

TEST_CASE("An error of an operation has the replica, the step and the line of Python") {
  const Fixture fixture("lm");
  const auto ids = torch::full({4, 8}, 99, torch::kInt64);
  const auto rows = resident_rows(Batch({{"ids", ids}, {"y", ids, Role::kTarget}}));
  TrainerOptions options;
  options.devices = {torch::kCPU};
  const auto refusal = refusal_and_hint<DataError>([&] {
    Trainer trainer(fixture.factory(), rows, rows, options);
    trainer.step(std::vector<int64_t>{0, 1});
    trainer.take_sums();
  });
  for (const char* word : {"rank 0", "step 1", "aten::embedding", "make_fixtures.py, line "}) {
    CHECK_THAT(refusal, ContainsSubstring(word));
  }
}

}  // namespace
}  // namespace lockstep
