// Rows of image files, with a decoder that needs no files.
#include <torch/types.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <lockstep/data/images/decoded_rows.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

using FileNumbers = std::vector<int64_t>;

// File i is of class i % 3.
std::vector<ImageFile> numbered_files(int64_t count) {
  std::vector<ImageFile> files;
  for (int64_t i = 0; i < count; ++i) files.push_back({"cats/" + std::to_string(i), i % 3});
  return files;
}

// Image i has the bytes i, i + 1, ..., in two channels of 2 x 3.
Pixels numbered_image(const ImageFile& file) {
  const auto number = std::stoi(file.path.filename().string());
  Pixels image{.channels = 2, .height = 2, .width = 3};
  for (int p = 0; p < 12; ++p) image.values.push_back(static_cast<uint8_t>(number + p));
  return image;
}

// Files from 5 on cannot be decoded, and 4 has another size.
Pixels damaged_image(const ImageFile& file) {
  const auto number = std::stoi(file.path.filename().string());
  if (number >= 5) throw DataError(file.path.string() + " is truncated", "fetch it again");
  auto image = numbered_image(file);
  if (number == 4) image.height = 3, image.values.resize(18);
  return image;
}

Batch rows_of_files(const BatchSource& source, const FileNumbers& rows, int64_t epoch = 0) {
  Batch batch(std::make_shared<const BatchSpec>(source.spec()));
  source.gather(torch::tensor(rows, torch::kInt64), epoch, batch);
  return batch;
}

}  // namespace

TEST_CASE("image files become rows, resident and streamed, for any number of workers") {
  const auto files = numbered_files(20);
  const FileNumbers rows = {19, 0, 7, 7, 3};
  const auto numbers = torch::tensor(rows, torch::kInt64);
  const auto expected = (numbers.view({5, 1}) + torch::arange(12)).to(torch::kUInt8).view({5, 2, 2, 3});
  std::vector<DataRows> all;
  for (const int workers : {1, 2, 7}) {
    all.push_back(lockstep::detail::resident_image_rows(files, numbered_image, workers));
    for (const int64_t queue : {1, 36, 1 << 20}) {
      all.push_back(lockstep::detail::streamed_image_rows(files, numbered_image,
                                                          {.workers = workers, .queue_bytes = queue}));
    }
  }
  for (const auto& data : all) {
    CHECK(data.rows == 20);
    const auto source = data.sources(torch::kCPU);
    CHECK(source->size() == 20);
    for (const bool told : {true, false}) {
      if (told) source->will_need(rows, 0);
      const auto batch = rows_of_files(*source, rows);
      CHECK(batch["images"].equal(expected));
      CHECK(batch["labels"].equal(numbers % 3));
      CHECK(batch["labels"].is_same(batch.target()));
    }
  }
}

TEST_CASE("every file is decoded once for resident rows, and by the threads that were asked for") {
  std::mutex mutex;
  std::multiset<std::string> decoded;
  const auto count = [&](const ImageFile& file) {
    const std::lock_guard lock(mutex);
    decoded.insert(file.path.string());
    return numbered_image(file);
  };
  lockstep::detail::resident_image_rows(numbered_files(40), count, 3);
  CHECK(decoded.size() == 41);  // the first one tells the size
  for (const auto& file : numbered_files(40)) CHECK(decoded.count(file.path.string()) >= 1);
}

TEST_CASE("the first file that cannot be decoded, or has another size, is named") {
  const auto files = numbered_files(12);
  const std::string other_size = "cats/4 has 3 x 3 pixels in 2 channels, cats/0 has 3 x 2 in 2";
  for (const int workers : {1, 4}) {
    INFO(workers << " workers");
    CHECK(refusal_of<DataError>(
              [&] { lockstep::detail::resident_image_rows(files, damaged_image, workers); }) == other_size);
    const auto source = lockstep::detail::streamed_image_rows(files, damaged_image, {.workers = workers})
                            .sources(torch::kCPU);
    source->will_need(FileNumbers{1, 7, 4}, 2);
    CHECK(refusal_and_hint<DataError>([&] {
            rows_of_files(*source, {1, 7, 4}, 2);
          }) == "row 7 of the data set cannot be read in epoch 2: cats/7 is truncated | fetch it again");
    CHECK(refusal_of<DataError>([&] { rows_of_files(*source, {4}); }) ==
          "row 4 of the data set cannot be read in epoch 0: " + other_size);
    CHECK(rows_of_files(*source, {3, 2}).target().equal(torch::tensor({0, 2})));
  }
  CHECK(refusal_of<DataError>([&] {
          lockstep::detail::streamed_image_rows(std::vector(files.begin() + 5, files.end()), damaged_image,
                                                {});
        }) == "cats/5 is truncated");
}

TEST_CASE("messages name the rows, and epochs as step lines count them, or none where rows are evaluated") {
  struct Row {
    StreamOptions options;
    const char* place;
  };
  for (const auto& [options, place] :
       {Row{{.name = "the training images"}, "row 7 of the training images cannot be read in epoch 3: "},
        Row{{.name = "the test images", .evaluated = true}, "row 7 of the test images cannot be read: "}}) {
    const auto source = lockstep::detail::streamed_image_rows(numbered_files(12), damaged_image, options)
                            .sources(torch::kCPU);
    CHECK(refusal_of<DataError>([&] { rows_of_files(*source, {7}, 2); }) ==
          std::string(place) + "cats/7 is truncated");
  }
}

TEST_CASE("a file that vanishes after the start ends the step that asks for it") {
  std::atomic<bool> there = true;
  const auto decode = [&](const ImageFile& file) {
    if (!there) throw DataError(file.path.string() + " cannot be read: No such file or directory");
    return numbered_image(file);
  };
  const auto source =
      lockstep::detail::streamed_image_rows(numbered_files(6), decode, {}).sources(torch::kCPU);
  rows_of_files(*source, {5});
  there = false;
  CHECK(refusal_of<DataError>([&] { rows_of_files(*source, {5}); }) ==
        "row 5 of the data set cannot be read in epoch 0: cats/5 cannot be read: No such file or directory");
}

TEST_CASE("hashes of rows tell other files and labels from these") {
  const auto files = numbered_files(8);
  auto relabelled = files;
  relabelled[6].label = 7;
  const auto streamed = [](const auto& of) {
    return lockstep::detail::streamed_image_rows(of, numbered_image, {});
  };
  const auto resident = [](const auto& of) {
    return lockstep::detail::resident_image_rows(of, numbered_image, 2);
  };
  const auto check_hashes = [](const DataRows& one, const DataRows& same, const DataRows& other) {
    CHECK(one.hash_of_first(8) == same.hash_of_first(8));
    CHECK(one.hash_of_first(8) != one.hash_of_first(7));
    CHECK(one.hash_of_first(8) != other.hash_of_first(8));
    CHECK(one.hash_of_first(6) == other.hash_of_first(6));
  };
  check_hashes(streamed(files), streamed(files), streamed(relabelled));
  check_hashes(resident(files), resident(files), resident(relabelled));
}

TEST_CASE("options and folders that give no rows are refused") {
  const auto files = numbered_files(2);
  CHECK(refusal_of([&] { lockstep::detail::resident_image_rows(files, numbered_image, 0); }) ==
        "workers is 0");
  CHECK(refusal_of([&] { lockstep::detail::streamed_image_rows(files, numbered_image, {.workers = 0}); }) ==
        "workers is 0");
  CHECK(refusal_of([&] {
          lockstep::detail::streamed_image_rows(files, numbered_image, {.queue_bytes = 0});
        }) == "a queue of 0 bytes holds no images");
  CHECK(refusal_of<DataError>([] { lockstep::detail::resident_image_rows({}, numbered_image, 1); }) ==
        "there are no image files to decode");
}
