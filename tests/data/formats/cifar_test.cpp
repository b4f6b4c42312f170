#include <lockstep/tests/catch.h>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/formats/cifar.h>
#include <lockstep/tests/data/cifar_bytes.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("records are labels and pixels, also where the first two are those of gzip") {
  const TempFolder folder;
  for (const int label_bytes : {1, 2}) {
    for (const int64_t rows : {1, 255, 600}) {
      std::string file;
      for (int64_t row = 0; row < rows; ++row) {
        file += cifar_record(static_cast<uint8_t>(row == 0 ? 0x1f : row % 10), 0x8b + row, label_bytes);
      }
      write_file(folder / "some.bin", file);
      REQUIRE(cifar_rows(folder / "some.bin", label_bytes) == rows);
      std::vector<uint8_t> images(static_cast<size_t>(rows * kCifarPixels)),
          labels(static_cast<size_t>(rows));
      read_cifar(folder / "some.bin", label_bytes, images, labels);
      std::vector<uint8_t> expected;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < kCifarPixels; ++i) expected.push_back(static_cast<uint8_t>(0x8b + row + i));
        if (labels[static_cast<size_t>(row)] != (row == 0 ? 0x1f : row % 10)) FAIL("label of row " << row);
      }
      CHECK((images == expected));
    }
  }
}

TEST_CASE("a file that ends within a record is an error, and an empty one") {
  const TempFolder folder;
  const auto record = cifar_record(3, 0, 1);
  for (const auto& [bytes, words] : std::vector<std::pair<std::string, const char*>>{
           {"", "is empty"},
           {record.substr(1), "3072 bytes, which are 0 records of 3073 bytes and 3072 more"},
           {record + "x", "3074 bytes, which are 1 records of 3073 bytes and 1 more"}}) {
    write_file(folder / "some.bin", bytes);
    CHECK_THAT(refusal_of<DataError>([&] { cifar_rows(folder / "some.bin", 1); }),
               ContainsSubstring((folder / "some.bin").string()) && ContainsSubstring(words));
  }
  write_file(folder / "some.bin", record);
  std::vector<uint8_t> images(2 * kCifarPixels), labels(2);
  CHECK_THAT(refusal_of<DataError>([&] { read_cifar(folder / "some.bin", 1, images, labels); }),
             ContainsSubstring("ends before record 2 of 2"));
}

TEST_CASE("batches are found in order of their numbers, and a gap is an error") {
  const TempFolder folder;
  for (int i = 1; i <= 11; ++i) {
    write_file(folder / ("data_batch_" + std::to_string(i) + ".bin"), "x");
  }
  write_file(folder / "data_batch_x.bin", "x");
  CHECK_THAT(refusal_of<DataError>([&] { find_cifar_files(folder.path()); }),
             ContainsSubstring("has no test_batch.bin"));
  write_file(folder / "test_batch.bin", "x");
  const auto files = find_cifar_files(folder.path());
  REQUIRE(files.train.size() == 11);
  CHECK(files.train[1].filename() == "data_batch_2.bin");
  CHECK(files.train[10].filename() == "data_batch_11.bin");
  CHECK(files.names.empty());
  std::filesystem::remove(folder / "data_batch_3.bin");
  CHECK_THAT(refusal_of<DataError>([&] { find_cifar_files(folder.path()); }),
             ContainsSubstring("has data_batch_4.bin and no data_batch_3.bin"));
}
