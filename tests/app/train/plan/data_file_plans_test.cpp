// Plans of networks with a name on a safetensors file of tensors.
#include <lockstep/tests/catch.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/train/plan/notices.h>
#include <lockstep/tests/app/train_command.h>
#include <lockstep/tests/data/tensor_files.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

using Shape = std::vector<int64_t>;

// Tensors of zeros.
TensorBytes zeros(const std::string& name, const std::string& dtype, const Shape& shape, size_t bytes) {
  const auto count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return {name, dtype, shape, std::string(static_cast<size_t>(count) * bytes, '\0')};
}

struct Tensor {
  std::string dtype;
  size_t bytes;
  Shape row;
};

// A file of 12 training and 4 test rows.
std::filesystem::path written(const TempFolder& folder, const Tensor& X, const Tensor& y) {
  const auto path = folder / "mine.safetensors";
  std::vector<TensorBytes> tensors;
  for (const auto& [part, rows] : {std::pair("train", 12), std::pair("test", 4)}) {
    for (const auto& [name, tensor] : {std::pair(".X", X), std::pair(".y", y)}) {
      Shape shape = tensor.row;
      shape.insert(shape.begin(), rows);
      tensors.push_back(zeros(std::string(part) + name, tensor.dtype, shape, tensor.bytes));
    }
  }
  write_tensor_file(path, tensors);
  return path;
}

const Tensor kColours = {"U8", 1, {3, 32, 32}};
const Tensor kGrey = {"F32", 4, {1, 28, 28}};
const Tensor kLabels = {"I64", 8, {}};

Words flags_of(const std::filesystem::path& path, const std::string& recipe = "resnet18-pytorch") {
  return {"--recipe", recipe,         "--data", path.string(), "--devices",
          "cpux2",    "--batch-size", "8",      "--threads",   "1"};
}

}  // namespace

TEST_CASE("the plan of a data file has its rows and tensors, and counts rows") {
  const TempFolder folder;
  const auto path = written(folder, kColours, kLabels);
  const auto text = plan_text(flags_of(path));
  CHECK_THAT(text, ContainsSubstring("mine, 12 training and 4 test rows (" + path.string() +
                                     "): X Byte [n, 3, 32, 32], target y Long [n], 1 class"));
  CHECK_THAT(text, ContainsSubstring("8 rows per step, 4 per replica; 2 steps per epoch, the last with 4"));
  CHECK_THAT(text, !ContainsSubstring("image"));
  const auto limited = planned(flags_of(path) + Words{"--limit-train", "5", "--limit-test", "3"}).plan;
  CHECK(limited.data.set.train.rows == 5);
  CHECK_THAT(describe(limited), ContainsSubstring("5 training and the first 3 of 4 test rows"));
  CHECK((limited.data.set.spec.at(0) == TensorSpec{.name = "X", .row_shape = {3, 32, 32}}));
}

TEST_CASE("networks with a name refuse tensors that are no images with labels, and name both") {
  const TempFolder folder;
  struct Row {
    Tensor X, y;
    std::string words;
    std::string recipe = "resnet18-pytorch";
  };
  const auto takes = [](const std::string& found) {
    return "resnet18 takes one input [n, channels, height, width] of floats or uint8 and one target [n] of "
           "classes, mine has " +
           found;
  };
  const std::vector<Row> table = {
      {{"F32", 4, {7}}, kLabels, takes("X Float [n, 7], target y Long [n]")},
      {{"F32", 4, {1, 28, 28, 1}}, kLabels, takes("X Float [n, 1, 28, 28, 1], target y Long [n]")},
      {{"I64", 8, {1, 28, 28}}, kLabels, takes("X Long [n, 1, 28, 28], target y Long [n]")},
      {kColours, {"F32", 4, {}}, takes("X Byte [n, 3, 32, 32], target y Float [n]: its target y Float [n]")},
      {kColours, {"U8", 1, {2}}, takes("X Byte [n, 3, 32, 32], target y Byte [n, 2]: its target")},
      {{"U8", 1, {3, 32, 13}},
       kLabels,
       "the data has images of 32 x 13 pixels, lenet takes 14 x 14 at least",
       "lenet-scratch"}};
  for (const auto& [X, y, words, recipe] : table) {
    INFO(words);
    const auto flags = flags_of(written(folder, X, y), recipe);
    CHECK_THAT(refusal_of<DataError>([&] { planned(flags); }), StartsWith(words));
  }
}

TEST_CASE("the hint about tensors that are no images with labels says how they become some") {
  const TempFolder folder;
  struct Row {
    Tensor X, y;
    const char* words;
    const char* recipe = "resnet18-pytorch";
  };
  const std::vector<Row> table = {
      {{"F32", 4, {784}}, kLabels, "X.view(-1, 1, 28, 28)"},
      {{"F32", 4, {7}}, kLabels, "X.view(-1, channels, height, width)"},
      {{"F32", 4, {28, 28}}, kLabels, "X.unsqueeze(1)"},
      {{"I8", 1, {1, 28, 28}}, kLabels, "X.to(torch.uint8), and other numbers as float32"},
      {{"U8", 1, {28, 28, 1}}, kLabels, "permute(0, 3, 1, 2)", "lenet-scratch"},
      {kColours, {"F32", 4, {}}, "save them as int64 numbers from 0 on: .to(torch.int64)"},
      {kColours, {"I64", 8, {1}}, "save one number per row: .squeeze(1)"},
      {kColours, {"F32", 4, {1}}, ".squeeze(1).to(torch.int64)"},
      {kColours, {"I64", 8, {10}}, ".argmax(1)"}};
  for (const auto& [X, y, words, recipe] : table) {
    INFO(words);
    const auto flags = flags_of(written(folder, X, y), recipe);
    CHECK_THAT(refusal_and_hint<DataError>([&] { planned(flags); }), ContainsSubstring(words));
  }
}

TEST_CASE("classes without rows, channels that come last and floats as large as bytes are warnings") {
  const TempFolder folder;
  const auto notices = [&](const Tensor& X, char label, char high_byte) {
    const auto path = folder / "odd.safetensors";
    std::vector<TensorBytes> tensors;
    for (const auto& [part, rows] : {std::pair("train", 2), std::pair("test", 2)}) {
      auto shape = X.row;
      shape.insert(shape.begin(), rows);
      auto pixels = zeros(std::string(part) + ".X", X.dtype, shape, X.bytes);
      // 0x437f0000 is 255 as float32.
      if (high_byte != 0) pixels.bytes.replace(0, 4, std::string("\0\0\x7f\x43", 4));
      auto labels = zeros(std::string(part) + ".y", "I64", {rows}, 8);
      labels.bytes[0] = label;
      labels.bytes[8] = static_cast<char>(label + (part == std::string("train") ? 1 : 0));
      tensors.push_back(std::move(pixels));
      tensors.push_back(std::move(labels));
    }
    write_tensor_file(path, tensors);
    return task_notices(planned(flags_of(path)).plan);
  };
  CHECK(notices(kGrey, 0, 0).empty());
  CHECK(notices(kGrey, 1, 0) == Words{"labels begin at 1: '0' counts as one of 3 classes and has no row"});
  CHECK_THAT(notices(kGrey, 0, 1).at(0), StartsWith("X has floats up to 255, and networks learn from small"));
  CHECK_THAT(notices({"U8", 1, {32, 32, 3}}, 0, 0).at(0),
             StartsWith("X is taken as images of 32 channels and 32 x 3 pixels") &&
                 ContainsSubstring("X.permute(0, 3, 1, 2).contiguous()"));
}

TEST_CASE("labels of a million classes and more are refused before a network is built") {
  const TempFolder folder;
  const auto path = folder / "mine.safetensors";
  auto label = zeros("train.y", "I32", {1}, 4);
  label.bytes = {'\x40', '\x42', '\x0f', '\0'};  // 1,000,000
  write_tensor_file(path, {zeros("train.X", "F32", {1, 1, 28, 28}, 4), label,
                           zeros("test.X", "F32", {1, 1, 28, 28}, 4), zeros("test.y", "I32", {1}, 4)});
  CHECK(refusal_of<DataError>([&] { planned(flags_of(path)); }) ==
        "mine has labels up to 1,000,000, resnet18 takes 1,000,000 classes at most");
}

TEST_CASE("limits above the rows of a data file are errors of usage, in rows") {
  const TempFolder folder;
  const auto path = written(folder, kGrey, kLabels);
  CHECK(refusal_of([&] {
          planned(flags_of(path) + Words{"--limit-train", "13"});
        }) == "--limit-train 13 is more than the 12 training rows of " + path.string());
  CHECK(refusal_of([&] {
          planned(flags_of(path) + Words{"--limit-test", "5"});
        }) == "--limit-test 5 is more than the 4 test rows of " + path.string());
}

TEST_CASE("a data file that cannot be read is an error of the data") {
  CHECK_THAT(refusal_of<DataError>([&] { planned(flags_of("/nonexistent/set.safetensors")); }),
             StartsWith("/nonexistent/set.safetensors cannot be read"));
  const TempFolder folder;
  const auto other = folder / "set.npz";
  write_tensor_file(other, {});
  CHECK_THAT(refusal_and_hint<DataError>([&] { planned(flags_of(other)); }),
             ContainsSubstring("save the rows as safetensors, in Python: save_file("));
}
