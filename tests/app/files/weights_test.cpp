// Weights in a file: `train --save` and `eval --weights`.
#include <lockstep/tests/catch.h>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <regex>

#include <lockstep/tests/app/files/saved_weights.h>
#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::TempFolder;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kTestRows = 700;  // two blocks of evaluation and a partial one

// A short run after which the network classifies some images correctly and others not.
Words learning_run(const SmallData& data, const std::string& save) {
  return {"--data", data.folder(), "--optimizer", "adamw",       "--lr", ".005",   "--batch-size",
          "16",     "--epochs",    "3",           "--log-every", "1000", "--save", save};
}

ProcessResult eval(const SmallData& data, const Words& words) {
  return run_process(program(Words{"eval", "--data", data.folder()} + words));
}

// "test loss 1.2345 | top1 12.34% (86 of 700) | top5 56.78% (397) |" of an eval that must succeed.
std::string result_of(const SmallData& data, const Words& words) {
  const auto result = eval(data, words);
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  std::smatch match;
  REQUIRE(std::regex_search(
      result.out, match,
      std::regex(
          R"(\ntest loss \d+\.\d{4} \| top1 \d+\.\d\d% \(\d+ of \d+\) \| top5 \d+\.\d\d% \(\d+\) \|)")));
  return match[0];
}

std::string refused_eval(const SmallData& data, const Words& words) {
  return refusal(program(Words{"eval", "--data", data.folder()} + words), 4);
}

std::string four_digits(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(4) << value;
  return text.str();
}

std::string text_in(const fs::path& path) { return read_file(path.string()); }

}  // namespace

TEST_CASE("eval has the figures of the run's last evaluation, on any number of devices") {
  const SmallData data(640, kTestRows);
  const TempFolder folder;
  const auto file = (folder / "w.safetensors").string();
  const auto events = metrics_of(learning_run(data, file) + Words{"--devices", "cpux2"});
  const auto last = events_named("epoch", events).back();
  const auto right = std::lround(last.at("test_accuracy").get<double>() * kTestRows);
  const auto among_five = std::lround(last.at("test_top5").get<double>() * kTestRows);
  REQUIRE(right > kTestRows / 4);  // it has learnt something, but not everything
  REQUIRE(right < kTestRows - 20);

  const auto once = result_of(data, {"--weights", file, "--devices", "cpu"});
  CHECK_THAT(once, ContainsSubstring("(" + std::to_string(right) + " of 700)") &&
                       ContainsSubstring("(" + std::to_string(among_five) + ") |"));
  for (const auto* devices : {"cpux2", "cpux3", "cpux5"}) {
    INFO(devices);
    CHECK(result_of(data, {"--weights", file, "--devices", devices}) == once);
  }
  // Other weights give other counts.
  auto other = read_weights(file);
  auto& bytes = other.tensors.at("W4").bytes;
  for (size_t i = 3; i < bytes.size(); i += 4) bytes[i] = static_cast<char>(bytes[i] ^ '\x80');  // the signs
  write_weights((folder / "other.safetensors").string(), other);
  CHECK(result_of(data, {"--weights", (folder / "other.safetensors").string()}) != once);
}

TEST_CASE("eval --limit-test evaluates the first images, and says so") {
  const SmallData all(64, kTestRows), only(64, 100);  // the same images, but fewer test images
  const TempFolder folder;
  const auto file = (folder / "w.safetensors").string();
  run_ending(0, train({"--data", all.folder(), "--limit-train", "64", "--epochs", "1", "--save", file}));
  const auto limited = result_of(all, {"--weights", file, "--limit-test", "100"});
  CHECK(limited == result_of(only, {"--weights", file}));
  CHECK(limited != result_of(all, {"--weights", file}));
  CHECK_THAT(eval(all, {"--weights", file, "--limit-test", "100"}).out,
             ContainsSubstring("the first 100 of 700 test images"));
  CHECK_THAT(eval(all, {"--weights", file}).out, !ContainsSubstring("first"));
}

TEST_CASE("the saved file names its model, and has all weights") {
  const SmallData data;
  const TempFolder folder;
  const auto file = (folder / "w.safetensors").string();
  const auto result =
      run_process(train({"--data", data.folder(), "--epochs", "1", "--save", file, "--print-weights-hash"}));
  REQUIRE(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("weights saved to " + file + "\n"));
  const auto saved = read_weights(file);
  CHECK(saved.metadata.at("model") == "lenet");
  CHECK(saved.metadata.count("lockstep") == 1);
  size_t count = 0;
  for (const auto& [name, tensor] : saved.tensors) count += tensor.bytes.size() / sizeof(float);
  CHECK(count == 129'068);
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
  CHECK_THAT(eval(data, {"--weights", file}).out,
             ContainsSubstring(file + ": lenet on " + fs::path(data.folder()).filename().string() + " (" +
                               data.folder()));
}

TEST_CASE("batch-norm statistics of a residual network are saved, and eval uses them") {
  const SmallData data(16, 20);
  const TempFolder folder;
  const auto file = (folder / "w.safetensors").string();
  const auto events =
      metrics_of({"--data", data.folder(), "--recipe", "resnet18-warmup", "--epochs", "1", "--limit-train",
                  "8", "--batch-size", "4", "--devices", "cpux2", "--bn", "average", "--save", file});
  const auto saved = read_weights(file);
  CHECK(saved.metadata.at("model") == "resnet18");
  for (const auto& [name, tensor] : saved.tensors) {
    const bool counter = name.ends_with("num_batches_tracked");
    CHECK(tensor.dtype == (counter ? "I64" : "F32"));
    if (counter) CHECK(values_of(tensor) == std::vector<double>{2});
  }
  const auto loss = events_named("epoch", events).back().at("test_loss").get<double>();
  const auto once = result_of(data, {"--weights", file, "--devices", "cpux2"});
  CHECK_THAT(once, ContainsSubstring("test loss " + four_digits(loss)));

  auto fresh = saved;  // as if no statistics had been collected
  for (auto& [name, tensor] : fresh.tensors) {
    if (name.ends_with("running_mean")) tensor.bytes.assign(tensor.bytes.size(), '\0');
  }
  write_weights((folder / "fresh.safetensors").string(), fresh);
  CHECK(result_of(data, {"--weights", (folder / "fresh.safetensors").string()}) != once);
}

TEST_CASE("eval --precision fp64 loses no digit of weights in double") {
  const SmallData data(640, kTestRows);
  const TempFolder folder;
  const auto file = (folder / "w.safetensors").string();
  const auto events = metrics_of(learning_run(data, file) + Words{"--precision", "fp64"});
  const auto loss = events_named("epoch", events).back().at("test_loss").get<double>();
  const auto once = result_of(data, {"--weights", file, "--precision", "fp64"});
  CHECK_THAT(once, ContainsSubstring("test loss " + four_digits(loss)));
  // Adding one number to all logits changes no probability. In fp32 the sum would lose the biases.
  auto shifted = read_weights(file);
  auto biases = values_of(shifted.tensors.at("b4"));
  for (auto& bias : biases) bias += 1e8;
  std::memcpy(shifted.tensors.at("b4").bytes.data(), biases.data(), biases.size() * sizeof(double));
  write_weights((folder / "shifted").string(), shifted);
  CHECK(result_of(data, {"--weights", (folder / "shifted").string(), "--precision", "fp64"}) == once);
  CHECK(result_of(data, {"--weights", (folder / "shifted").string()}) != once);
  CHECK_THAT(refusal(program({"eval", "--weights", file, "--precision", "tf32"}), 2),
             ContainsSubstring("tf32 needs a GPU"));
}

TEST_CASE("weights that do not fit, are NaN or are damaged are refused with one error that says why") {
  const SmallData data(64, 20);  // has all ten classes: nothing to notice
  const TempFolder folder;
  const auto file = (folder / "w.safetensors").string();
  metrics_of({"--data", data.folder(), "--limit-train", "16", "--epochs", "1", "--save", file});
  const auto good = read_weights(file);
  const auto changed = [&](const auto& change) {
    auto weights = good;
    change(weights);
    const auto path = (folder / "changed.safetensors").string();
    write_weights(path, weights);
    return path;
  };
  CHECK(eval(data, {"--weights", changed([](auto&) {})}).exit_code == 0);

  CHECK_THAT(refused_eval(data, {"--weights", file, "--model", "resnet18"}),
             ContainsSubstring("holds weights of lenet, --model is resnet18"));
  const std::pair<std::function<void(SavedWeights&)>, std::vector<std::string>> cases[] = {
      {[](auto& weights) { weights.metadata["model"] = "vgg"; },
       {"'vgg', which is no model of lockstep", "lenet, resnet18"}},
      {[](auto& weights) { weights.metadata.clear(); }, {"does not name the model", "--model"}},
      {[](auto& weights) { weights.tensors.erase("W3"); },
       {"does not fit lenet", "1 of the model's 8", "W3"}},
      {[](auto& weights) { weights.tensors["W9"] = weights.tensors.at("b1"); },
       {"does not fit lenet", "no parameter named W9"}},
      {[](auto& weights) {
         weights.tensors.at("W4").shape = {10, 128};
       },
       {"W4 has shape [10, 128], the model's has [128, 10]"}}};
  for (const auto& [change, says] : cases) {
    const auto told = refused_eval(data, {"--weights", changed(change)});
    for (const auto& part : says) CHECK_THAT(told, ContainsSubstring(part));
  }
  // --model replaces a missing name.
  CHECK(
      eval(data, {"--weights", changed([](auto& weights) { weights.metadata.clear(); }), "--model", "lenet"})
          .exit_code == 0);

  const auto nan = changed([](auto& weights) {
    weights.tensors.at("W1").bytes.replace(0, 4, std::string("\0\0\xc0\x7f", 4));  // little-endian
  });
  CHECK_THAT(refusal(program({"eval", "--data", data.folder(), "--weights", nan}), 6),
             ContainsSubstring("the test loss of the weights in") && ContainsSubstring("not finite"));

  CHECK_THAT(refused_eval(data, {"--weights", (folder / "none").string()}),
             ContainsSubstring("there is no such file\nhint: name a file that 'lockstep train --save FILE'"));
  CHECK_THAT(refused_eval(data, {"--weights", folder.path().string()}),
             ContainsSubstring(folder.path().string()));
  const auto whole = text_in(file);
  auto garbled = whole;
  garbled[8] = '?';  // the header's first character
  for (const auto& [bytes, says] : {std::pair<std::string, const char*>{"", "truncated"},
                                    {whole.substr(0, whole.size() - 1), "damaged"},
                                    {whole + "x", "bytes of data, its tensors take"},
                                    {garbled, "not a safetensors file"}}) {
    write_file(folder / "damaged", bytes);
    CHECK_THAT(refused_eval(data, {"--weights", (folder / "damaged").string()}), ContainsSubstring(says));
  }
}

TEST_CASE("an existing file is replaced only with --overwrite, and only by a run that succeeds") {
  const SmallData data(16, 20);
  const TempFolder folder;
  const auto file = (folder / "w.safetensors").string();
  const Words words = {"--data", data.folder(), "--limit-train", "16", "--epochs", "1", "--save", file};
  std::ofstream(file) << "precious";
  CHECK_THAT(refusal(train(words), 7), ContainsSubstring(file) && ContainsSubstring("--overwrite"));
  CHECK_THAT(refusal(train(words + Words{"--dry-run"}), 7), ContainsSubstring("--overwrite"));
  CHECK(run_process(train(words + Words{"--overwrite", "--dry-run"})).exit_code == 0);
  CHECK(run_process(train(words + Words{"--overwrite", "--lr", "1e30"})).exit_code == 6);
  CHECK(text_in(file) == "precious");
  CHECK(run_process(train(words + Words{"--overwrite"})).exit_code == 0);
  CHECK(read_weights(file).metadata.at("model") == "lenet");
}

TEST_CASE("a dry run and a failed run leave no file") {
  const SmallData data(16, 20);
  const TempFolder folder;
  const auto run = [&](const std::string& from, const Words& words) {
    return run_process(train(Words{"--data", from, "--limit-train", "16", "--epochs", "1", "--quiet",
                                   "--save", (folder / "w").string(), "--trace", (folder / "t").string()} +
                             words))
        .exit_code;
  };
  CHECK(run(data.folder(), {"--metrics", (folder / "m").string(), "--dry-run"}) == 0);
  CHECK(run("/nonexistent", {"--metrics", (folder / "m").string()}) == 3);
  CHECK(run(data.folder(), {"--lr", "1e30"}) == 6);  // the only step diverges: no training loss shows it
  CHECK(fs::is_empty(folder.path()));
  CHECK_THAT(refusal(train({"--save", (folder / "none/w").string()}), 7),
             ContainsSubstring("does not exist\nhint: create it first: mkdir -p "));
}

TEST_CASE("eval counts which classes are taken for which, on any devices alike") {
  const SmallData data(640, kTestRows);
  const TempFolder folder;
  const auto file = (folder.path() / "w.safetensors").string();
  REQUIRE(run_process(train(learning_run(data, file))).exit_code == 0);
  const auto result_on = [&](const std::string& devices) {
    const auto result =
        eval(data, {"--weights", file, "--confusion", "--json", "--devices", devices, "--threads", "1"});
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    return json::parse(result.out);
  };
  const auto one = result_on("cpu"), two = result_on("cpux2");
  const auto& counts = one.at("confusion").at("counts");
  CHECK(counts == two.at("confusion").at("counts"));
  int64_t all = 0, right = 0;
  for (size_t label = 0; label < counts.size(); ++label) {
    for (size_t answer = 0; answer < counts.size(); ++answer) {
      all += counts[label][answer].get<int64_t>();
      if (label == answer) right += counts[label][answer].get<int64_t>();
    }
  }
  CHECK(all == kTestRows);
  // The diagonal is the accuracy, which the evaluation counts in another way.
  CHECK(right == std::llround(one.at("test_accuracy").get<double>() * kTestRows));
}

TEST_CASE("predict gives each row the class that eval counts, from a file of weights and from a run alike") {
  const SmallData data(640, kTestRows);
  const TempFolder folder;
  const auto at = [&](const char* name) { return (folder.path() / name).string(); };
  REQUIRE(
      run_process(train(learning_run(data, at("w.safetensors")) + Words{"--output", at("run")})).exit_code ==
      0);
  // The test images as IDX has them: 16 bytes, then the pixels.
  const auto pixels = read_file(data.folder() + "/t10k-images-idx3-ubyte").substr(16);
  const auto labels = read_file(data.folder() + "/t10k-labels-idx1-ubyte").substr(8);
  write_weights(at("rows.safetensors"),
                {.metadata = {}, .tensors = {{"rows", {"U8", {kTestRows, 1, 28, 28}, pixels}}}});
  const auto predicted = [&](const std::string& weights, const std::string& devices) {
    const auto result = run_process(program(
        Words{"predict", weights, at("rows.safetensors"), "--json", "--devices", devices, "--threads", "1"}));
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    return json::parse(result.out).at("predictions");
  };
  const auto predictions = predicted(at("w.safetensors"), "cpu");
  REQUIRE(predictions.size() == kTestRows);
  int64_t right = 0;
  for (size_t row = 0; row < predictions.size(); ++row) {
    const auto& one = predictions[row];
    CHECK(one.at("row") == row);
    REQUIRE(one.at("best").size() == 5);
    CHECK(one.at("class") == one.at("best")[0].at("class"));
    CHECK(one.at("probability") >= one.at("best")[1].at("probability"));
    if (one.at("class") == static_cast<int>(labels[row])) ++right;
  }
  const auto tested = eval(data, {"--weights", at("w.safetensors"), "--json", "--threads", "1"});
  CHECK(right == std::llround(json::parse(tested.out).at("test_accuracy").get<double>() * kTestRows));
  CHECK(predicted(at("run"), "cpu") == predictions);
  CHECK(predicted(at("w.safetensors"), "cpux2") == predictions);
}

TEST_CASE("predict refuses weights that do not say what they take") {
  const SmallData data;
  const TempFolder folder;
  const auto file = (folder.path() / "w.safetensors").string();
  REQUIRE(run_process(train({"--data", data.folder(), "--epochs", "1", "--save", file})).exit_code == 0);
  auto weights = read_weights(file);
  weights.metadata.erase("network");
  write_weights(file, weights);
  CHECK_THAT(refusal(program({"predict", file, "rows.safetensors"}), 4),
             ContainsSubstring("does not say what"));
}
