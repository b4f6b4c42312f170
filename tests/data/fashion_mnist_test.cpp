#include <torch/types.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <lockstep/data/fashion_mnist.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/data/gzip_bytes.h>
#include <lockstep/tests/data/idx_bytes.h>
#include <lockstep/tests/skip.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

struct File {
  std::string name;
  Bytes bytes;
};

constexpr uint32_t kTrainRows = 5;
constexpr uint32_t kTestRows = 3;

Bytes pixels(uint32_t rows, uint8_t first) {
  Bytes values(rows * 784);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(first + i * 37 + i / 784);
  return values;
}

// A small data set of the right form: 5 and 3 rows.
std::vector<File> small_set() {
  return {{"train-images-idx3-ubyte", idx_bytes({kTrainRows, 28, 28}, pixels(kTrainRows, 1))},
          {"train-labels-idx1-ubyte", idx_bytes({kTrainRows}, {9, 0, 3, 3, 7})},
          {"t10k-images-idx3-ubyte", idx_bytes({kTestRows, 28, 28}, pixels(kTestRows, 2))},
          {"t10k-labels-idx1-ubyte", idx_bytes({kTestRows}, {1, 2, 8})}};
}
constexpr size_t kTrainLabels = 1, kTestImages = 2, kTestLabels = 3;  // indices in it

// A folder with the files of a small set. A test can replace each file.
class DataFolder {
 public:
  explicit DataFolder(bool gzip) : gzip_(gzip) {
    for (const File& file : small_set()) write(file.name, file.bytes);
  }

  std::filesystem::path path(const std::string& name) const {
    return folder_ / (gzip_ ? name + ".gz" : name);
  }
  void write(const std::string& name, const Bytes& bytes) const {
    write_stored(name, gzip_ ? gzipped(bytes) : bytes);
  }
  void write_stored(const std::string& name, const Bytes& bytes) const { write_bytes(path(name), bytes); }
  const std::filesystem::path& folder() const { return folder_.path(); }
  bool gzip() const { return gzip_; }

  // Returns the message of the DataError that loading throws.
  std::string failure() const {
    try {
      load_fashion_mnist(folder());
    } catch (const DataError& error) {
      CHECK_FALSE(error.hint().empty());
      return error.what();
    }
    FAIL("no DataError");
    return {};
  }

 private:
  TempFolder folder_;
  bool gzip_;
};

Bytes bytes_of(const torch::Tensor& tensor) {
  const auto* data = tensor.const_data_ptr<uint8_t>();
  return {data, data + tensor.numel()};
}

}  // namespace

TEST_CASE("load_fashion_mnist reads plain and gzipped files") {
  for (const bool gzip : {false, true}) {
    const Dataset data = load_fashion_mnist(DataFolder(gzip).folder());
    CHECK(data.name == "Fashion-MNIST");
    CHECK(data.classes == 10);
    CHECK(data.train.size() == kTrainRows);
    CHECK(data.test.size() == kTestRows);
    CHECK(data.train.images.sizes() == torch::IntArrayRef({kTrainRows, 1, 28, 28}));
    CHECK(data.test.images.sizes() == torch::IntArrayRef({kTestRows, 1, 28, 28}));
    CHECK(bytes_of(data.train.images) == pixels(kTrainRows, 1));
    CHECK(bytes_of(data.test.images) == pixels(kTestRows, 2));
    CHECK(bytes_of(data.train.labels) == Bytes{9, 0, 3, 3, 7});
    CHECK(bytes_of(data.test.labels) == Bytes{1, 2, 8});
  }
}

TEST_CASE("a plain file is preferred to a gzipped one beside it") {
  const DataFolder data(/*gzip=*/false);
  for (const File& file : small_set()) write_bytes(data.folder() / (file.name + ".gz"), {'b', 'a', 'd'});
  CHECK(load_fashion_mnist(data.folder()).train.size() == kTrainRows);
}

TEST_CASE("a file whose state cannot be read is an error that says why") {
  const DataFolder data(/*gzip=*/false);
  const auto labels = data.path("train-labels-idx1-ubyte");
  std::filesystem::remove(labels);
  std::filesystem::create_symlink(labels.filename(), labels);  // a link to itself
  CHECK(data.failure() == "cannot read " + labels.string() + ": Too many levels of symbolic links");
}

TEST_CASE("a data folder without permission to enter it is an error that says so") {
  if (::geteuid() == 0) SKIP_CASE("root enters every folder");
  const DataFolder data(/*gzip=*/true);
  std::filesystem::permissions(data.folder(), std::filesystem::perms::owner_read);
  const auto failure = data.failure();
  std::filesystem::permissions(data.folder(), std::filesystem::perms::owner_all);
  CHECK_THAT(failure, ContainsSubstring("cannot read " + data.folder().string()) &&
                          ContainsSubstring("Permission denied"));
}

TEST_CASE("each of the four files truncated at ten places is an error that names it") {
  for (const bool gzip : {false, true}) {
    for (const File& file : small_set()) {
      const DataFolder data(gzip);
      const Bytes whole = gzip ? gzipped(file.bytes) : file.bytes;
      for (size_t tenth = 0; tenth < 10; ++tenth) {
        const size_t size = whole.size() * tenth / 10;
        INFO(data.path(file.name) << " cut to " << size << " of " << whole.size() << " bytes");
        data.write_stored(file.name, {whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)});
        CHECK_THAT(data.failure(), ContainsSubstring(data.path(file.name).string()));
      }
    }
  }
}

TEST_CASE("each of the four files with one wrong field is an error that names it") {
  for (const bool gzip : {false, true}) {
    for (const File& file : small_set()) {
      const DataFolder data(gzip);
      const size_t header = 4 + 4 * size_t{file.bytes[3]};
      for (size_t at = 0; at < header; ++at) {  // every byte of the magic number and of the dimensions
        INFO(data.path(file.name) << ", byte " << at);
        Bytes wrong = file.bytes;
        wrong[at] ^= 0x04;
        data.write(file.name, wrong);
        CHECK_THAT(data.failure(), ContainsSubstring(data.path(file.name).string()));
      }
    }
  }
}

TEST_CASE("each of the four files with trailing bytes or a wrong checksum is an error that names it") {
  for (const bool gzip : {false, true}) {
    for (const File& file : small_set()) {
      const DataFolder data(gzip);
      INFO(data.path(file.name));
      Bytes stored = gzip ? gzipped(file.bytes) : file.bytes;
      stored.push_back(0);
      data.write_stored(file.name, stored);
      CHECK_THAT(data.failure(), ContainsSubstring(data.path(file.name).string()));
      if (!gzip) continue;
      stored.pop_back();
      stored[stored.size() - 8] ^= 1;  // of the CRC-32
      data.write_stored(file.name, stored);
      CHECK_THAT(data.failure(), ContainsSubstring(data.path(file.name).string()) &&
                                     ContainsSubstring("incorrect data check"));
    }
  }
}

TEST_CASE("a label above 9 is an error that names its row") {
  for (const bool gzip : {false, true}) {
    for (const size_t labels : {kTrainLabels, kTestLabels}) {
      const DataFolder data(gzip);
      File file = small_set()[labels];
      file.bytes[8 + 2] = 10;
      data.write(file.name, file.bytes);
      CHECK_THAT(data.failure(), ContainsSubstring(data.path(file.name).string()) &&
                                     ContainsSubstring("label 10 in row 2") && ContainsSubstring("0 to 9"));
    }
  }
}

TEST_CASE("images and labels of different count are an error that names both") {
  for (const bool gzip : {false, true}) {
    const DataFolder train(gzip);
    train.write("train-labels-idx1-ubyte", idx_bytes({4}, {0, 1, 2, 3}));
    CHECK_THAT(train.failure(),
               ContainsSubstring(train.path("train-images-idx3-ubyte").string() + " has 5 images") &&
                   ContainsSubstring(train.path("train-labels-idx1-ubyte").string() + " has 4 labels"));
    const DataFolder test(gzip);
    test.write("t10k-images-idx3-ubyte", idx_bytes({4, 28, 28}, pixels(4, 0)));
    CHECK_THAT(test.failure(),
               ContainsSubstring(test.path("t10k-images-idx3-ubyte").string() + " has 4 images") &&
                   ContainsSubstring(test.path("t10k-labels-idx1-ubyte").string() + " has 3 labels"));
  }
}

TEST_CASE("images of another size, and labels in the place of images, are errors") {
  const DataFolder data(/*gzip=*/true);
  const std::string name = small_set()[kTestImages].name;
  data.write(name, idx_bytes({kTestRows, 32, 32}, Bytes(kTestRows * 32 * 32)));
  CHECK_THAT(data.failure(), ContainsSubstring("32 as dimension 2, 28 was expected"));
  data.write(name, small_set()[kTestLabels].bytes);
  CHECK_THAT(data.failure(), ContainsSubstring("1 dimensions, 3 were expected"));
}

TEST_CASE("a missing file or folder is an error that names it") {
  for (const File& file : small_set()) {
    const DataFolder data(/*gzip=*/true);
    std::filesystem::remove(data.path(file.name));
    CHECK_THAT(data.failure(), ContainsSubstring(data.folder().string()) && ContainsSubstring(file.name));
    CHECK_THROWS_AS(verify_fashion_mnist(data.folder()), DataError);
    std::filesystem::create_directory(data.path(file.name));
    CHECK_THAT(data.failure(),
               ContainsSubstring(data.path(file.name).string()) && ContainsSubstring("not a regular file"));
  }
  const DataFolder data(/*gzip=*/false);
  for (const auto& folder : {data.folder() / "nowhere", data.path("t10k-labels-idx1-ubyte")}) {
    CHECK_THROWS_AS(load_fashion_mnist(folder), DataError);
    CHECK_THROWS_WITH(load_fashion_mnist(folder),
                      ContainsSubstring(folder.string()) && ContainsSubstring("does not exist"));
  }
}

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

TEST_CASE("Debian's files are the published ones, and have the rows that Python reads") {
  if (!std::filesystem::is_directory(kDebianFashionMnist))
    SKIP_CASE("dataset-fashion-mnist is not installed");
  for (const FileCheck& check : verify_fashion_mnist(kDebianFashionMnist)) {
    INFO(check.path);
    CHECK(check.sha256 == check.expected);
  }
  const Dataset data = load_fashion_mnist(kDebianFashionMnist);
  const auto reference =
      nlohmann::json::parse(std::ifstream(LOCKSTEP_REFERENCE_DIR "/fashion_first_rows.json"));
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
