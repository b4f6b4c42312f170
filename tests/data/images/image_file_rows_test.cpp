// Rows of image files, decoded by lockstep_images. The files are Pillow's.
#include <fcntl.h>
#include <sys/stat.h>
#include <torch/types.h>

#include <lockstep/tests/catch.h>
#include <array>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/data/dataset_rows.h>
#include <lockstep/data/images/decoded_rows.h>
#include <lockstep/data/images/image_files_dataset.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// 2 x 1 pixels as PNG; data: the compressed pixels with their length, name and checksum.
std::string png_of_two_pixels(const std::string& data) {
  return std::string("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x02\0\0\0\x01\x08\x02\0\0\0\x7b\x40\xe8\xdd",
                     33) +
         data + std::string("\0\0\0\0IEND\xae\x42\x60\x82", 12);
}

// (1, 2, 3), (250, 0, 128)
const std::string kFirst = png_of_two_pixels(std::string(
    "\0\0\0\x0fIDAT\x78\x9c\x63\x60\x64\x62\xfe\xc5\xd0\0\0\x03\x91\x01\x81\x3c\x0a\x27\x8f", 27));
// (9, 9, 9), (0, 255, 7)
const std::string kSecond = png_of_two_pixels(std::string(
    "\0\0\0\x0fIDAT\x78\x9c\x63\xe0\xe4\xe4\x64\xf8\xcf\x0e\0\x02\x93\x01\x22\xde\x3f\x46\xb4", 27));

std::string file_of(const TempFolder& folder, const std::string& name, const std::string& bytes) {
  const auto path = (folder / name).string();
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

Batch both_rows(const SourceFactory& sources) {
  const auto source = sources(torch::kCPU);
  Batch batch(std::make_shared<const BatchSpec>(source->spec()));
  source->gather(torch::tensor({1, 0}, torch::kInt64), /*epoch=*/0, batch);
  return batch;
}

}  // namespace

TEST_CASE("PNG files become the same rows resident, streamed, and through torch::data") {
  const TempFolder folder;
  const std::vector<ImageFile> files = {{file_of(folder, "a.png", kFirst), 4},
                                        {file_of(folder, "b.png", kSecond), 2}};
  const auto expected =
      torch::tensor({9, 0, 9, 255, 9, 7, 1, 250, 2, 0, 3, 128}, torch::kUInt8).view({2, 3, 1, 2});
  for (const auto& sources : {resident_image_rows(files, {}, 2).sources,
                              streamed_image_rows(files, {}).sources, dataset_rows(ImageFiles(files))}) {
    const auto batch = both_rows(sources);
    CHECK(batch.input().equal(expected));
    CHECK(batch.target().equal(torch::tensor({2, 4})));
  }
}

TEST_CASE("what is no image is refused with its path") {
  const TempFolder folder;
  const auto truncated = file_of(folder, "cut.png", kFirst.substr(0, 50));
  const auto pipe = (folder / "pipe.png").string();
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const std::vector<std::string> paths = {truncated,
                                          pipe,
                                          file_of(folder, "text.png", "no image"),
                                          file_of(folder, "empty.png", ""),
                                          (folder / "none.png").string(),
                                          folder.path().string()};
  for (const auto& path : paths) {
    INFO(path);
    CHECK(refusal_of<DataError>([&] { decode_file(path, {}); }).starts_with(path + " "));
    CHECK(refusal_of<DataError>([&] { resident_image_rows({{path, 0}}, {}, 1); }).starts_with(path + " "));
  }
  CHECK(refusal_of<DataError>([&] { decode_file(folder / "none.png", {}); }) ==
        (folder / "none.png").string() + " cannot be read: No such file or directory");
}

TEST_CASE("a file of another size than it was found with is refused, however well it decodes") {
  const TempFolder folder;
  const auto path = file_of(folder, "a.png", kFirst);
  const auto size = static_cast<int64_t>(kFirst.size());
  const std::vector<ImageFile> files = {{.path = path, .size = size}};
  const auto resident = [&] { resident_image_rows(files, {}, 1); };
  CHECK_NOTHROW(resident());
  const auto grown = file_of(folder, "a.png", kFirst + "1234");
  CHECK_NOTHROW(decode_file(grown, {}));  // bytes after the end of an image do not count
  const auto expected = path + " has changed: it has " + std::to_string(size + 4) + " bytes, and had " +
                        std::to_string(size) + " when its folder was read";
  CHECK(refusal_of<DataError>(resident) == expected);
  CHECK(refusal_of<DataError>([&] { streamed_image_rows(files, {}); }) == expected);
  CHECK(refusal_of<DataError>([&] { ImageFiles(files).get(0); }) == expected);
}

TEST_CASE("a file that was written after it was found is refused, with both times") {
  const TempFolder folder;
  const auto path = file_of(folder, "a.png", kFirst);
  const auto written_at = [&](long nanoseconds) {
    const std::array<timespec, 2> times = {timespec{1'700'000'000, 0}, {1'700'000'000, nanoseconds}};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times.data(), 0) == 0);
  };
  written_at(5);
  const ImageList files = {
      {.path = path, .size = static_cast<int64_t>(kFirst.size()), .written = 1'700'000'000'000'000'005}};
  CHECK_NOTHROW(streamed_image_rows(files, {}));
  file_of(folder, "a.png", kSecond);
  written_at(6);
  // date -u -d @1700000000
  CHECK(refusal_of<DataError>([&] { streamed_image_rows(files, {}); }) ==
        path +
            " has changed: it was written at 2023-11-14 22:13:20.000000006 UTC, and had been at "
            "2023-11-14 22:13:20.000000005 UTC when its folder was read");
  CHECK(hash_of_times(files) != hash_of_times({{.path = path, .written = 1'700'000'000'000'000'006}}));
}

TEST_CASE("images are grey if all of them are, and one coloured is found") {
  const TempFolder folder;
  const auto colored = file_of(folder, "a.png", kFirst);
  auto grey = kFirst;
  grey[25] = 0;  // its type of colours
  CHECK_FALSE(all_grey({{.path = colored}}, 1));
  CHECK(all_grey({{.path = file_of(folder, "b.png", grey)}}, 2));
  // Far more than the first bytes.
  const auto large = file_of(folder, "c.png", kFirst + std::string(100'000, 'x'));
  CHECK_FALSE(all_grey({{.path = folder / "b.png"}, {.path = large}}, 2));
}
