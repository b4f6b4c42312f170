#include <lockstep/tests/catch.h>
#include <string>
#include <vector>

#include <lockstep/data/data_kind.h>
#include <lockstep/data/idx_names.h>
#include <lockstep/tests/data/images/image_tree.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("a path is of the kind that its names say") {
  struct Case {
    std::vector<std::string> files;
    const char* named;
    DataKind kind;
  };
  for (const auto& [files, named, kind] :
       std::vector<Case>{{{"set.safetensors"}, "set.safetensors", DataKind::kTensorFile},
                         {{}, "missing.safetensors", DataKind::kTensorFile},
                         {{"train-images-idx3-ubyte"}, "", DataKind::kIdx},
                         {{"t10k-labels.idx1-ubyte.gz"}, "", DataKind::kIdx},
                         {{"KMNIST/raw/train-images-idx3-ubyte"}, "", DataKind::kIdx},
                         {{"raw/emnist-letters-test-labels-idx1-ubyte"}, "", DataKind::kIdx},
                         {{"emnist-letters-test-labels-idx1-ubyte"}, "emnist-letters", DataKind::kIdx},
                         {{"train-images-idx4-ubyte"}, "", DataKind::kIdx},
                         {{"data_batch_1.bin"}, "", DataKind::kCifar10},
                         {{"cifar-10-batches-bin/test_batch.bin"}, "", DataKind::kCifar10},
                         {{"cifar-100-binary/train.bin"}, "", DataKind::kCifar100},
                         {{"cifar-100-binary/train.bin"}, "cifar-100-binary", DataKind::kCifar100},
                         {{"mine/train.bin", "mine/fine_label_names.txt"}, "mine", DataKind::kCifar100},
                         {{"cat/1.png", "dog/1.png"}, "", DataKind::kImageFolder},
                         {{"train/cat/1.JPG", "test/cat/1.png"}, "", DataKind::kImageFolder},
                         {{"train/n01/images/1.jpeg"}, "", DataKind::kImageFolder},
                         {{"cat/1.bmp"}, "", DataKind::kImageFolder}}) {
    ImageTree tree;
    for (const auto& file : files) tree.add(file);
    INFO((files.empty() ? named : files[0]));
    CHECK(to_string(kind_of(tree.path() / named)) == to_string(kind));
  }
}

TEST_CASE("another path is an error that says what was looked for and what is there") {
  struct Case {
    std::vector<std::string> files;
    const char *named, *words, *hint;
  };
  for (const auto& [files, named, words, hint] : std::vector<Case>{
           {{}, "none", "none does not exist", "four IDX files"},
           {{}, "", "holds nothing, and no data set: IDX files, CIFAR's .bin files and class folders", "IDX"},
           {{"a", "b", "c", "d", "e"}, "", "holds a, b, c and 2 more, and no data set", "four IDX files"},
           {{"1.png"}, "", "holds images such as 1.png", "test/CLASS/IMAGE.png"},
           {{"data_batch_1"}, "", "holds CIFAR's data_batch_1", "cifar-10-binary.tar.gz"},
           {{"train.bin"}, "", "holds train.bin", "four IDX files"},
           {{"mnist.npz"}, "", "holds mnist.npz", "safetensors"},
           {{"mnist.npz"}, "mnist.npz", "mnist.npz is a file, and its name does not end", "save_file({"},
           {{"photos.ZIP"}, "photos.ZIP", "photos.ZIP is a file", "unpack it, and name the folder"},
           {{"a.bin"}, "a.bin", "a.bin is a file, and its name does not end", "four IDX files"},
           {{"my-idx3-ubyte"}, "", "my-idx3-ubyte, which is none of the names", "rename"}}) {
    ImageTree tree;
    for (const auto& file : files) tree.add(file);
    INFO(words);
    CHECK_THAT(refusal_and_hint<DataError>([&, named = named] { kind_of(tree.path() / named); }),
               ContainsSubstring(words) && ContainsSubstring(hint));
  }
}

TEST_CASE("the name of an IDX file says its set, its half and what it holds") {
  struct Case {
    const char *name, *prefix;
    size_t file;
    int order;
  };
  for (const auto& [name, prefix, file, order] :
       std::vector<Case>{{"train-images-idx3-ubyte", "", 0, 0},
                         {"train-images-idx4-ubyte", "", 0, 1},
                         {"train-labels.idx1-ubyte.gz", "", 1, 12},
                         {"test-images-idx3-ubyte", "", 2, 2},
                         {"emnist-byclass-test-labels-idx1-ubyte", "emnist-byclass", 3, 2}}) {
    INFO(name);
    const auto found = parse_idx_name(name);
    REQUIRE(found.has_value());
    CHECK(found->prefix == prefix);
    CHECK(found->file == file);
    CHECK(found->order == order);
  }
  for (const char* name : {"train-images-idx1-ubyte", "train-labels-idx3-ubyte", "mytrain-images-idx3-ubyte",
                           "images-idx3-ubyte", "train-images-idx3-ubyte.zip", "train_images-idx3-ubyte",
                           "train-images-idx2-ubyte", "", ".gz"}) {
    INFO(name);
    CHECK_FALSE(parse_idx_name(name).has_value());
  }
}
