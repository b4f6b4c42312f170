#include <lockstep/tests/catch.h>
#include <torch/types.h>

#include <filesystem>
#include <string>
#include <utility>

#include <lockstep/data/fashion_mnist.h>
#include <lockstep/tests/data/data_files.h>
#include <lockstep/tests/skip.h>
#include <lockstep/tests/support/reference.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("verify_fashion_mnist hashes the decompressed bytes") {
  for (const bool gzip : {false, true}) {
    const DataFolder data(gzip);
    const auto checks = verify_fashion_mnist(data.folder());
    REQUIRE(checks.size() == 4);
    for (size_t i = 0; i < checks.size(); ++i) {
      CHECK(checks[i].path == data.path(small_set()[i].name));
      CHECK_FALSE(checks[i].matches());
    }
    // Python: hashlib.sha256(bytes([0, 0, 8, 1, 0, 0, 0, 5, 9, 0, 3, 3, 7])).hexdigest(), and with 3, 1, 2, 8
    CHECK(checks[kTrainLabels].sha256 == "674308ff37d64319489548569fed817482c8db747dee53f009a09075ff5a30a4");
    CHECK(checks[kTestLabels].sha256 == "09faeb418f8a4dd0c9304edd14afd70e4d0d89489968a14f1140036054d9e84c");
  }
}

TEST_CASE("verify_fashion_mnist stops at a damaged file") {
  const DataFolder data(/*gzip=*/true);
  const std::string name = small_set()[kTestImages].name;
  Bytes stored = gzipped(small_set()[kTestImages].bytes);
  stored[stored.size() - 8] ^= 1;
  data.write_stored(name, stored);
  CHECK_THROWS_AS(verify_fashion_mnist(data.folder()), DataError);
  CHECK_THROWS_WITH(verify_fashion_mnist(data.folder()), ContainsSubstring(data.path(name).string()));
}

TEST_CASE("images with one other pixel than the published ones are not called Fashion-MNIST") {
  if (!std::filesystem::is_directory(kDebianFashionMnist))
    SKIP_CASE("dataset-fashion-mnist is not installed");
  const TempFolder folder;
  const auto files = find_idx_files(kDebianFashionMnist);
  for (const auto& file : {files.train_images, files.train_labels, files.test_labels}) {
    std::filesystem::create_symlink(file, folder / file.filename());
  }
  auto test = load_idx_folder(kDebianFashionMnist).test.images;
  const auto write_test_images = [&] {
    const auto* values = test.const_data_ptr<uint8_t>();
    write_bytes(folder / "t10k-images-idx3-ubyte",
                idx_bytes({10'000, 28, 28}, {values, values + test.numel()}));
  };
  write_test_images();
  CHECK(load_idx_folder(folder.path()).name == "Fashion-MNIST");
  test[9'999][0][27][27] += 1;
  write_test_images();
  CHECK(load_idx_folder(folder.path()).name == folder.path().filename());
}

TEST_CASE("Debian's files are the published ones, and have the rows that Python reads") {
  if (!std::filesystem::is_directory(kDebianFashionMnist))
    SKIP_CASE("dataset-fashion-mnist is not installed");
  for (const FileCheck& check : verify_fashion_mnist(kDebianFashionMnist)) {
    INFO(check.path);
    CHECK(check.sha256 == check.expected);
  }
  const Dataset data = load_idx_folder(kDebianFashionMnist);
  CHECK(data.name == "Fashion-MNIST");
  const auto reference = lockstep::testing::reference("fashion_first_rows.json");
  for (const auto& [name, set] : {std::pair("train", data.train), std::pair("test", data.test)}) {
    INFO(name);
    const auto& expected = reference.at(name);
    CHECK(set.size() == expected.at("rows").get<int64_t>());
    for (int64_t row = 0; row < 3; ++row) {
      CHECK(set.images[row].sum().item<int64_t>() == expected.at("pixel_sums").at(row).get<int64_t>());
      CHECK(set.labels[row].item<int64_t>() == expected.at("labels").at(row).get<int64_t>());
    }
  }
}
