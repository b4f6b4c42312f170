// Suggestions for misspelt names, and the flags in a library's hints.
#include <lockstep/tests/catch.h>
#include <string>
#include <vector>

#include <lockstep/app/cli/help/flag_words.h>
#include <lockstep/app/cli/help/suggest.h>

using namespace lockstep;

TEST_CASE("a library's hints name the program's flags") {
  CHECK(with_flags("use CudaGraph::kAuto or CudaGraph::kOff") == "use --cuda-graph auto or --cuda-graph off");
  CHECK(with_flags("use allreduce gloo, or Compress::kNone") == "use --allreduce gloo, or --compress none");
  CHECK(with_flags("use allreduce two_shot, or list each GPU once") ==
        "use --allreduce two_shot, or list each GPU once");
  CHECK(with_flags("use the device list cpu, or cpux2") == "use --devices cpu, or cpux2");
  CHECK(with_flags("choose another name, or replace it with overwrite = true") ==
        "choose another name, or replace it with --overwrite");
  CHECK(with_flags("use batch size 64, or use a smaller batch size") ==
        "use --batch-size 64, or use a smaller --batch-size");
  CHECK(with_flags("give each process the address on which it is to listen") ==
        "give each process --listen ADDRESS, with the address that others reach");
  CHECK(with_flags("use --allreduce ring").size() == 20);  // it stays as it is
  CHECK(with_flags("").empty());
}

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

TEST_CASE("a quoted word cannot disturb the terminal") {
  CHECK(in_quotes("plain") == "'plain'");
  CHECK(in_quotes("\x1b[31mred\n") == "'?[31mred?'");
  CHECK(in_quotes("gr\xc3\xbc\xc3\x9f") == "'gr\xc3\xbc\xc3\x9f'");
}

TEST_CASE("a character that nobody sees is shown by its number") {
  CHECK(in_quotes("batch\u00a0size") == "'batch<U+00A0>size'");
  CHECK(in_quotes("\ufeff[train]") == "'<U+FEFF>[train]'");
  CHECK(printable("a\u200b\u2028\u3000b\u009b") == "a<U+200B><U+2028><U+3000>b<U+009B>");
  CHECK(printable("\U000e0001") == "<U+E0001>");
  const std::string seen = "\u00a1gr\u00fc\u00df\u20ac\U0001f600\u3001";
  CHECK(printable(seen) == seen);
  // No UTF-8: a byte alone, one that goes on, one that begins and ends the text, and five bytes.
  for (const std::string bytes : {"\xa0x", "\xc2", "\xe2\x80", "\xc2 ", "\xf8\x88\x80\x80\x80"}) {
    CHECK(printable(bytes) == bytes);
  }
}

TEST_CASE("a message shows both ends of a long value") {
  const std::string a(50, 'a'), b(50, 'b');
  CHECK(in_quotes(a + b) == "'" + a + b + "'");
  CHECK(in_quotes(a + "c" + b) == "'" + a + "..." + b + "'");
  CHECK(shortened("got " + a + std::string(100'000, ' ') + "\n" + b).size() == 2003);
  CHECK(shortened("got '" + std::string(100'000, 'a') + "' for --lr") ==
        "got '" + a.substr(1) + "..." + a.substr(1) + "' for --lr");
  CHECK(shortened("one, " + a + b + "\n" + b) == "one, " + a + b + "\n" + b);
  CHECK(shortened("").empty());
  // 35 characters of three bytes: 50 bytes are sixteen of them and a part.
  std::string euros, sixteen;
  for (int i = 0; i < 35; ++i) euros += "\u20ac";
  for (int i = 0; i < 16; ++i) sixteen += "\u20ac";
  CHECK(shortened(euros) == sixteen + "..." + sixteen);
}
