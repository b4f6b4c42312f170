// Rows of safetensors files and of images, as a network takes them.
#include <lockstep/tests/catch.h>

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include <lockstep/app/commands/predict_rows.h>
#include <lockstep/data/safetensors.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/data/images/png_file.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

const RowsOfNetwork kGreyRows{
    .facts = {.input = "images", .row_shape = {1, 2, 2}, .bytes = true, .classes = {"cat", "dog"}}};

RowsOfNetwork with_shape(std::vector<int64_t> shape) {
  auto network = kGreyRows;
  network.facts.row_shape = std::move(shape);
  return network;
}

std::string written(const TempFolder& folder, std::vector<NamedTensor> tensors) {
  const auto path = folder / "rows.safetensors";
  save_safetensors(path, {.tensors = std::move(tensors), .metadata = {}}, /*overwrite=*/true);
  return path.string();
}

torch::Tensor given(const torch::Tensor& rows, const RowsOfNetwork& network) {
  const auto source = sources_of_rows(rows, network)(torch::kCPU);
  Batch batch(std::make_shared<const BatchSpec>(source->spec()));
  source->gather(torch::arange(rows.size(0)), /*epoch=*/0, batch);
  return batch[0];
}

}  // namespace

TEST_CASE("rows to predict are the one tensor that fits, or the named one") {
  const TempFolder folder;
  const auto bytes = torch::arange(8).view({2, 1, 2, 2}).to(torch::kUInt8);
  CHECK(rows_in_file(written(folder, {{"mine", bytes}, {"labels", torch::zeros({2})}}), kGreyRows)
            .equal(bytes));
  const auto floats = torch::ones({3, 1, 2, 2});
  CHECK(rows_in_file(written(folder, {{"train.images", bytes}, {"test.images", floats}}), kGreyRows)
            .equal(floats));
  const auto doubles = rows_in_file(written(folder, {{"x", floats.to(torch::kFloat64)}}), kGreyRows);
  CHECK(doubles.scalar_type() == torch::kFloat32);
}

TEST_CASE("files without rows for the network are refused, with what they have") {
  const TempFolder folder;
  auto of_floats = kGreyRows, takes_bytes = kGreyRows;
  of_floats.facts.bytes = false;
  takes_bytes.takes_bytes = true;
  const auto refused = [&](std::vector<NamedTensor> tensors, const RowsOfNetwork& network) {
    return refusal_of<DataError>([&] { rows_in_file(written(folder, std::move(tensors)), network); });
  };
  CHECK_THAT(refused({{"x", torch::zeros({2, 3, 2, 2})}}, kGreyRows),
             ContainsSubstring("[n, 1, 2, 2]") && ContainsSubstring("x Float [2, 3, 2, 2]"));
  CHECK_THAT(refused({{"a", torch::zeros({1, 1, 2, 2})}, {"b", torch::zeros({1, 1, 2, 2})}}, kGreyRows),
             ContainsSubstring("2 tensors"));
  CHECK_THAT(refused({{"x", torch::zeros({2, 1, 2, 2}, torch::kInt64)}}, kGreyRows),
             ContainsSubstring("x Long"));
  CHECK_THAT(refused({{"x", torch::zeros({2, 1, 2, 2}, torch::kUInt8)}}, of_floats),
             ContainsSubstring("of floats, ") && ContainsSubstring("x Byte"));
  CHECK_THAT(refused({{"x", torch::zeros({2, 1, 2, 2})}}, takes_bytes), ContainsSubstring("of uint8, "));
  CHECK_THAT(refused({{"x", torch::zeros({0, 1, 2, 2})}}, kGreyRows), ContainsSubstring("no rows"));
  CHECK_THAT(refusal_of<DataError>([&] { rows_in_file((folder / "no.safetensors").string(), kGreyRows); }),
             ContainsSubstring("no such file"));
  CHECK_THAT(refusal_of<DataError>([&] { rows_in_file(folder.path().string(), kGreyRows); }),
             ContainsSubstring("a folder"));
}

TEST_CASE("bytes are normalised as in training, floats and what takes bytes stay") {
  const auto bytes = torch::tensor({0, 51, 255, 102}, torch::kUInt8).view({1, 1, 2, 2});
  auto normalised = kGreyRows;
  normalised.facts.mean = {.2};
  normalised.facts.deviation = {.4};
  // (byte / 255 - .2) / .4
  CHECK(torch::allclose(given(bytes, normalised), torch::tensor({-.5F, 0.F, 2.F, .5F}).view({1, 1, 2, 2})));
  CHECK(given(bytes, kGreyRows).equal(bytes.to(torch::kFloat32) / 255));
  const auto floats = torch::rand({1, 1, 2, 2});
  CHECK(given(floats, normalised).equal(floats));
  normalised.takes_bytes = true;
  CHECK(given(bytes, normalised).equal(bytes));
}

TEST_CASE("images are decoded with the channels and the size of the network") {
  auto resized = with_shape({3, 32, 32});
  resized.facts.image_size = 32;
  CHECK(decoding_for(resized).channels == 3);
  CHECK(decoding_for(resized).size == 32);
  CHECK(decoding_for(kGreyRows).channels == 1);
  CHECK(decoding_for(kGreyRows).size == 0);
  auto asked = kGreyRows;
  asked.image_size = 2;
  CHECK(decoding_for(asked).size == 2);
}

TEST_CASE("networks that take no images of files are refused, with what they take") {
  auto of_floats = kGreyRows, other_size = kGreyRows;
  of_floats.facts.bytes = false;
  other_size.image_size = 32;
  CHECK_THAT(refusal_of<DataError>([&] { decoding_for(of_floats); }), ContainsSubstring("trained on floats"));
  CHECK_THAT(refusal_of<DataError>([] { decoding_for(with_shape({7})); }), ContainsSubstring("[n, 7]"));
  CHECK_THAT(refusal_of<DataError>([] {
               decoding_for(with_shape({4, 8, 8}));
             }),
             ContainsSubstring("[n, 4, 8, 8]"));
  CHECK_THAT(refusal_of([&] { decoding_for(other_size); }),
             ContainsSubstring("--image-size 32") && ContainsSubstring("2 x 2 pixels"));
}

TEST_CASE("images become rows in their order, without those that cannot be read") {
  const TempFolder folder;
  const auto path = [&](const char* name, const std::string& bytes) {
    write_file(folder / name, bytes);
    return (folder / name).string();
  };
  const std::vector<std::string> paths = {path("a.png", png_file(1, 2, 2, "abcd")), path("b.png", "no image"),
                                          path("c.png", png_file(1, 2, 2, "efgh")),
                                          (folder / "none.png").string()};
  const auto decoded = decode_files(paths, decoding_for(kGreyRows), 2, [](const auto&, const auto&) {});
  CHECK(decoded[0].fault.empty());
  CHECK(decoded[1].fault.starts_with(paths[1] + " "));
  CHECK(decoded[3].fault == paths[3] + " cannot be read: No such file or directory");
  const auto expected = torch::tensor({'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}, torch::kUInt8);
  CHECK(rows_of_images(decoded, kGreyRows).equal(expected.view({2, 1, 2, 2})));
}

TEST_CASE("an image of another size is refused with both sizes, and how it is made to fit") {
  const Pixels wide{.channels = 1, .height = 4, .width = 6, .values = std::vector<uint8_t>(24)};
  CHECK_THAT(refusal_and_hint<DataError>([&] { check_size(wide, "wide.png", kGreyRows.facts); }),
             ContainsSubstring("'wide.png' has 6 x 4 pixels, the network takes 2 x 2") &&
                 ContainsSubstring("--image-size 2 "));
}

TEST_CASE("an image that does not fit ends the decoding, so that no more of its kind are held") {
  const TempFolder folder;
  std::vector<std::string> paths;
  for (int i = 0; i < 20; ++i) {
    paths.push_back((folder / (std::to_string(i) + ".png")).string());
    write_file(paths.back(), png_file(1, 6, 4, std::string(24, 'a')));
  }
  int seen = 0;
  CHECK_THROWS_AS(decode_files(paths, decoding_for(kGreyRows), 1,
                               [&](const Pixels& image, const std::string& path) {
                                 ++seen;
                                 check_size(image, path, kGreyRows.facts);
                               }),
                  DataError);
  CHECK(seen == 1);
}

TEST_CASE("parts are of as many rows as the network alone says") {
  CHECK(rows_at_once(with_shape({1, 28, 28}).facts) == 8192);
  CHECK(rows_at_once(with_shape({3, 224, 224}).facts) == 1536);  // 256 MiB / 150,528 bytes, in blocks of 256
  CHECK(rows_at_once(with_shape({3, 4096, 4096}).facts) == 256);
}
