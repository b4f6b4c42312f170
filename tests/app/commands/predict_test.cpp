// Images of files, from training to prediction: the program's commands held against each other.
#include <lockstep/tests/catch.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <lockstep/tests/app/train_process.h>
#include <lockstep/tests/data/images/png_file.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

const std::vector<std::string> kNames = {"ant", "bee", "cat"};

// Three classes of noise, which differ in brightness and overlap. Colour images of 30 x 34 pixels.
class Photos {
 public:
  Photos() {
    for (const std::string half : {"train", "test"}) {
      for (int i = 0; i < (half == "train" ? 60 : 25); ++i) write(half, i);
    }
  }

  std::string path() const { return folder_.path().string(); }
  std::string test() const { return path() + "/test"; }

 private:
  void write(const std::string& half, int i) {
    const auto label = static_cast<uint32_t>(i) % 3;
    const auto level = 60 * label + draw(90);
    std::string pixels;
    for (int p = 0; p < 30 * 34 * 3; ++p) pixels += static_cast<char>(level + draw(40));
    const auto folder = folder_.path() / half / kNames[label];
    std::filesystem::create_directories(folder);
    write_file(folder / (std::to_string(i) + ".png"), png_file(3, 30, 34, pixels));
  }

  uint32_t draw(uint32_t below) {  // D. Knuth's MMIX generator
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33) % below;
  }

  uint64_t state_ = 1;
  TempFolder folder_;
};

json output_of(const Words& words, int exit_code = 0) {
  const auto result = run_ending(exit_code, program(words + Words{"--json", "--threads", "1"}));
  return json::parse(result.out);
}

// The run has learnt from normalised pixels of resized images.
void train_on(const Photos& photos, const Words& words) {
  const auto result = run_process(
      train(Words{"--data", photos.path(), "--limit-train", "60", "--image-size", "28", "--normalize", "auto",
                  "--model", "lenet", "--batch-size", "10", "--epochs", "3", "--lr", ".05"} +
            words));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
}

// How often each class of the files' folders got each answer.
std::map<std::pair<std::string, std::string>, int> counts_of(const json& predictions) {
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const auto& one : predictions) {
    const std::filesystem::path file = one.at("file").get<std::string>();
    ++counts[{file.parent_path().filename().string(), one.at("name")}];
  }
  return counts;
}

// The mean of -log(probability of the right class).
double loss_of(const json& predictions) {
  double loss = 0;
  for (const auto& one : predictions) {
    const std::filesystem::path file = one.at("file").get<std::string>();
    for (const auto& best : one.at("best")) {
      if (best.at("name") == file.parent_path().filename().string()) {
        loss -= std::log(best.at("probability").get<double>());
      }
    }
  }
  return loss / static_cast<double>(predictions.size());
}

}  // namespace

TEST_CASE("predict and eval take images as the run did: the same answers, from a run and from a file") {
  const Photos photos;
  const TempFolder folder;
  const auto run = (folder / "run").string(), file = (folder / "w.safetensors").string();
  train_on(photos, {"--output", run, "--save", file});
  const auto predictions = output_of({"predict", file, photos.test()}).at("predictions");
  REQUIRE(predictions.size() == 25);
  CHECK(output_of({"predict", run, photos.test()}).at("predictions") == predictions);
  CHECK(output_of({"predict", file, photos.test(), "--devices", "cpux2"}).at("predictions") == predictions);

  const auto tested = output_of({"eval", run, "--confusion"});
  CHECK(tested.at("test_rows") == 25);
  CHECK(tested.at("test_loss").get<double>() == Approx(loss_of(predictions)).epsilon(1e-4));
  CHECK(output_of({"eval", "--weights", file, "--data", photos.path()}).at("test_loss") ==
        tested.at("test_loss"));
  CHECK_THAT(run_ending(2, program({"eval", run, "--image-size", "20"})).err,
             ContainsSubstring("fit rows [3, 28, 28] alone") && ContainsSubstring("leave --image-size out"));
  write_file(photos.path() + "/train/ant/9.png", "no image");  // no test needs it
  CHECK(output_of({"eval", run}).at("test_loss") == tested.at("test_loss"));
  const auto& confusion = tested.at("confusion");
  CHECK(confusion.at("classes") == kNames);
  const auto counts = counts_of(predictions);
  for (size_t label = 0; label < kNames.size(); ++label) {
    for (size_t answer = 0; answer < kNames.size(); ++answer) {
      const auto found = counts.find({kNames[label], kNames[answer]});
      CHECK(confusion.at("counts")[label][answer] == (found == counts.end() ? 0 : found->second));
    }
  }
}

TEST_CASE("predict names each image that cannot be read, and predicts the others") {
  const Photos photos;
  const TempFolder folder;
  const auto file = (folder / "w.safetensors").string();
  train_on(photos, {"--save", file});
  write_file(photos.test() + "/ant/bad.png", "no image");
  write_file(photos.test() + "/bee/x.gif", "GIF89a");
  const Words command{"predict", file, photos.test()};
  const auto result = run_ending(3, program(command + Words{"--json"}));
  CHECK_THAT(result.err, ContainsSubstring("ant/bad.png ") && ContainsSubstring("bee/x.gif ") &&
                             ContainsSubstring("--skip-unreadable"));
  const auto output = json::parse(result.out);
  CHECK(output.at("predictions").size() == 25);
  CHECK(output.at("unreadable").size() == 2);
  const auto skipped = run_ending(0, program(command + Words{"--skip-unreadable"}));
  CHECK(lines(skipped.out).size() == 25);
  CHECK_THAT(skipped.err, ContainsSubstring("2 unreadable images left out"));
  CHECK_THAT(refusal(program({"predict", file, photos.test() + "/none.png"}), 3),
             ContainsSubstring("none.png cannot be read: No such file"));
}

TEST_CASE("eval refuses images of other classes by name") {
  const Photos photos, others;
  const TempFolder folder;
  const auto file = (folder / "w.safetensors").string();
  train_on(photos, {"--save", file});
  for (const auto* half : {"/train", "/test"}) {
    std::filesystem::rename(others.path() + half + "/bee", others.path() + half + "/bat");
  }
  CHECK_THAT(refusal(program({"eval", "--weights", file, "--data", others.path()}), 3),
             ContainsSubstring("class 1 is 'bee'") && ContainsSubstring("'bat'"));
}
