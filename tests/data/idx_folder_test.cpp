#include <torch/types.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/data/fashion_mnist.h>
#include <lockstep/data/idx_folder.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/data/data_files.h>
#include <lockstep/tests/skip.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/in_folder.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

Bytes bytes_of(const torch::Tensor& tensor) {
  const auto* data = tensor.const_data_ptr<uint8_t>();
  return {data, data + tensor.numel()};
}

// Writes the small set into a folder below, with this between "images" and "idx3", and this ending.
void write_set(const std::filesystem::path& folder, const std::string& joint = "-",
               const std::string& ending = "") {
  std::filesystem::create_directories(folder);
  for (const DataFile& file : small_set()) {
    auto name = file.name;
    name.replace(name.find("-idx"), 1, joint);
    write_bytes(folder / (name + ending), ending.empty() ? file.bytes : gzipped(file.bytes));
  }
}

// The error and the hint.
std::string refusal(const std::filesystem::path& folder) {
  return refusal_and_hint<DataError>([&] { load_idx_folder(folder); });
}

}  // namespace

namespace {

// Calls the task with each of the four files, plain and gzipped, in a folder of its own.
void for_each_file(const std::function<void(const DataFolder&, const DataFile&)>& task) {
  for (const bool gzip : {false, true}) {
    for (const DataFile& file : small_set()) task(DataFolder(gzip), file);
  }
}

}  // namespace

TEST_CASE("load_idx_folder reads plain and gzipped files") {
  for (const bool gzip : {false, true}) {
    const Dataset data = load_idx_folder(DataFolder(gzip).folder());
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
  for (const DataFile& file : small_set()) write_bytes(data.folder() / (file.name + ".gz"), {'b', 'a', 'd'});
  CHECK(load_idx_folder(data.folder()).train.size() == kTrainRows);
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
  for_each_file([](const DataFolder& data, const DataFile& file) {
    const Bytes whole = data.gzip() ? gzipped(file.bytes) : file.bytes;
    for (size_t tenth = 0; tenth < 10; ++tenth) {
      const size_t size = whole.size() * tenth / 10;
      INFO(data.path(file.name) << " cut to " << size << " of " << whole.size() << " bytes");
      data.write_stored(file.name, {whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)});
      CHECK_THAT(data.failure(), ContainsSubstring(data.path(file.name).string()));
    }
  });
}

TEST_CASE("each of the four files with one wrong field is an error that names it") {
  for_each_file([](const DataFolder& data, const DataFile& file) {
    const size_t header = 4 + 4 * size_t{file.bytes[3]};
    for (size_t at = 0; at < header; ++at) {  // every byte of the magic number and of the dimensions
      INFO(data.path(file.name) << ", byte " << at);
      Bytes wrong = file.bytes;
      wrong[at] ^= 0x04;
      data.write(file.name, wrong);
      CHECK_THAT(data.failure(), ContainsSubstring(data.path(file.name).string()));
    }
  });
}

TEST_CASE("each of the four files with trailing bytes or a wrong checksum is an error that names it") {
  for_each_file([](const DataFolder& data, const DataFile& file) {
    INFO(data.path(file.name));
    Bytes stored = data.gzip() ? gzipped(file.bytes) : file.bytes;
    stored.push_back(0);
    data.write_stored(file.name, stored);
    CHECK_THAT(data.failure(), ContainsSubstring(data.path(file.name).string()));
    if (!data.gzip()) return;
    stored.pop_back();
    stored[stored.size() - 8] ^= 1;  // of the CRC-32
    data.write_stored(file.name, stored);
    CHECK_THAT(data.failure(),
               ContainsSubstring(data.path(file.name).string()) && ContainsSubstring("incorrect data check"));
  });
}

TEST_CASE("a label that has no name is an error that names its row") {
  for (const bool gzip : {false, true}) {
    for (const size_t labels : {kTrainLabels, kTestLabels}) {
      const DataFolder data(gzip);
      write_file(data.folder() / "classes.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n");
      CHECK(load_idx_folder(data.folder()).class_names.back() == "j");
      DataFile file = small_set()[labels];
      file.bytes[8 + 2] = 10;
      data.write(file.name, file.bytes);
      CHECK_THAT(data.failure(), ContainsSubstring(data.path(file.name).string()) &&
                                     ContainsSubstring("label 10 in row 2") && ContainsSubstring("0 to 9"));
    }
  }
}

TEST_CASE("classes without names have numbers up to the largest label") {
  const DataFolder data(/*gzip=*/false);
  data.write("t10k-labels-idx1-ubyte", idx_bytes({3}, {1, 200, 8}));
  const auto set = load_idx_folder(data.folder());
  CHECK(set.classes == 201);
  CHECK(set.class_names.size() == 201);
  CHECK(set.class_names.back() == "200");
  CHECK(set.kind == "IDX");
  REQUIRE(set.notices.size() == 2);
  CHECK_THAT(set.notices[1], ContainsSubstring("none for training, of class '1' and 2 more classes"));
}

TEST_CASE("images have any size, and channels where the files have four dimensions") {
  const DataFolder data(/*gzip=*/true);
  Bytes train(5 * 8 * 6), test(3 * 8 * 6);
  for (size_t i = 0; i < train.size(); ++i) train[i] = static_cast<uint8_t>(i);
  data.write("train-images-idx3-ubyte", idx_bytes({5, 8, 6}, train));
  data.write("t10k-images-idx3-ubyte", idx_bytes({3, 8, 6}, test));
  const auto grey = load_idx_folder(data.folder());
  CHECK((grey.train.shape() == ImageShape{1, 8, 6}));
  CHECK(bytes_of(grey.train.images) == train);
  for (const char* name : {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"}) {
    std::filesystem::remove(data.path(name));
  }
  data.write("train-images-idx4-ubyte", idx_bytes({5, 3, 4, 4}, train));
  data.write("t10k-images-idx4-ubyte", idx_bytes({3, 3, 4, 4}, test));
  const auto colour = load_idx_folder(data.folder());
  CHECK((colour.train.shape() == ImageShape{3, 4, 4}));
  CHECK(bytes_of(colour.train.images) == train);
  data.write("t10k-images-idx4-ubyte", idx_bytes({3, 4, 4, 3}, test));
  CHECK_THAT(data.failure(), ContainsSubstring("images of 3 x 4 x 4") && ContainsSubstring("4 x 4 x 3"));
}

TEST_CASE("EMNIST's splits are named by their prefix, and have their names of classes") {
  const TempFolder folder;
  const auto raw = folder / "EMNIST/raw";
  std::filesystem::create_directories(raw);
  const auto write_split = [&](const std::string& split) {
    for (DataFile file : small_set()) {
      if (file.name.starts_with("t10k")) file.name.replace(0, 4, "test");
      for (size_t i = 8; file.bytes[3] == 1 && i < file.bytes.size(); ++i) {
        if (file.bytes[i] == 0) file.bytes[i] = 26;
      }
      write_bytes(raw / ("emnist-" + split + "-" + file.name), file.bytes);
    }
  };
  write_split("letters");
  for (const char* named :
       {"", "EMNIST", "EMNIST/raw", "EMNIST/raw/emnist-letters", "EMNIST/emnist-letters"}) {
    INFO(named);
    const auto letters = load_idx_folder(folder / named);
    CHECK(letters.name == "emnist-letters");
    CHECK(letters.classes == 27);
    CHECK(letters.class_names[26] == "z");
    CHECK(bytes_of(letters.train.labels) == Bytes{9, 26, 3, 3, 7});
  }
  write_split("byclass");
  CHECK_THAT(refusal(raw), ContainsSubstring("several data sets: emnist-byclass, emnist-letters | ") &&
                               ContainsSubstring((raw / "emnist-byclass").string()));
  CHECK(load_idx_folder(raw / "emnist-byclass").classes == 62);
  CHECK_THAT(refusal(raw / "emnist-digits"), ContainsSubstring("does not exist"));
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

TEST_CASE("images of another size than for training, and labels in the place of images, are errors") {
  const DataFolder data(/*gzip=*/true);
  const std::string name = small_set()[kTestImages].name;
  data.write(name, idx_bytes({kTestRows, 32, 32}, Bytes(kTestRows * 32 * 32)));
  CHECK_THAT(data.failure(), ContainsSubstring("has images of 1 x 28 x 28, ") &&
                                 ContainsSubstring(data.path(name).string() + " of 1 x 32 x 32"));
  data.write(name, small_set()[kTestLabels].bytes);
  CHECK_THAT(data.failure(), ContainsSubstring("1 dimensions, 3 or 4 were expected"));
}

TEST_CASE("a missing file or folder is an error that names it") {
  for (const DataFile& file : small_set()) {
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
    CHECK_THROWS_AS(load_idx_folder(folder), DataError);
    CHECK_THROWS_WITH(load_idx_folder(folder),
                      ContainsSubstring(folder.string()) && ContainsSubstring("does not exist"));
  }
}

TEST_CASE("a data set is called by its folder, wherever below it the files lie and however they are called") {
  struct Case {
    const char *files, *named, *name;
  };
  for (const auto& [files, named, name] : std::vector<Case>{{"digits", "digits", "digits"},
                                                            {"digits", "digits/", "digits"},
                                                            {"digits", "digits/.", "digits"},
                                                            {"MNIST/raw", "MNIST/raw", "MNIST"},
                                                            {"MNIST/raw", "MNIST", "MNIST"},
                                                            {"MNIST/raw", ".", "MNIST"},
                                                            {"FashionMNIST/raw", "", "FashionMNIST"}}) {
    for (const std::string joint : {"-", "."}) {
      for (const std::string ending : {"", ".gz"}) {
        INFO(files << " " << named << " " << joint << " " << ending);
        const TempFolder folder;
        write_set(folder / files, joint, ending);
        std::filesystem::create_directories(folder / "MNIST" / "processed");
        const Dataset data = load_idx_folder(folder / named);
        CHECK(data.name == name);
        CHECK(bytes_of(data.train.labels) == Bytes{9, 0, 3, 3, 7});
        CHECK(find_idx_files(folder / named).test_labels.filename() ==
              "t10k-labels" + joint + "idx1-ubyte" + ending);
      }
    }
  }
}

TEST_CASE("the folder in which a program runs has a name, too") {
  const TempFolder folder;
  write_set(folder / "letters");
  const InFolder in(folder / "letters");
  CHECK(load_idx_folder(".").name == "letters");
}

TEST_CASE(
    "several data sets below a folder are an error that names them, and the folder's own files come first") {
  const TempFolder folder;
  write_set(folder / "MNIST/raw");
  write_set(folder / "FashionMNIST/raw");
  CHECK_THAT(refusal(folder.path()), ContainsSubstring((folder / "FashionMNIST/raw").string() + " and " +
                                                       (folder / "MNIST/raw").string()) &&
                                         ContainsSubstring(" | name one of them"));
  write_set(folder.path());
  CHECK(load_idx_folder(folder.path()).name == folder.path().filename());
}

TEST_CASE("the hint fits what a folder holds") {
  struct Case {
    const char *file, *what, *hint;
  };
  for (const auto& [file, what, hint] : std::vector<Case>{
           {"train/cat/1.png", "holds images such as train/cat/1.png, and none of the", "class folders"},
           {"7.JPEG", "holds images such as 7.JPEG, and none of the four IDX", "class folders"},
           {"cifar-10-batches-bin/data_batch_1.bin", "holds CIFAR's cifar-10-batches-bin", "binary form"},
           {"data_batch_1", "holds CIFAR's data_batch_1, and none of the four IDX files", "binary form"},
           {"raw/my-idx3-ubyte", "holds raw/my-idx3-ubyte, which is none of the names", "rename them"},
           {"mnist.npz", "holds mnist.npz, and none of the four IDX files", "safetensors"},
           {"data/train-0.PARQUET", "holds data/train-0.PARQUET, and none of", "safetensors"},
           {"train-labels.idx1-ubyte.zip", "holds train-labels.idx1-ubyte.zip, which is none of the names",
            "rename them"},
           {"readme.txt", "holds no train-images-idx3-ubyte and none of the other", "name the folder"}}) {
    INFO(file);
    const TempFolder folder;
    std::filesystem::create_directories((folder / file).parent_path());
    write_bytes(folder / file, {'x'});
    CHECK_THAT(refusal(folder.path()), ContainsSubstring(folder.path().string() + " " + what) &&
                                           ContainsSubstring(hint) && !ContainsSubstring("apt-get"));
  }
  const TempFolder folder;
  CHECK_THAT(refusal(folder / "none"), ContainsSubstring("does not exist") && !ContainsSubstring("apt-get"));
  const TempFolder three;
  write_set(three.path());
  std::filesystem::remove(three / "t10k-labels-idx1-ubyte");
  CHECK_THAT(
      refusal(three.path()),
      ContainsSubstring(" | a data set is four files: train-images-idx3-ubyte, train-labels-idx1-ubyte, "));
}

TEST_CASE("the hint for files of other values is not to install others") {
  const TempFolder folder;
  const std::tuple<const char*, Bytes, const char*> cases[] = {
      {"t10k-images-idx3-ubyte", idx_bytes({3, 28, 28, 3}, Bytes(9 * 784)), "transpose(0, 3, 1, 2)"},
      {"t10k-images-idx3-ubyte", idx_bytes({3, 5, 28, 28}, Bytes(15 * 784)), "1 to 4 channels"},
      {"t10k-images-idx3-ubyte", idx_bytes({3, 0, 28}, {}), "convert the files"},
      {"t10k-images-idx3-ubyte", {0}, "whole copy"}};  // a damaged one
  for (const auto& [name, bytes, hint] : cases) {
    write_set(folder.path());
    write_bytes(folder / name, bytes);
    CHECK_THAT(refusal(folder.path()), ContainsSubstring(hint) && !ContainsSubstring("apt-get"));
  }
}
