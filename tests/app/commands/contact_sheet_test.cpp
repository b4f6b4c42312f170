// The picture of the first images of each class.
#include <lockstep/tests/catch.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include <lockstep/app/commands/contact_sheet.h>

using namespace lockstep;

namespace {

std::array<int, 3> pixel(const plot::Raster& raster, int x, int y) {
  const auto at = static_cast<size_t>((y * raster.width + x) * 3);
  return {raster.rgb[at], raster.rgb[at + 1], raster.rgb[at + 2]};
}

constexpr std::array<int, 3> kWhite = {255, 255, 255};

}  // namespace

TEST_CASE("a sheet has a row of ten places for each class, with gaps of two pixels") {
  ContactSheet sheet(3, /*height=*/1, /*width=*/2);
  CHECK(sheet.raster().width == 10 * 4 + 2);
  CHECK(sheet.raster().height == 3 * 3 + 2);
  const std::array<uint8_t, 2> grey = {7, 8};
  const std::array<uint8_t, 6> colour = {1, 2, 3, 4, 5, 6};  // red, green and blue of both pixels
  sheet.add(0, grey);
  sheet.add(0, colour);
  sheet.add(2, grey);
  CHECK(pixel(sheet.raster(), 2, 2) == std::array<int, 3>{7, 7, 7});
  CHECK(pixel(sheet.raster(), 3, 2) == std::array<int, 3>{8, 8, 8});
  CHECK(pixel(sheet.raster(), 6, 2) == std::array<int, 3>{1, 3, 5});
  CHECK(pixel(sheet.raster(), 7, 2) == std::array<int, 3>{2, 4, 6});
  CHECK(pixel(sheet.raster(), 2, 8) == std::array<int, 3>{7, 7, 7});
  CHECK(pixel(sheet.raster(), 2, 5) == kWhite);
  CHECK(pixel(sheet.raster(), 4, 2) == kWhite);
}

TEST_CASE("a class has ten places, and a sheet a hundred classes") {
  ContactSheet sheet(1000, 1, 1);
  CHECK(sheet.raster().height == 100 * 3 + 2);
  CHECK_FALSE(sheet.wants(100));
  CHECK_FALSE(sheet.wants(-1));
  const std::array<uint8_t, 1> black = {0};
  for (int64_t label = 0; label < 100; ++label) {
    for (int i = 0; i < 10; ++i) {
      CHECK_FALSE(sheet.is_full());
      CHECK(sheet.wants(label));
      sheet.add(label, black);
    }
    CHECK_FALSE(sheet.wants(label));
    sheet.add(label, black);  // does nothing
  }
  CHECK(sheet.is_full());
}
