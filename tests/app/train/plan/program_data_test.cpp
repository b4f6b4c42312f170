// Plans of exported programs: whose kernels compute them, which rows are judged, how often the file is read.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <lockstep/tests/catch.h>
#include <torch/types.h>

#include <filesystem>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <lockstep/app/train/plan/first_pass.h>
#include <lockstep/app/train/plan/loss_choice.h>
#include <lockstep/app/train/plan/notices.h>
#include <lockstep/app/train/plan/program.h>
#include <lockstep/app/train/plan/program_labels.h>
#include <lockstep/data/safetensors.h>
#include <lockstep/data/tensor_data.h>
#include <lockstep/models/program.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/program_data.h>
#include <lockstep/tests/app/train_command.h>

#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// Six rows for frozen_layers, which has five logits: the last training row is of class 9 and has NaN, the
// last test row is of class 7.
std::string write_odd_rows(const TempFolder& folder, const Program& program) {
  auto sizes = program.inputs().at(0).sizes;
  sizes[0] = 6;
  auto X = torch::zeros(sizes);
  const auto test_X = X.clone();
  X[5].view(-1)[0] = std::numeric_limits<float>::quiet_NaN();
  const auto file = (folder / "odd.safetensors").string();
  save_safetensors(file,
                   {.tensors = {{"train.X", X},
                                {"train.y", torch::tensor(std::vector<int64_t>{0, 1, 2, 3, 4, 9})},
                                {"test.X", test_X},
                                {"test.y", torch::tensor(std::vector<int64_t>{0, 1, 2, 3, 4, 7})}},
                    .metadata = {}},
                   /*overwrite=*/true);
  return file;
}

}  // namespace

TEST_CASE("a plan says whose kernels compute a program") {
  const TempFolder folder;
  const std::string own = "4 batch norms, with the convolutions before and ReLU after them\n";
  const std::vector<std::tuple<std::string, Words, std::string>> cases = {
      {"fused_norms", {}, "arithmetic fp32; in training lockstep's kernels for " + own},
      {"fused_norms",
       {"--kernels", "direct"},
       "arithmetic fp32; in training lockstep's kernels without Winograd tiles for " + own},
      {"fused_norms", {"--kernels", "torch"}, "arithmetic fp32; torch's kernels only\n"},
      {"fused_norms", {"--precision", "fp64"}, "arithmetic fp64; torch's kernels only\n"},
      {"conv_bn", {}, "arithmetic fp32; torch's kernels only\n"}};  // of 6 channels
  for (const auto& [name, words, says] : cases) {
    INFO(name << " " << fmt::format("{}", fmt::join(words, " ")));
    const auto data = write_program_data(folder / (name + ".safetensors"), fixture_json(name), 12, 6);
    const auto plan =
        planned(Words{"--program", fixture(name + ".pt2"), "--data", data, "--devices", "cpu"} + words).plan;
    CHECK_THAT(describe(plan, 1000), ContainsSubstring(says));
  }
}

TEST_CASE("the memory of a step is estimated apart from what kernels hold of the weights") {
  const TempFolder folder;
  const auto data = write_program_data(folder / "d.safetensors", fixture_json("fused_norms"), 12, 6);
  const auto step_of = [&](const std::string& kernels) {
    const auto plan = planned({"--program", fixture("fused_norms.pt2"), "--data", data, "--devices", "cpu",
                               "--kernels", kernels})
                          .plan;
    return try_program(plan, plan.factory());
  };
  // A copy of each weight of a convolution, of 16 x 16 x 9 numbers: it must not count once per row.
  CHECK(step_of("auto").fixed > 4 * 16 * 16 * 9);
  CHECK(step_of("torch").fixed == 0);
}

TEST_CASE("rows behind --limit-train and --limit-test are not judged") {
  const TempFolder folder;
  const auto program = open_program(fixture("frozen_layers.pt2"));
  const auto file = write_odd_rows(folder, *program);
  const auto plan_of = [&](const Words& words) {
    return planned(Words{"--program", program->path().string(), "--data", file} + words).plan;
  };
  CHECK_THAT(refusal_of<DataError>([&] { plan_of({}); }), ContainsSubstring("train.y has 9 in row 5"));
  CHECK_THAT(refusal_of<DataError>([&] {
               plan_of({"--limit-train", "5"});
             }),
             ContainsSubstring("test.y has 7 in row 5"));
  const auto plan = plan_of({"--limit-train", "5", "--limit-test", "5"});
  CHECK(task_notices(plan).empty());
}

TEST_CASE("an evaluation judges the rows for testing alone") {
  const TempFolder folder;
  const auto program = open_program(fixture("frozen_layers.pt2"));
  const auto data = load_tensor_data(write_odd_rows(folder, *program));
  const auto check = [&](int64_t test_rows) {
    check_labels(*program, {}, as_training_data(first_rows(data, 6, test_rows)), /*test_only=*/true);
  };
  CHECK_NOTHROW(check(5));
  CHECK_THAT(refusal_of<DataError>([&] { check(6); }),
             ContainsSubstring("test.y has 7 in row 5") && ContainsSubstring("5 logits"));
}

TEST_CASE("a program is read once, and again where its file has changed") {
  const TempFolder folder;
  const auto file = (folder / "net.pt2").string();
  std::filesystem::copy_file(fixture("mlp.pt2"), file);
  const auto first = open_program(file);
  CHECK(open_program(file) == first);
  std::filesystem::copy_file(fixture("dropout.pt2"), file, std::filesystem::copy_options::overwrite_existing);
  CHECK(open_program(file)->digest() == open_program(fixture("dropout.pt2"))->digest());
  CHECK(open_program(file)->digest() != first->digest());
}
