#include <cstdlib>
#include <string>

#include <lockstep/tests/catch.h>

#include <lockstep/data/data_folder.h>
#include <lockstep/data/fashion_mnist.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;

namespace {

// Sets LOCKSTEP_DATA while it exists; null unsets it.
class DataVariable {
 public:
  explicit DataVariable(const char* value) {
    if (const char* before = std::getenv(kName)) before_ = before;
    set(value);
  }
  ~DataVariable() { set(before_ ? before_->c_str() : nullptr); }
  DataVariable(const DataVariable&) = delete;
  DataVariable& operator=(const DataVariable&) = delete;

 private:
  static constexpr const char* kName = "LOCKSTEP_DATA";

  static void set(const char* value) { value ? setenv(kName, value, 1) : unsetenv(kName); }

  std::optional<std::string> before_;
};

}  // namespace

TEST_CASE("the data folder is the given one, whatever the variable says") {
  for (const char* value : {"/of/variable", static_cast<const char*>(nullptr)}) {
    const DataVariable variable(value);
    CHECK(data_folder("/given") == "/given");
    CHECK(data_folder("").empty());
    CHECK(data_folder("synthetic") == "synthetic");
  }
}

TEST_CASE("data sets that need no files have names, which flags and completions offer") {
  REQUIRE(known_data_names().front() == "synthetic");
  CHECK(known_data_words().starts_with("'synthetic'"));
  for (const auto& name : known_data_names()) CHECK(is_known_data(name));
  CHECK_FALSE(is_known_data("/usr/share/datasets/fashion-mnist"));
  CHECK_FALSE(is_known_data(""));
}

TEST_CASE("without a given folder the data folder is that of LOCKSTEP_DATA") {
  const DataVariable variable(GENERATE("/of/variable", "synthetic"));
  CHECK(data_folder(std::nullopt) == std::getenv("LOCKSTEP_DATA"));
}

TEST_CASE("without a folder and with an empty or no variable the data folder is Debian's") {
  for (const char* value : {"", static_cast<const char*>(nullptr)}) {
    const DataVariable variable(value);
    CHECK(data_folder(std::nullopt) == kDebianFashionMnist);
  }
}

TEST_CASE("a file by its name: .safetensors, unless it is a folder") {
  const lockstep::testing::TempFolder folder;
  std::filesystem::create_directory(folder / "folder.safetensors");
  CHECK(is_tensor_file("missing.safetensors"));
  CHECK_FALSE(is_tensor_file(folder / "folder.safetensors"));
  CHECK_FALSE(is_tensor_file("set.npz"));
  CHECK_FALSE(is_tensor_file("safetensors"));
  CHECK_FALSE(is_tensor_file("synthetic"));
}
