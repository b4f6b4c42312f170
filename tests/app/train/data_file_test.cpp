// Training and evaluating on a safetensors file of tensors, as the program does it.
#include <lockstep/tests/catch.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train_process.h>
#include <lockstep/tests/data/tensor_files.h>
#include <lockstep/tests/support/files.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

// The values of an IDX file.
std::string values_in(const std::string& file, size_t dimensions) {
  return read_file(file).substr(4 + 4 * dimensions);
}

std::string as_int64(const std::string& labels) {
  std::string wide;
  for (const char label : labels) {
    const int64_t number = static_cast<uint8_t>(label);
    wide.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  return wide;
}

// The floats that torch makes of these bytes: each divided by 255 in float32.
std::string as_floats(const std::string& pixels) {
  std::string floats;
  for (const char pixel : pixels) {
    const float number = static_cast<float>(static_cast<uint8_t>(pixel)) / 255;
    floats.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  return floats;
}

// The images of a folder of IDX files as tensors.
std::vector<TensorBytes> tensors_of(const std::string& folder) {
  std::vector<TensorBytes> tensors;
  for (const auto& [part, files] : {std::pair("train", "train"), std::pair("test", "t10k")}) {
    const auto name = folder + "/" + files;
    const auto images = values_in(name + "-images-idx3-ubyte", 3);
    const auto labels = values_in(name + "-labels-idx1-ubyte", 1);
    const auto rows = static_cast<int64_t>(labels.size());
    tensors.push_back({std::string(part) + ".X", "U8", {rows, 1, 28, 28}, images});
    tensors.push_back({std::string(part) + ".y", "I64", {rows}, as_int64(labels)});
  }
  return tensors;
}

// Images of 3 x 32 x 32 bytes in two classes: a dark and a bright one.
std::vector<TensorBytes> colours() {
  std::vector<TensorBytes> tensors;
  for (const auto& [part, rows] : {std::pair("train", 24), std::pair("test", 10)}) {
    std::string pixels, labels;
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < 3 * 32 * 32; ++i)
        pixels += static_cast<char>(row % 2 * 150 + (row * 7 + i * 13) % 90);
      labels += static_cast<char>(row % 2);
    }
    tensors.push_back({std::string(part) + ".X", "U8", {rows, 3, 32, 32}, pixels});
    tensors.push_back({std::string(part) + ".y", "U8", {rows}, labels});
  }
  return tensors;
}

Words resnet_on(const std::string& file) {
  return {"--recipe",      "resnet18-pytorch",
          "--data",        file,
          "--limit-train", "24",
          "--batch-size",  "8",
          "--log-every",   "1",
          "--epochs",      "1"};
}

}  // namespace

TEST_CASE("a network learns the same bits from images in IDX files, in bytes and in floats of a data file") {
  const SmallData images(320, 64);
  const TempFolder folder;
  auto tensors = tensors_of(images.folder());
  const auto bytes = (folder / "bytes.safetensors").string(),
             floats = (folder / "floats.safetensors").string();
  write_tensor_file(bytes, tensors);
  for (auto& each : tensors) {
    if (each.dtype == "U8") each = {each.name, "F32", each.shape, as_floats(each.bytes)};
  }
  write_tensor_file(floats, tensors);
  const Words run = {"--limit-train", "300", "--devices", "cpux2"};
  const auto hash = weights_hash(run + Words{"--data", images.folder()});
  CHECK(weights_hash(run + Words{"--data", bytes}) == hash);
  CHECK(weights_hash(run + Words{"--data", floats}) == hash);
}

TEST_CASE(
    "a residual network trains on colour images of a data file, counts rows, and eval finds its figures") {
  const TempFolder folder;
  const auto file = (folder / "colours.safetensors").string();
  const auto weights = (folder / "w.safetensors").string(), metrics = (folder / "m.jsonl").string();
  write_tensor_file(file, colours());
  const auto result = run_process(train(resnet_on(file) + Words{"--save", weights, "--metrics", metrics}));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK_THAT(result.out,
             ContainsSubstring(" rows/s\n") && !ContainsSubstring("img/s") && !ContainsSubstring("image"));
  const auto events = metrics_in(metrics);
  CHECK(events_named("plan", events).at(0).at("data") == "colours");
  CHECK(events_named("step", events).at(0).contains("images_per_second"));
  const auto loss = events_named("epoch", events).back().at("test_loss").get<double>();
  const auto figures = run_process(program({"eval", "--weights", weights, "--data", file, "--json"}));
  INFO(figures.err);
  REQUIRE(figures.exit_code == 0);
  const auto evaluated = nlohmann::json::parse(figures.out);
  CHECK(evaluated.at("test_rows") == 10);
  CHECK(evaluated.at("data") == "colours");
  CHECK(std::abs(evaluated.at("test_loss").get<double>() - loss) <= 1e-6 * std::abs(loss));
  const auto text = run_process(program({"eval", "--weights", weights, "--data", file, "--limit-test", "4"}));
  CHECK_THAT(text.out, ContainsSubstring("the first 4 of 10") && ContainsSubstring("test rows"));
}

TEST_CASE("a run goes on with the same tensors in another order in the file, and not with other ones") {
  const TempFolder folder;
  const auto file = (folder / "colours.safetensors").string(),
             other = (folder / "other.safetensors").string();
  const auto run = (folder / "run").string();
  auto tensors = colours();
  write_tensor_file(file, tensors);
  run_ending(
      0, train(resnet_on(file) + Words{"--output", run, "--checkpoint-every", "1", "--limit-steps", "1"}));
  tensors[0].bytes[5] ^= 1;
  write_tensor_file(other, tensors);
  CHECK_THAT(refusal(program({"train", "--resume", run, "--data", other}), 4),
             ContainsSubstring("train data hash"));
  tensors[0].bytes[5] ^= 1;
  std::reverse(tensors.begin(), tensors.end());
  write_tensor_file(other, tensors);
  run_ending(0, program({"train", "--resume", run, "--data", other, "--limit-steps", "2"}));
}

TEST_CASE("commands refuse a data file that they cannot use, and doctor looks at it") {
  const TempFolder folder;
  const auto file = (folder / "colours.safetensors").string();
  write_tensor_file(file, colours());
  CHECK_THAT(refusal(program({"data", "verify", "--data", file}), 2), ContainsSubstring(file));
  CHECK_THAT(run_process(program({"doctor", "--data", file})).out, ContainsSubstring("ok    data "));
  CHECK_THAT(refusal(train({"--data", file, "--image-size", "8"}), 2),
             ContainsSubstring("--image-size is the size that images of files are resized to"));
  write_tensor_file(file, {colours()[0]});
  CHECK_THAT(refusal(train({"--data", file}), 3),
             ContainsSubstring(file + " has train.X, and no tensor test.NAME"));
  CHECK_THAT(run_process(program({"doctor", "--data", file})).out, ContainsSubstring("fail  data"));
}
