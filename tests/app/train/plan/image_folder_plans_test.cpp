// Plans on folders of image files, and on other images whose pixels are changed.
#include <fmt/format.h>
#include <lockstep/tests/catch.h>
#include <torch/types.h>

#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/cli/as_error.h>
#include <lockstep/app/train/config/config_text.h>
#include <lockstep/app/train/plan/plan_bytes.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/small_data.h>
#include <lockstep/tests/app/train_command.h>
#include <lockstep/tests/data/images/png_file.h>
#include <lockstep/tests/data/tensor_files.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int kSide = 16;

// Classes "bus" and "cat", `rows` images of each for training, 2 for testing. All pixels of an image are
// `first` + its number.
class Photos {
 public:
  explicit Photos(int channels, int rows = 6, int first = 10) {
    for (const auto* name : {"bus", "cat"}) {
      for (int row = 0; row < rows; ++row) add("train", name, row, channels, first + row);
      for (int row = 0; row < 2; ++row) add("test", name, row, channels, first + row);
    }
  }

  void add(const std::string& half, const std::string& name, int row, int channels, int value,
           int side = kSide) const {
    const auto folder = folder_.path() / half / name;
    std::filesystem::create_directories(folder);
    const std::string pixels(static_cast<size_t>(channels * side * side), static_cast<char>(value));
    const auto size = static_cast<uint32_t>(side);
    write_file(folder / (std::to_string(row) + ".png"),
               png_file(static_cast<uint32_t>(channels), size, size, pixels));
  }

  std::string path() const { return folder_.path().string(); }
  Words flags() const {
    return {"--data", path(), "--devices", "cpu", "--threads", "1", "--batch-size", "4"};
  }

 private:
  TempFolder folder_;
};

Batch rows_of(const DataRows& rows, const std::vector<int64_t>& numbers, int64_t epoch = 0) {
  const auto source = rows.sources(torch::kCPU);
  Batch batch(std::make_shared<const BatchSpec>(source->spec()));
  source->gather(torch::tensor(numbers, torch::kInt64), epoch, batch);
  return batch;
}

const std::vector<int64_t> kAll = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

std::string plan_refusal(const Words& words) {
  try {
    planned(words);
  } catch (const Error&) {
    const auto error = as_error(std::current_exception());
    return std::to_string(static_cast<int>(error.exit_code())) + " " + error.message() + " | " + error.hint();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a folder of class folders becomes images with the names of its classes, and the plan says so") {
  const Photos photos(3);
  const auto [flags, plan] = planned(photos.flags());
  CHECK(plan.data.set.train.rows == 12);
  CHECK(plan.data.set.test.rows == 4);
  CHECK(plan.data.kind == "image folder");
  CHECK(plan.data.set.class_names == Words{"bus", "cat"});
  const auto batch = rows_of(plan.data.set.train, {2, 3});  // 1.png of both classes
  CHECK(batch.input().sizes() == torch::IntArrayRef({2, 3, kSide, kSide}));
  CHECK(batch.input().eq(11.F / 255).all().item<bool>());
  CHECK(batch.target().equal(torch::tensor({0, 1}, torch::kInt64)));
  const auto text = describe(plan);
  CHECK_THAT(text, ContainsSubstring("12 training and 4 test images (" + photos.path() + ")"));
  CHECK_THAT(text, ContainsSubstring("image folder, 3 x 16 x 16, 2 classes: bus, cat; decoded into 1 MB of "
                                     "memory by "));
  CHECK_THAT(text, ContainsSubstring("; files " + plan.data.digest.substr(0, 16)));
  CHECK_THAT(text, ContainsSubstring("torch's kernels: lockstep's for lenet are of 1 x 28 x 28 pixels"));
  const auto fields = plan_fields(plan);
  CHECK(fields.at("data_kind") == "image folder");
  CHECK(fields.at("data_digest") == plan.data.digest);
  CHECK(fields.at("network").at("classes") == nlohmann::json({"bus", "cat"}));
  CHECK(fields.at("network").at("row_shape") == nlohmann::json({3, kSide, kSide}));
}

TEST_CASE("images have one channel where all files are grey, and three where one has colours") {
  const Photos photos(1);
  CHECK(planned(photos.flags()).plan.data.set.spec.front().row_shape ==
        std::vector<int64_t>{1, kSide, kSide});
  photos.add("test", "cat", 7, 3, 9);
  CHECK(planned(photos.flags()).plan.data.set.spec.front().row_shape ==
        std::vector<int64_t>{3, kSide, kSide});
}

TEST_CASE("images that do not fit into --data-memory are streamed: the same rows, hashes and changes") {
  const Photos photos(3);
  const Words changes = {"--augment", "crop:2,flip,cutout:4", "--normalize", "auto"};
  const auto resident = planned(photos.flags() + changes).plan;
  // 12 images of 768 bytes are streamed; 4 take less than half of 6,500 bytes.
  const auto streamed =
      planned(photos.flags() + changes + Words{"--data-memory", "6500", "--workers", "2"}).plan;
  CHECK_FALSE(resident.data.streamed);
  CHECK(streamed.data.streamed);
  CHECK_THAT(describe(streamed), ContainsSubstring("1 MB of training images streamed by 2 workers, 1 MB of "
                                                   "test images in memory"));
  for (const int64_t epoch : {0, 3}) {
    CHECK(rows_of(streamed.data.set.train, kAll, epoch)
              .input()
              .equal(rows_of(resident.data.set.train, kAll, epoch).input()));
  }
  CHECK(
      rows_of(streamed.data.set.test, {0, 3}).input().equal(rows_of(resident.data.set.test, {0, 3}).input()));
  CHECK(agreed_fields({}, streamed) == agreed_fields({}, resident));
  CHECK(streamed.data.train_hash == resident.data.train_hash);
}

TEST_CASE("the estimate of a run that streams counts images ahead, and those that threads are decoding") {
  const Photos photos(3);
  const auto small = static_cast<int64_t>(std::filesystem::file_size(photos.path() + "/train/bus/0.png"));
  const auto bytes = [&](const Words& more) {
    return host_bytes(planned(photos.flags() + Words{"--workers", "2"} + more).plan);
  };
  const auto resident = bytes({});
  // Half of the memory is for images ahead. Two workers and the replica decode one each: the file, its pixels
  // and what is made of them.
  const int64_t decoded = 3 * kSide * kSide;
  CHECK(bytes({"--data-memory", "6500"}) - resident == 3250 + 3 * (small + 2 * decoded));
  // Test images that are streamed, too, have workers of their own.
  CHECK(bytes({"--data-memory", "3000"}) - resident == 1500 + 5 * (small + 2 * decoded));
  // The largest image tells, whatever is made of it.
  photos.add("train", "cat", 6, 3, 200, /*side=*/500);
  const auto large = static_cast<int64_t>(std::filesystem::file_size(photos.path() + "/train/cat/6.png"));
  const Words sized = {"--image-size", "16"};
  CHECK(bytes(sized + Words{"--data-memory", "6500"}) - bytes(sized) ==
        3250 + 3 * (large + 3 * 500 * 500 + 3 * 500 * kSide + decoded));
}

TEST_CASE("images that cannot be decoded are left out where that is asked for, and named in plans") {
  const Photos photos(3);
  const auto folder = std::filesystem::path(photos.path());
  const auto bytes = read_file(folder / "train/cat/2.png");
  write_file(folder / "train/cat/2.png", bytes.substr(0, bytes.size() / 2));
  write_file(folder / "train/bus/7.jpg", "RIFF....WEBPVP8 ");
  write_file(folder / "test/bus/5.png", "");
  CHECK_THAT(plan_refusal(photos.flags()), ContainsSubstring("test/bus/5.png is empty"));
  const auto plan = planned(photos.flags() + Words{"--skip-unreadable"}).plan;
  CHECK(plan.data.set.train.rows == 11);
  CHECK(plan.data.set.test.rows == 4);
  CHECK(rows_of(plan.data.set.train, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}).input().size(0) == 11);
  CHECK_THAT(describe(plan), ContainsSubstring("3 unreadable images left out"));
  const auto listed = plan_fields(plan).at("unreadable_images");
  CHECK(listed.at("count") == 3);
  REQUIRE(listed.at("first").size() == 3);
  for (const auto* words : {"test/bus/5.png is empty", "train/cat/2.png is truncated",
                            "train/bus/7.jpg is a WebP file, PNG or JPEG was expected"}) {
    CHECK_THAT(listed.at("first").dump(), ContainsSubstring(words));
    CHECK_THAT(plan.data.notices.at(0), ContainsSubstring(words));
  }
  CHECK_THAT(plan.data.notices.at(0), Catch::Matchers::StartsWith("3 unreadable images left out: "));
  CHECK(plan_fields(planned({"--data", "synthetic", "--limit-train", "8", "--devices", "cpu"}).plan)
            .at("unreadable_images")
            .is_null());
}

// eval reads one training image of a run.
TEST_CASE("of images that a run does not use none is decoded to find out whether it can be") {
  const Photos photos(3);
  const auto folder = std::filesystem::path(photos.path());
  for (const auto* file : {"train/bus/1.png", "train/bus/3.png"}) {
    REQUIRE(std::filesystem::exists(folder / file));
    write_file(folder / file, "no image");
  }
  // Rows are 0 of bus, 0 of cat, 1 of bus and so on, without 1 and 3 of bus.
  for (const auto& [limit, unreadable] : {std::pair(1, 0), {2, 0}, {3, 1}, {5, 1}, {6, 2}, {10, 2}}) {
    INFO("--limit-train " << limit);
    const auto plan = planned(photos.flags() + Words{"--skip-unreadable", "--limit-train",
                                                     std::to_string(limit), "--limit-test", "1"})
                          .plan;
    CHECK(plan.data.set.train.rows == limit);
    CHECK(std::ssize(plan.data.unreadable) == unreadable);
  }
}

TEST_CASE("a class or half of which no image can be decoded is refused by name") {
  const Photos photos(3, /*rows=*/1);
  const auto folder = std::filesystem::path(photos.path());
  write_file(folder / "train/cat/0.png", "no image");
  CHECK_THAT(plan_refusal(photos.flags() + Words{"--skip-unreadable"}),
             ContainsSubstring("3 class 'cat' has no image for training that can be read, such as ") &&
                 ContainsSubstring("train/cat/0.png is not a PNG or JPEG file"));
  write_file(folder / "train/bus/0.png", "no image");
  CHECK_THAT(plan_refusal(photos.flags() + Words{"--skip-unreadable"}),
             ContainsSubstring("3 none of the 2 images for training can be read"));
}

TEST_CASE("test images of another size than training images are refused before any is decoded") {
  const Photos photos(3);
  for (const auto* half : {"bus", "cat"}) {
    for (int row = 0; row < 2; ++row) photos.add("test", half, row, 3, 9, /*side=*/20);
  }
  for (const auto& more : {Words{}, Words{"--data-memory", "6500"}}) {
    CHECK_THAT(plan_refusal(photos.flags() + more),
               ContainsSubstring("3 ") && ContainsSubstring("/test/bus/0.png has 20 x 20 pixels, but ") &&
                   ContainsSubstring("/train/bus/0.png, which is for training, has 16 x 16") &&
                   ContainsSubstring("--image-size"));
  }
  const auto plan = planned(photos.flags() + Words{"--image-size", "16"}).plan;
  CHECK(rows_of(plan.data.set.test, {0}).input().sizes() == torch::IntArrayRef({1, 3, kSide, kSide}));
}

TEST_CASE("processes of one host share the memory for decoded images") {
  CHECK(default_data_memory(1'000, 1) == 500);
  CHECK(default_data_memory(1'000, 2) == 250);
  CHECK(default_data_memory(1'000, 0) == 500);  // nobody has counted them
  CHECK(default_data_memory(0, 2) == std::numeric_limits<int64_t>::max());
}

TEST_CASE("other files have another hash, and other flags of images are agreed on by name") {
  const Photos photos(3);
  const auto fields = [&](const Words& more = {}) {
    return plan_fields(planned(photos.flags() + more).plan);
  };
  const auto before = fields();
  for (const auto& [more, key] :
       std::vector<std::pair<Words, std::string>>{{{"--image-size", "14"}, "image_size"},
                                                  {{"--augment", "flip"}, "augment"},
                                                  {{"--normalize", "0.5:0.25"}, "normalize"}}) {
    CHECK(fields(more).at(key) != before.at(key));
    CHECK(fields(more).at("train_data_hash") == before.at("train_data_hash"));
  }
  photos.add("train", "cat", 6, 3, 1);
  CHECK(fields().at("train_data_hash") != before.at("train_data_hash"));
  CHECK(fields().at("test_data_hash") == before.at("test_data_hash"));
  CHECK(fields({"--limit-train", "12"}).at("train_data_hash") == before.at("train_data_hash"));
}

TEST_CASE("images of several sizes need --image-size, which resizes them and is kept") {
  const Photos photos(3);
  photos.add("train", "cat", 9, 3, 77, /*side=*/31);
  CHECK_THAT(plan_refusal(photos.flags()), ContainsSubstring("9.png has 31 x 31 pixels in 3 channels") &&
                                               ContainsSubstring("--image-size") &&
                                               Catch::Matchers::StartsWith("3 "));
  const auto plan = planned(photos.flags() + Words{"--image-size", "20"}).plan;
  const auto batch = rows_of(plan.data.set.train, {12});
  CHECK(batch.input().sizes() == torch::IntArrayRef({1, 3, 20, 20}));
  CHECK(batch.input().eq(77.F / 255).all().item<bool>());
  CHECK(plan.facts->image_size == 20);
  CHECK(plan_fields(plan).at("image_size") == 20);
}

TEST_CASE("mean and deviation are those of the training images, and reach test images and what is kept") {
  // 4 images for training: all pixels 10, 11, 10, 11. Mean 10.5, deviation 0.5.
  const Photos photos(1, /*rows=*/2);
  const auto [flags, plan] = planned(photos.flags() + Words{"--normalize", "auto", "--augment", "flip"});
  const double mean = 10.5 / 255, deviation = .5 / 255;
  REQUIRE(plan.pixels.normalization.mean.size() == 1);
  CHECK_THAT(plan.pixels.normalization.mean[0], Catch::Matchers::WithinAbs(mean, 1e-15));
  CHECK_THAT(plan.pixels.normalization.deviation[0], Catch::Matchers::WithinAbs(deviation, 1e-15));
  for (const auto* rows : {&plan.data.set.train, &plan.data.set.test}) {
    const auto batch = rows_of(*rows, {0, 2});  // bytes 10 and 11
    CHECK_THAT(batch.input()[0][0][3][5].item<float>(), Catch::Matchers::WithinAbs(-1, 1e-6));
    CHECK_THAT(batch.input()[1][0][3][5].item<float>(), Catch::Matchers::WithinAbs(1, 1e-6));
  }
  CHECK(plan.facts->mean == plan.pixels.normalization.mean);
  CHECK(plan_fields(plan).at("normalize") ==
        fmt::format("{}:{}", plan.pixels.normalization.mean[0], plan.pixels.normalization.deviation[0]));
  CHECK_THAT(describe(plan), ContainsSubstring("flip on training images; normalised by mean 0.04118 and "
                                               "deviation 0.001961, measured on 4 images"));
  CHECK(plan_fields(plan).at("normalize_rows") == 4);
  CHECK_THAT(config_text(flags, plan, kInConfig | kKept), ContainsSubstring("normalize = \"0.041"));
  CHECK_THAT(config_text(flags, plan, kInConfig),
             ContainsSubstring("normalize = \"auto\"") && ContainsSubstring("augment = \"flip\""));
}

TEST_CASE(
    "a sample of streamed rows is named, and its numbers stay those of a run that then fits into memory") {
  // 10,002 images, of which 10,000 are drawn.
  const Photos photos(1, /*rows=*/5001);
  const Words flags = photos.flags() + Words{"--recipe", "resnet18-pytorch"};
  const auto [given, streamed] =
      planned(flags + Words{"--normalize", "auto", "--data-memory", "100K", "--workers", "2"});
  REQUIRE(streamed.data.streamed);
  CHECK_THAT(describe(streamed), ContainsSubstring(", measured on 10,000 of 10,002 images"));
  CHECK(plan_fields(streamed).at("normalize_rows") == 10'000);
  const auto resident = planned(flags + Words{"--normalize", "auto"}).plan;
  CHECK(plan_fields(resident).at("normalize_rows") == 10'002);
  CHECK(resident.pixels.normalization.mean != streamed.pixels.normalization.mean);
  const auto numbers = normalize_text(streamed.pixels.normalization);
  CHECK_THAT(config_text(given, streamed, kInConfig | kKept),
             ContainsSubstring("normalize = \"" + numbers + "\""));
  const auto goes_on = planned(flags + Words{"--normalize", numbers}).plan;
  CHECK_FALSE(goes_on.data.streamed);
  CHECK(goes_on.pixels.normalization.mean == streamed.pixels.normalization.mean);
  CHECK(goes_on.pixels.normalization.deviation == streamed.pixels.normalization.deviation);
  CHECK(plan_fields(goes_on).at("normalize") == plan_fields(streamed).at("normalize"));
  CHECK(plan_fields(goes_on).at("normalize_rows").is_null());
}

TEST_CASE("augmentation changes training rows alone, not those that are held out") {
  const Photos photos(3, /*rows=*/20);
  const auto plan = planned(photos.flags() + Words{"--augment", "cutout:8", "--validation-share", ".5"}).plan;
  const auto has_black = [](const DataRows& rows) {
    std::vector<int64_t> numbers;
    for (int64_t row = 0; row < rows.rows; ++row) numbers.push_back(row);
    return rows_of(rows, numbers).input().eq(0).any().item<bool>();
  };
  CHECK(has_black(plan.data.set.train));
  CHECK_FALSE(has_black(*plan.data.set.validation));
  CHECK_FALSE(has_black(plan.data.set.test));
}

TEST_CASE("flags of images are refused for other data, by name") {
  const SmallData idx(64, 16);
  const TempFolder folder;
  const auto floats = (folder / "floats.safetensors").string();
  const auto tensor = [](const std::string& name, const std::vector<int64_t>& shape, size_t bytes) {
    return TensorBytes{name, bytes == 4 ? "F32" : "I64", shape, std::string(bytes * 2 * 28 * 28, '\0')};
  };
  auto labels = [&](const std::string& name) { return TensorBytes{name, "I64", {2}, std::string(16, '\0')}; };
  write_tensor_file(floats, {tensor("train.X", {2, 1, 28, 28}, 4), labels("train.y"),
                             tensor("test.X", {2, 1, 28, 28}, 4), labels("test.y")});
  struct Row {
    std::string data;
    Words flags;
    std::string words;
  };
  const std::vector<Row> table = {
      {idx.folder(), {"--test-share", ".1"}, "2 --test-share splits a folder of images that has no test"},
      {idx.folder(), {"--workers", "2"}, "2 --workers decode image files"},
      {idx.folder(), {"--data-memory", "1G"}, "2 --data-memory is for decoded image files"},
      {idx.folder(), {"--skip-unreadable"}, "2 --skip-unreadable leaves image files out"},
      {"synthetic", {"--image-size", "32"}, "synthetic is made from a seed"},
      {idx.folder(),
       {"--synthetic-shape", "1x28x28"},
       "2 --synthetic-shape is a setting of --data synthetic"},
      {idx.folder(),
       {"--normalize", "0.1,0.2:1,1"},
       "2 --normalize has means of 2 channels, and the images of "},
      {floats, {"--augment", "flip"}, "2 --augment changes one input of images [n, channels, height, width]"},
      {floats, {"--normalize", "auto"}, "2 --normalize changes one input of images"},
      {floats, {"--image-size", "32"}, "is safetensors data"}};
  for (const auto& [data, more, words] : table) {
    INFO(words);
    CHECK_THAT(plan_refusal(Words{"--data", data, "--devices", "cpu"} + more), ContainsSubstring(words));
  }
  const Photos photos(3);
  CHECK_THAT(plan_refusal(photos.flags() + Words{"--test-share", ".1"}),
             ContainsSubstring("--test-share is 0.1, but there is a test set"));
  CHECK_THAT(plan_refusal({"--data", photos.path() + "/train"}),
             ContainsSubstring("split the images with --test-share, such as .1"));
}

TEST_CASE("images of IDX files are resized where --image-size asks for it, and networks follow") {
  const SmallData idx(64, 16);
  const Words words = {"--data", idx.folder(), "--devices", "cpu"};
  const auto plan = planned(words + Words{"--image-size", "20"}).plan;
  CHECK(plan.data.set.spec.front().row_shape == std::vector<int64_t>{1, 20, 20});
  CHECK(plan.facts->image_size == 20);
  CHECK(plan.facts->row_shape == std::vector<int64_t>{1, 20, 20});
  CHECK(rows_of(plan.data.set.test, {15}).input().sizes() == torch::IntArrayRef({1, 1, 20, 20}));
  CHECK(plan_fields(plan).at("image_size") == 20);
  const auto same = planned(words + Words{"--image-size", "28"}).plan, as_they_are = planned(words).plan;
  CHECK(same.data.train_hash == as_they_are.data.train_hash);
  CHECK(plan.data.train_hash != as_they_are.data.train_hash);
}

TEST_CASE("synthetic images have the shape and classes that are asked for, and lenet follows them") {
  const Words few = {"--data", "synthetic", "--limit-train", "8", "--limit-test", "8", "--devices", "cpu"};
  const auto plan = planned(few + Words{"--synthetic-shape", "3x32x32:100"}).plan;
  CHECK(plan.data.set.spec.front().row_shape == std::vector<int64_t>{3, 32, 32});
  CHECK(plan.data.set.classes == 100);
  // W1 540, b1 20, W2 25,000, b2 50, W3 (50 x 5 x 5) x 128, b3 128, W4 128 x 100, b4 100
  CHECK(plan.parameter_count == 540 + 20 + 25'000 + 50 + 160'000 + 128 + 12'800 + 100);
  CHECK(plan_fields(plan).at("synthetic_shape") == "3x32x32:100");
  CHECK(planned(few).plan.parameter_count == 129'068);
  CHECK_THAT(plan_refusal(few + Words{"--synthetic-shape", "1x13x28"}),
             ContainsSubstring("3 the data has images of 13 x 28 pixels, lenet takes 14 x 14 at least"));
}

TEST_CASE("pixels of IDX files have the bits that they had before images were bytes") {
  const SmallData idx(64, 16);
  const auto plan = planned({"--data", idx.folder(), "--devices", "cpu"}).plan;
  const auto batch = rows_of(plan.data.set.train, {5, 63});
  CHECK((plan.data.set.spec[0] == TensorSpec{.name = "images", .row_shape = {1, 28, 28}}));
  const auto bytes = rows_of(plan.as_read.set.train, {5, 63}).input();
  CHECK(bytes.scalar_type() == torch::kUInt8);
  CHECK(batch.input().equal(bytes.to(torch::kFloat32).div(255)));
}
