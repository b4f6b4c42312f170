#include <torch/types.h>

#include <lockstep/tests/catch.h>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/data/cifar_folder.h>
#include <lockstep/tests/data/cifar_bytes.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using Strings = std::vector<std::string>;

// Three images for training, in two batches, and one for testing.
void write_cifar10(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  write_file(folder / "data_batch_1.bin", cifar_record(1, 10, 1) + cifar_record(0, 20, 1));
  write_file(folder / "data_batch_2.bin", cifar_record(2, 30, 1));
  write_file(folder / "test_batch.bin", cifar_record(1, 40, 1));
  write_file(folder / "batches.meta.txt", "airplane\nautomobile\nbird\n\n");
}

}  // namespace

TEST_CASE("load_cifar reads CIFAR-10's batches one behind the other, with their names") {
  const TempFolder folder;
  write_cifar10(folder / "cifar-10-batches-bin");
  for (const char* named : {"", "cifar-10-batches-bin"}) {
    const auto data = load_cifar(folder / named);
    CHECK(data.kind == "CIFAR-10");
    CHECK(data.classes == 3);
    CHECK(data.class_names == Strings{"airplane", "automobile", "bird"});
    CHECK(data.train.images.sizes() == torch::IntArrayRef({3, 3, 32, 32}));
    CHECK(data.train.labels.equal(torch::tensor({1, 0, 2}, torch::kUInt8)));
    CHECK(data.test.labels.equal(torch::tensor({1}, torch::kUInt8)));
    // Channels, lines and columns, in this order: pixel (c, y, x) is the (1,024 c + 32 y + x)th.
    CHECK(data.train.images[2][1][2][3].item<int>() == (30 + 1024 + 64 + 3) % 256);
    CHECK(data.test.images[0][0][0][0].item<int>() == 40);
    CHECK(data.digest.size() == 64);
    CHECK(data.notices.empty());
  }
}

TEST_CASE("load_cifar reads CIFAR-100's fine labels") {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "cifar-100-binary");
  write_file(folder / "cifar-100-binary/train.bin", cifar_record(99, 1, 2) + cifar_record(5, 2, 2));
  write_file(folder / "cifar-100-binary/test.bin", cifar_record(5, 3, 2));
  const auto data = load_cifar(folder.path());
  CHECK(data.kind == "CIFAR-100");
  CHECK(data.classes == 100);
  CHECK(data.train.labels.equal(torch::tensor({99, 5}, torch::kUInt8)));
  CHECK(data.train.images[1][0][0][0].item<int>() == 2);
  REQUIRE_FALSE(data.notices.empty());
  CHECK_THAT(data.notices.back(), ContainsSubstring("has no fine_label_names.txt"));
}

TEST_CASE("a label of CIFAR without a name is an error with its file and row") {
  const TempFolder folder;
  write_cifar10(folder.path());
  write_file(folder / "data_batch_2.bin", cifar_record(3, 30, 1));
  CHECK(refusal_of<DataError>([&] { load_cifar(folder.path()); }) ==
        (folder / "data_batch_2.bin").string() + " has label 3 in row 0, labels are 0 to 2");
}

TEST_CASE("images that are in train and in test are found") {
  const TempFolder folder;
  write_cifar10(folder.path());
  CHECK(same_in_train_and_test(load_cifar(folder.path())).empty());
  write_file(folder / "test_batch.bin", cifar_record(2, 30, 1));
  CHECK(same_in_train_and_test(load_cifar(folder.path())) ==
        "1 image for testing is among those for training, too, such as row 0, which is row 2 there");
}
