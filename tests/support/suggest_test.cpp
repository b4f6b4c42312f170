// Suggestions for misspelt names.
#include <lockstep/tests/catch.h>
#include <string>
#include <vector>

#include <lockstep/support/suggest.h>

using namespace lockstep;

TEST_CASE("edit distance counts insertions, deletions, replacements and swaps") {
  // Worked out by hand; "ca" to "abc" is 3 where no character is edited twice, 2 where that is allowed.
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("epoch", "epochs") == 1);
  CHECK(edit_distance("trian", "train") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("ca", "abc") == 3);
  CHECK(edit_distance("batch", "btach") == 1);
}

TEST_CASE("the nearest name") {
  const std::vector<std::string> flags{"--epochs", "--batch-size", "--lr",
                                       "--seed",   "--devices",    "--threads"};
  CHECK(nearest("--epoch", flags) == "--epochs");
  CHECK(nearest("--btach-size", flags) == "--batch-size");
  CHECK(nearest("--batch_size", flags) == "--batch-size");
  CHECK(nearest("--Devices", flags) == "--devices");
  CHECK(nearest("-seed", flags) == "--seed");
  CHECK(nearest("--lt", flags) == "--lr");
  CHECK(nearest("--dev", flags) == "--devices");  // the only one with this beginning
}

TEST_CASE("the only name with this beginning comes before nearer ones") {
  const std::vector<std::string> models{"lenet", "resnet18"};
  CHECK(nearest("resnet", models) == "resnet18");  // "lenet" is two edits away, too
  CHECK(nearest("len", models) == "lenet");
  const std::vector<std::string> recipes{"lenet-scratch", "resnet18-pytorch", "resnet18-gluon"};
  CHECK_FALSE(nearest("resnet18", recipes));
  CHECK(completions("resnet18", recipes) == std::vector<std::string>{"resnet18-pytorch", "resnet18-gluon"});
  CHECK(completions("re", recipes).empty());
}

TEST_CASE("no name is suggested when none is near") {
  const std::vector<std::string> flags{"--epochs", "--lr", "--limit-train", "--limit-steps"};
  CHECK_FALSE(nearest("--learning-rate", flags));
  CHECK_FALSE(nearest("--x", flags));
  CHECK_FALSE(nearest("--limit", flags));  // two have this beginning
  CHECK_FALSE(nearest("", flags));
  CHECK_FALSE(nearest("--", flags));
  CHECK_FALSE(nearest(std::string(10'000, 'e'), flags));
  CHECK_FALSE(nearest("--epochs", {}));
}
