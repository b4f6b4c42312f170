// Suggestions for misspelt names, the curve of a run, and the text of `lockstep devices`.
#include <lockstep/tests/catch.h>
#include <limits>
#include <string>
#include <vector>

#include <lockstep/app/cli/help/flag_words.h>
#include <lockstep/app/cli/help/suggest.h>
#include <lockstep/app/devices.h>
#include <lockstep/app/train/progress/curve.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

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

TEST_CASE("the curve in plain characters") {
  // Drawn by hand: 13 columns by 5 rows, an epoch every 3 columns, 1.0 at the top and 0.0 at the bottom.
  const std::vector<double> accuracy{0, 1, 1, .5};
  CHECK(draw_curve(accuracy, 5, 34, 5, false) ==
        "test acc 1.0 +   ****\n"
        "             |  *    **\n"
        "         0.5 +  *      o\n"
        "             | *\n"
        "         0.0 +*\n"
        "             ++--+--+--+--+\n"
        "              1  2  3  4  5  epoch\n");
}

TEST_CASE("the curve in braille dots") {
  // U+28C0 has the two lowest of the eight dots, U+2840 the lower left one alone.
  const auto picture = [](const std::string& line) {
    return "test acc 1.02 \u2524\n         1.00 \u2524" + line + "\n              \u2514";
  };
  CHECK_THAT(draw_curve(std::vector{1., 1.}, 2, 32, 2, true),
             StartsWith(picture("\u28c0\u28c0\u28c0\u28c0\u28c0\u28c0\u28c0\u28c0\u28c0\u25cf")));
  // NaN leaves a gap.
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THAT(draw_curve(std::vector{1., kNan, 1.}, 3, 32, 2, true),
             StartsWith(picture("\u2840        \u25cf")));
}

TEST_CASE("a curve keeps to its width and has no trailing blanks") {
  std::vector<double> accuracy;
  for (const int epochs : {1, 2, 10, 99, 1000}) {
    accuracy.assign(static_cast<size_t>(epochs), .5);
    accuracy.back() = .8;
    for (const int width : {40, 64, 120}) {
      const auto text = draw_curve(accuracy, epochs, width, 9, false);
      CAPTURE(epochs, width, text);
      size_t lines = 0;
      for (size_t begin = 0; begin < text.size(); ++lines) {
        const auto end = text.find('\n', begin);
        CHECK(end - begin <= static_cast<size_t>(width));
        CHECK(text[end - 1] != ' ');
        begin = end + 1;
      }
      CHECK(lines == 11);
    }
  }
}

TEST_CASE("nothing to draw") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  CHECK(draw_curve({}, 10, 64, 9, true).empty());
  CHECK(draw_curve(std::vector{kNan, kNan}, 10, 64, 9, true).empty());
}

TEST_CASE("lockstep devices: a machine without a GPU") {
  Machine machine;
  machine.cpu = "Fast 9000";
  machine.cores = 8;
  machine.instructions = "AVX512";
  machine.total_bytes = int64_t{32} << 30;
  machine.available_bytes = int64_t{24} << 30;
  machine.gpu_problem = "no NVIDIA driver is installed";
  machine.libraries = {{"LibTorch", "2.11.0"}};
  const auto text = describe(machine);
  CHECK_THAT(text, ContainsSubstring("Fast 9000") &&
                       ContainsSubstring("8 cores, AVX512, 32.0 GiB memory (24.0 GiB free)"));
  CHECK_THAT(text, ContainsSubstring("no GPU: no NVIDIA driver is installed"));
  CHECK_THAT(text, ContainsSubstring("one replica on the CPU, 8 threads"));
  CHECK_THAT(text, ContainsSubstring("two replicas on the CPU, 4 threads each"));
  CHECK_THAT(text, ContainsSubstring("LibTorch        2.11.0"));
  CHECK(
      to_json(machine) ==
      nlohmann::ordered_json::parse(
          R"({"cpu": {"name": "Fast 9000", "cores": 8, "instructions": "AVX512", "memory_bytes": 34359738368,
                        "free_bytes": 25769803776},
                "gpus": [], "gpu_problem": "no NVIDIA driver is installed", "versions": {"LibTorch": "2.11.0"}})"));
}

TEST_CASE("lockstep devices: a machine with GPUs") {
  Machine machine;
  const CudaDevice gpu{.name = "Big GPU",
                       .capability_major = 9,
                       .capability_minor = 0,
                       .total_bytes = uint64_t{80} << 30,
                       .free_bytes = uint64_t{79} << 30,
                       .multiprocessors = 132};
  machine.gpus = {gpu, gpu};
  const auto text = describe(machine);
  CHECK_THAT(text, ContainsSubstring("1 core,"));
  CHECK_THAT(text, ContainsSubstring("cuda:1  Big GPU"));
  CHECK_THAT(text, ContainsSubstring(
                       "132 multiprocessors, compute capability 9.0, 80.0 GiB memory (79.0 GiB free)"));
  CHECK_THAT(text, ContainsSubstring("cuda:0,cuda:1") && !ContainsSubstring("no GPU"));
  const auto json = to_json(machine);
  CHECK(json.at("gpu_problem").is_null());
  REQUIRE(json.at("gpus").size() == 2);
  CHECK(json.at("gpus").at(1) == nlohmann::ordered_json{{"device", "cuda:1"},
                                                        {"name", "Big GPU"},
                                                        {"capability", "9.0"},
                                                        {"multiprocessors", 132},
                                                        {"memory_bytes", uint64_t{80} << 30},
                                                        {"free_bytes", uint64_t{79} << 30}});
}
