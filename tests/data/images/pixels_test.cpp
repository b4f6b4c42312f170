#include <lockstep/tests/catch.h>

#include <algorithm>

#include <lockstep/data/images/pixels.h>
#include <lockstep/tests/data/images/image_reference.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("files are decoded to Pillow's pixels: depths, palettes, interlaced, CMYK, turned, resized") {
  size_t checked = 0;
  for (const auto& row : image_reference()["decoded"]) {
    INFO(row["file"] << " " << row["channels"] << " channels, size " << row["size"]);
    const auto pixels = decode_image(image_file(row["file"]), {row["channels"], row["size"]});
    CHECK(pixels.channels == row["channels"]);
    CHECK(pixels.height == row["height"]);
    CHECK(pixels.width == row["width"]);
    CHECK(pixels.values == bytes_of(row["values"]));
    ++checked;
  }
  CHECK(checked >= 100);
}

TEST_CASE("images are resized to Pillow's bytes: smaller, larger, as they are, long ones, to one pixel") {
  size_t checked = 0;
  for (const auto& row : image_reference()["resized"]) {
    INFO(row["kind"] << " " << row["height"] << " x " << row["width"] << " to " << row["size"]);
    Pixels image{1, row["height"], row["width"], bytes_of(row["values"])};
    const auto expected = bytes_of(row["centre"]);
    CHECK(resize_and_crop(image, row["size"]).values == expected);
    // Channels one by one.
    const auto one = image.values;
    image.channels = 2;
    std::ranges::transform(one, std::back_inserter(image.values), [](int value) { return 255 - value; });
    const auto both = resize_and_crop(image, row["size"]);
    CHECK(both.channels == 2);
    REQUIRE(both.values.size() == 2 * expected.size());
    CHECK(std::equal(expected.begin(), expected.end(), both.values.begin()));
    ++checked;
  }
  CHECK(checked >= 30);
}

TEST_CASE("a long image is resized without the memory of the whole") {
  const Pixels line{1, 1, 60'000, std::vector<uint8_t>(60'000, 77)};
  const auto square = resize_and_crop(line, 224);  // as a whole 224 x 13,440,000
  CHECK(square.values == std::vector<uint8_t>(224 * 224, 77));
}

TEST_CASE("what an image is comes from its header") {
  struct Row {
    const char* file;
    int channels, height, width;
    bool alpha, sixteen_bits;
    const char* format;
  };
  for (const auto& row :
       {Row{"png_type_0_bits_1", 1, 5, 7, false, false, "PNG"},
        Row{"png_type_2_bits_16", 3, 5, 7, false, true, "PNG"},
        Row{"png_type_3_bits_2", 3, 5, 7, false, false, "PNG"},
        Row{"png_type_4_bits_8", 1, 5, 7, true, false, "PNG"},
        Row{"png_type_6_bits_16", 3, 5, 7, true, true, "PNG"},
        Row{"png_transparent_grey", 1, 5, 7, true, false, "PNG"},
        Row{"png_transparent_palette", 3, 5, 7, true, false, "PNG"},
        Row{"png_turned", 3, 7, 5, false, false, "PNG"},
        Row{"png_turned_behind", 3, 7, 5, false, false, "PNG"},
        Row{"jpeg_grey", 1, 19, 21, false, false, "JPEG"}, Row{"jpeg_420", 3, 19, 21, false, false, "JPEG"},
        Row{"jpeg_cmyk", 4, 9, 10, false, false, "JPEG"},
        Row{"jpeg_orientation_4", 3, 9, 13, false, false, "JPEG"},
        Row{"jpeg_orientation_5", 3, 13, 9, false, false, "JPEG"},
        Row{"jpeg_orientation_9", 3, 9, 13, false, false, "JPEG"}}) {
    INFO(row.file);
    const auto info = image_info(image_file(row.file));
    CHECK(info.channels == row.channels);
    CHECK(info.height == row.height);
    CHECK(info.width == row.width);
    CHECK(info.alpha == row.alpha);
    CHECK(info.sixteen_bits == row.sixteen_bits);
    CHECK(info.format == row.format);
  }
}

TEST_CASE("the first bytes of a file tell its channels, or that they are too few") {
  for (const auto* name : {"png_type_0_bits_1", "png_type_3_bits_2", "png_turned_behind", "jpeg_grey",
                           "jpeg_420", "jpeg_cmyk", "jpeg_orientation_5"}) {
    INFO(name);
    const auto file = image_file(name);
    const auto whole = image_info(file);
    size_t least = 0;  // bytes that tell
    for (size_t count = 0; count <= file.size(); ++count) {
      ImageInfo info;
      try {
        info = image_info(std::span(file).first(count), file.size());
      } catch (const DataError&) {
        continue;
      }
      if (least == 0) least = count;
      CHECK(info.channels == whole.channels);
      CHECK(info.format == whole.format);
    }
    CHECK(least > 0);
    CHECK(least < file.size());
  }
  // 1,000 x 1,000 pixels are too many for a file of 33 bytes, not for one of 5,000.
  const auto file = image_file("png_type_2_bits_8");
  auto start = std::vector(file.begin(), file.begin() + 33);
  start[18] = start[22] = 0x03;
  start[19] = start[23] = 0xe8;
  CHECK(image_info(start, 5'000).height == 1'000);
  CHECK_THROWS_AS(image_info(start), DataError);
}

TEST_CASE("other channels and sizes than can be made are refused") {
  const auto file = image_file("png_type_2_bits_8");
  for (const int channels : {0, 2, 4}) {
    CHECK(refusal_of([&] {
            decode_image(file, {channels, 0});
          }) == "images of " + std::to_string(channels) + " channels were asked for, 1 or 3 can be made");
  }
  for (const int size : {-1, 11'586, 2'000'000'000}) {
    INFO(size);
    CHECK(refusal_of([&] { decode_image(file, {3, size}); }).find(std::to_string(size)) != std::string::npos);
  }
  const Pixels image{1, 2, 2, {1, 2, 3, 4}};
  CHECK(refusal_of([&] { resize_and_crop(image, 0); }).find("1 x 1") != std::string::npos);
  CHECK(refusal_of([&] {
          resize_and_crop({1, 2, 3, image.values}, 2);
        }) == "an image of 1 x 2 x 3 has 4 values");
}
