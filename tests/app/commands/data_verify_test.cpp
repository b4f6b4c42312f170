// `lockstep data verify` as the built program runs it.
#include <lockstep/tests/catch.h>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <lockstep/tests/data/idx_bytes.h>
#include <lockstep/tests/data/images/image_tree.h>
#include <lockstep/tests/skip.h>
#include <lockstep/tests/support/process.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

namespace {

constexpr const char* kDebianFolder = "/usr/share/datasets/fashion-mnist";

ProcessResult verify(std::vector<std::string> flags, std::map<std::string, std::string> environment = {}) {
  Process process;
  process.command = {LOCKSTEP_PROGRAM, "data", "verify"};
  process.command.insert(process.command.end(), flags.begin(), flags.end());
  process.environment = std::move(environment);
  return run_process(process);
}

// Writes readable files of one row each, which are not the published ones.
void write_small_set(const TempFolder& folder) {
  for (const std::string set : {"train", "t10k"}) {
    write_bytes(folder / (set + "-images-idx3-ubyte"), idx_bytes({1, 28, 28}, Bytes(784)));
    write_bytes(folder / (set + "-labels-idx1-ubyte"), idx_bytes({1}, {7}));
  }
}

}  // namespace

TEST_CASE("data verify finds Debian's files as published, with the digests that sha256sum prints") {
  if (!std::filesystem::is_directory(kDebianFolder)) SKIP_CASE("dataset-fashion-mnist is not installed");
  for (const auto& result :
       {verify({}), verify({"--data", kDebianFolder}), verify({}, {{"LOCKSTEP_DATA", kDebianFolder}})}) {
    CHECK(result.exit_code == 0);
    CHECK(result.err.empty());
    // zcat FILE | sha256sum
    CHECK_THAT(result.out,
               ContainsSubstring("train-images-idx3-ubyte.gz  "
                                 "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888  OK\n"));
    CHECK_THAT(result.out,
               ContainsSubstring("train-labels-idx1-ubyte.gz  "
                                 "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9  OK\n"));
    CHECK_THAT(result.out,
               ContainsSubstring("t10k-images-idx3-ubyte.gz   "
                                 "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b  OK\n"));
    CHECK_THAT(result.out,
               ContainsSubstring("t10k-labels-idx1-ubyte.gz   "
                                 "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34  OK\n"));
    CHECK_THAT(result.out, EndsWith("all 4 files are Fashion-MNIST as published\n"));
  }
}

TEST_CASE("data verify prints its table and ends with code 3 if a file differs") {
  const TempFolder folder;
  write_small_set(folder);
  const auto result = verify({"--data", folder.path().string()});
  CHECK(result.exit_code == 3);
  // Python: hashlib.sha256(bytes([0, 0, 8, 1, 0, 0, 0, 1, 7])).hexdigest()
  CHECK_THAT(result.out, ContainsSubstring(
                             "train-labels-idx1-ubyte  "
                             "c564aa0aa783b8862ae6128a973a6f6b213b9428d39b5c8acfbda3c630d40f1e  DIFFERS\n"));
  CHECK_THAT(result.out, ContainsSubstring(
                             "t10k-labels-idx1-ubyte   "
                             "c564aa0aa783b8862ae6128a973a6f6b213b9428d39b5c8acfbda3c630d40f1e  DIFFERS\n"));
  CHECK_THAT(result.out, !ContainsSubstring("OK") && !ContainsSubstring("as published"));
  CHECK_THAT(result.err,
             ContainsSubstring("4 of 4 files are not as published") && ContainsSubstring("hint:"));
  CHECK_THAT(result.err, ContainsSubstring((folder / "t10k-images-idx3-ubyte").string()));
}

TEST_CASE("data verify ends with code 3 and prints no table if a file is damaged or missing") {
  const TempFolder folder;
  write_small_set(folder);
  const auto labels = folder / "t10k-labels-idx1-ubyte";
  write_bytes(labels, idx_bytes({2}, {7}));
  const auto damaged = verify({}, {{"LOCKSTEP_DATA", folder.path().string()}});
  CHECK(damaged.exit_code == 3);
  CHECK(damaged.out.empty());
  CHECK_THAT(damaged.err, ContainsSubstring(labels.string()) && ContainsSubstring("truncated") &&
                              ContainsSubstring("hint:"));

  std::filesystem::remove(labels);
  const auto missing = verify({"--data", folder.path().string()}, {{"LOCKSTEP_DATA", kDebianFolder}});
  CHECK(missing.exit_code == 3);
  CHECK(missing.out.empty());
  CHECK_THAT(missing.err, ContainsSubstring(folder.path().string() + " has neither t10k-labels-idx1-ubyte") &&
                              ContainsSubstring("hint:"));
}

TEST_CASE("data verify refuses other data by their kind, and names the command that looks at them") {
  const ImageTree tree = {"train/cat/1.png", "test/cat/1.png"};
  const auto folder = tree.path().string();
  const auto result = verify({"--data", folder});
  CHECK(result.exit_code == 2);
  CHECK_THAT(result.err, ContainsSubstring("'" + folder + "' holds image folder data") &&
                             ContainsSubstring("'lockstep data show " + folder + "'"));
}

TEST_CASE("data verify refuses synthetic data") {
  const auto result = verify({"--data", "synthetic"});
  CHECK(result.exit_code == 2);
  CHECK_THAT(result.err, ContainsSubstring("synthetic data has no files"));
}
