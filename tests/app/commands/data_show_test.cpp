// lockstep data show: counts, mean and deviation held against the bytes of the files.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train_process.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

TEST_CASE("data show counts the rows of each class, and has mean and deviation of the pixels") {
  const SmallData data(40, 30);
  const auto result = run_process(program({"data", "show", data.folder(), "--json"}));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const auto shown = json::parse(result.out);
  CHECK(shown.at("train_rows") == 40);
  CHECK(shown.at("test_rows") == 30);
  const auto labels = read_file(data.folder() + "/train-labels-idx1-ubyte").substr(8);
  for (int label = 0; label < 10; ++label) {
    const auto rows = std::count(labels.begin(), labels.end(), static_cast<char>(label));
    CHECK(shown.at("classes").at(static_cast<size_t>(label)).at("train_rows") == rows);
  }
  const auto pixels = read_file(data.folder() + "/train-images-idx3-ubyte").substr(16);
  double sum = 0, squares = 0;
  for (const char byte : pixels) {
    const double pixel = static_cast<unsigned char>(byte) / 255.;
    sum += pixel;
    squares += pixel * pixel;
  }
  const auto n = static_cast<double>(pixels.size());
  CHECK(shown.at("mean").at(0).get<double>() == Approx(sum / n));
  CHECK(shown.at("deviation").at(0).get<double>() == Approx(std::sqrt(squares / n - sum / n * sum / n)));
}

TEST_CASE("data show writes a sheet of the first images, and replaces no file unasked") {
  const SmallData data(40, 30);
  const TempFolder folder;
  const auto sheet = (folder.path() / "sheet.png").string();
  const Words command{"data", "show", data.folder(), "--sheet", sheet};
  const auto result = run_process(program(command));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("40 training and 30 test"));
  const auto png = read_file(sheet);
  CHECK(png.rfind("\x89PNG\r\n", 0) == 0);
  // The header has the size: ten images of 28 pixels with gaps of two, across and down.
  CHECK(static_cast<unsigned char>(png.at(18)) * 256 + static_cast<unsigned char>(png.at(19)) == 302);
  CHECK(static_cast<unsigned char>(png.at(22)) * 256 + static_cast<unsigned char>(png.at(23)) == 302);
  CHECK_THAT(refusal(program(command), 7), ContainsSubstring("sheet.png"));
}

TEST_CASE("data show warns of images that are in training and in test, and has them in JSON") {
  const SmallData data(40, 30);
  for (const std::string kind : {"images-idx3-ubyte", "labels-idx1-ubyte"}) {
    write_file(data.folder() + "/t10k-" + kind, read_file(data.folder() + "/train-" + kind));
  }
  const auto result = run_ending(0, program({"data", "show", data.folder(), "--json"}));
  CHECK_THAT(result.err, ContainsSubstring("40 images for testing are among those for training"));
  const auto shown = json::parse(result.out);
  CHECK(shown.at("data_kind") == "IDX");
  CHECK(shown.at("notices").size() == 1);
  CHECK(shown.at("unreadable").empty());
}
