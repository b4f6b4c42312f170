// Configuration files: their text, and how they set flags.
#include <lockstep/tests/catch.h>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <lockstep/app/train/config/config_file.h>
#include <lockstep/app/train/config/config_syntax.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/train_command.h>
#include <lockstep/tests/support/temp_folder.h>
#include <lockstep/tests/support/variable.h>

using namespace lockstep;
using lockstep::testing::parsed_flags;
using lockstep::testing::TempFolder;
using lockstep::testing::Variable;

namespace {

using Words = std::vector<std::string>;

// "key=value" of each setting, without a blank that the text has not.
Words settings_in(const std::string& text) {
  Words found;
  for (const auto& setting : parse_config(text, "c", "train")) {
    found.push_back(setting.key + "=" + setting.value);
  }
  return found;
}

// "error | hint"
template <class Code>
std::string usage_of(Code code) {
  try {
    code();
  } catch (const UsageError& error) {
    return error.message() + " | " + error.hint();
  }
  return "accepted";
}

std::string usage_of_text(const std::string& text) {
  return usage_of([&] { settings_in(text); });
}

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) { std::ofstream(path(), std::ios::binary) << text; }
  std::string path() const { return (folder_ / "c.toml").string(); }
  std::string shown() const { return "'" + path() + "'"; }

 private:
  TempFolder folder_;
};

// Returns the error of `train --config FILE` for a file with this text, with the file's name cut out.
std::string usage_of_file(const std::string& text) {
  const ConfigFile file(text);
  auto message = usage_of([&] { parsed_flags({"--config", file.path()}); });
  const auto at = message.find(file.shown());
  return at == std::string::npos ? message : message.replace(at, file.shown().size(), "FILE");
}

constexpr const char* kTrainHelp = "see 'lockstep train --help'";

}  // namespace

TEST_CASE("a configuration has keys and values, with or without quotes and comments") {
  CHECK(settings_in("").empty());
  CHECK(settings_in("# none\n\n   \t\r\n").empty());
  CHECK(settings_in("a=1") == Words{"a=1"});
  CHECK(settings_in("[train]\nbatch-size = 512\n  devices =\"cpux2\"  # two\r\n\tlr=.1#x\n") ==
        Words{"batch-size=512", "devices=cpux2", "lr=.1"});
  CHECK(settings_in(" [ train ] # all\na = cpu,cuda:0\nb = -1e-3\nc_D-4 = true") ==
        Words{"a=cpu,cuda:0", "b=-1e-3", "c_D-4=true"});
  CHECK(settings_in("a = '#1, \"x\" \\n [y] = '  # \"'\nb = \"it's # 2\"") ==
        Words{"a=#1, \"x\" \\n [y] = ", "b=it's # 2"});
  const auto setting = parse_config("\n\na = 1\n", "c", "train").at(0);
  CHECK(setting.line == 3);
}

TEST_CASE("lines that are no settings are refused, each with its number") {
  const std::string name = " | write the name of a flag: 'batch-size = 512'";
  CHECK(usage_of_text("a = 1\nquiet\n") ==
        "'c', line 2: 'quiet' is not 'key = value' | write a value, such as 'batch-size = 512'; a flag "
        "without one is 'overwrite = true'");
  CHECK(usage_of_text("a = 1\nb = 2\na = 1") ==
        "'c', line 3: 'a' is given again, after line 1 | keep one of them");
  CHECK(usage_of_text("a = 1\na = 1").starts_with("'c', line 2: 'a' is given again"));
  CHECK(usage_of_text("train.lr = 1") ==
        "'c', line 1: the key 'train.lr' has a dot, and there are no keys within keys" + name);
  CHECK(usage_of_text("= 1") == "'c', line 1: '' is not a key" + name);
  CHECK(usage_of_text("\"a\" = 1") == "'c', line 1: '\"a\"' is not a key" + name);
  for (const std::string empty : {"", "  # 1", "\"\"", "''"}) {
    CHECK(usage_of_text("a =" + empty) ==
          "'c', line 1: a needs a value after '=' | leave the line out for the default");
  }
  CHECK(usage_of_text("a = [1, 2]") ==
        "'c', line 1: a takes one value, not a list | write several values with commas: 'cpu,cpu'");
  CHECK(usage_of_text("a = {b = 1}").starts_with("'c', line 1: a takes one value, not a list"));
  for (const std::string bare : {"my data", "it's", "a\\b", "1 = 2", "`x`"}) {
    CHECK(usage_of_text("a = " + bare) == "'c', line 1: the value '" + bare + "' needs quotes around it | ");
  }
  for (const std::string open : {"\"", "\"x", "\"x\" y", "\"\"\"x\"\"\"", "'x'y'", "'x\""}) {
    INFO(open);
    CHECK(usage_of_text("a = " + open)
              .starts_with("'c', line 1: a value must end with the quote that it begins with"));
  }
  CHECK(usage_of_text("a = \"C:\\new\"") ==
        "'c', line 1: a value in double quotes has a backslash | use single quotes: every character counts "
        "as it is");
}

TEST_CASE("what only some versions of CLI11 would read as bytes or a list is refused") {
  for (const std::string value : {"'B\"(\\x41)\"'", "'[1, 2]'", "\"[x]\""}) {
    CHECK(usage_of_text("a = " + value) == "'c', line 1: a value may not begin with [ or B\"( | ");
  }
}

TEST_CASE("a byte order mark may come first, and no invisible character stays invisible") {
  CHECK(settings_in("\ufeff[train]\r\nlr = .1\r\n") == Words{"lr=.1"});
  CHECK(settings_in("\ufefflr = .1") == Words{"lr=.1"});
  CHECK(settings_in("\ufeff").empty());
  const std::string write = " | write the name of a flag: 'batch-size = 512'";
  CHECK(usage_of_text("\ufeff\ufefflr = .1") == "'c', line 1: '<U+FEFF>lr' is not a key" + write);
  CHECK(usage_of_text("lr = .1\n\u00a0epochs = 3") == "'c', line 2: '<U+00A0>epochs' is not a key" + write);
  CHECK(usage_of_text("batch-size\u200b = 3") == "'c', line 1: 'batch-size<U+200B>' is not a key" + write);
  CHECK(usage_of_text("\u00a0[train]").starts_with("'c', line 1: '<U+00A0>[train]' is not 'key = value'"));
  CHECK(usage_of_file("epochs = 3\u00a0\n") ==
        std::string("FILE, line 1: --epochs is not a whole number: '3<U+00A0>' | ") + kTrainHelp);
}

TEST_CASE("other sections, and what is no text, are refused") {
  const std::string hint = " | put all keys below [train], or below no section";
  for (const std::string section : {"[bench]", "[train.more]", "[[train]]", "[train", "[]"}) {
    CHECK(usage_of_text("a = 1\n" + section) == "'c', line 2: there is no section '" + section + "'" + hint);
  }
  CHECK(usage_of_text("[" + std::string(1'000'000, '.') + "]")
            .starts_with("'c', line 1: there is no section '"));
  for (const auto& bytes : {std::string("a = 1\0", 6), std::string("a = \x1b[1m"), std::string("\x7f")}) {
    CHECK(usage_of_text(bytes) == "'c' is not a text | a configuration has lines such as 'batch-size = 512'");
  }
}

TEST_CASE("a line holds every value that quotes can hold") {
  CHECK(config_line("lr", "0.1") == "lr = 0.1\n");
  CHECK(config_line("seed", "-1e-300") == "seed = -1e-300\n");
  CHECK(config_line("nesterov", "true") == "nesterov = true\n");
  CHECK(config_line("devices", "cpux2") == "devices = \"cpux2\"\n");
  CHECK(config_line("data", "nan") == "data = \"nan\"\n");  // TOML has such numbers
  CHECK(config_line("data", "C:\\x") == "data = 'C:\\x'\n");
  for (const std::string value : {"a b",      " a ",  "#",         "a#b",   "a # b", "it's",
                                  "'",        "\"",   "say \"x\"", "\"x\"", "\\",    "C:\\new\\t",
                                  "\\\\",     "a,b",  "a[b]",      "{a}",   "a=b",   "=",
                                  ";a",       "`x`",  "train.a",   "%{x}",  "$HOME", "3:1",
                                  "nan",      "inf",  "0x10",      "1_000", "True",  "\xc3\xa9t\xc3\xa9",
                                  "\xff\xfe", "B\"x", "'''x"}) {
    INFO(value);
    const auto read = parse_config(config_line("data", value), "c", "train");
    REQUIRE(read.size() == 1);
    CHECK(read[0].key == "data");
    CHECK(read[0].value == value);
  }
  for (const std::string value : {"", "a\nb", "a\tb", "\x7f", "it's \"x\"", "it's C:\\", "B\"(x)\"", "[a]"}) {
    INFO(value);
    CHECK_THROWS_AS(config_line("data", value), UsageError);
  }
  CHECK(usage_of([] { config_line("data", "'\""); }) ==
        "the value ''\"' of 'data' cannot stand in a configuration | use a name without control characters, "
        "without [ at its beginning, and without single quotes beside double ones or backslashes");
}

TEST_CASE("a configuration sets flags") {
  const ConfigFile file(
      "[train]\nbatch-size = 512\ndevices = \"cpux2\"\ndeterministic = true\n"
      "nesterov = false\nlr = .05\nmomentum = \"0.9\"\nsync = \"parameterwise\"\n"
      "data = 'my # data'\n");
  const auto flags = parsed_flags({"--config", file.path()});
  CHECK(flags.batch_size == 512);
  CHECK(flags.devices == "cpux2");
  CHECK(flags.deterministic);
  CHECK_FALSE(flags.trainer.replica.optimizer.nesterov);
  CHECK(flags.lr == .05);
  CHECK(flags.momentum == .9);
  CHECK(flags.sync == SyncMode::kParameterwise);
  CHECK(flags.data == "my # data");
  CHECK_FALSE(flags.epochs.has_value());
  const Variable config("LOCKSTEP_FLAG_CONFIG", file.path());
  CHECK(parsed_flags({}).batch_size == 512);
  const ConfigFile other("batch-size = 8\n");
  CHECK(parsed_flags({"--config", other.path()}).batch_size == 8);
}

TEST_CASE("a flag goes before the environment, this before the file, and the file before the recipe") {
  const ConfigFile file("batch-size = 30\ndeterministic = true\n");
  const Words flag = {"--batch-size", "10"}, config = {"--config", file.path()};
  const auto batch = [](Words words, const Words& more = {}) {
    words.insert(words.end(), more.begin(), more.end());
    for (const auto* word :
         {"--data", "synthetic", "--limit-train", "40", "--limit-test", "8", "--devices", "cpu"}) {
      words.emplace_back(word);
    }
    return make_train_plan(parsed_flags(words)).batch_size;
  };
  CHECK(batch({}) == 256);  // the recipe's
  CHECK(batch(config) == 30);
  CHECK(batch(flag, config) == 10);
  CHECK(batch(config, flag) == 10);
  {
    const Variable variable("LOCKSTEP_FLAG_BATCH_SIZE", "20");
    CHECK(batch({}) == 20);
    CHECK(batch(config) == 20);
    CHECK(batch(flag) == 10);
    CHECK(batch(flag, config) == 10);
  }
  const Variable empty("LOCKSTEP_FLAG_BATCH_SIZE", "");  // as if it were not there
  CHECK(batch(config) == 30);

  // A recipe of the file gives way to its values, in any order, and a default to the recipe.
  const ConfigFile recipe("lr = .5\nrecipe = \"resnet18-warmup\"\nmodel = \"lenet\"\n");
  const auto plan =
      make_train_plan(parsed_flags({"--config", recipe.path(), "--data", "synthetic", "--limit-train", "40",
                                    "--limit-test", "8", "--devices", "cpu"}));
  CHECK(plan.trainer.lr.lr == .5);
  CHECK(plan.trainer.replica.optimizer.momentum == .9);

  CHECK(parsed_flags(config).deterministic);
  CHECK_FALSE(parsed_flags({"--config", file.path(), "--deterministic=false"}).deterministic);
  const Variable off("LOCKSTEP_FLAG_DETERMINISTIC", "0");
  CHECK_FALSE(parsed_flags(config).deterministic);
}

TEST_CASE("a key that is no flag, or says what one start does, is refused") {
  CHECK(usage_of_file("a = 1\n").starts_with("FILE, line 1: unknown key 'a' | "));
  CHECK(usage_of_file("xyzzy = 1\n") == std::string("FILE, line 1: unknown key 'xyzzy' | ") + kTrainHelp);
  for (const std::string key : {"bach-size", "batch_size", "Batch-Size", "--batch-size"}) {
    CHECK(usage_of_file("\n" + key + " = 1\n") ==
          "FILE, line 2: unknown key '" + key + "' | did you mean 'batch-size'? " + kTrainHelp);
  }
  for (const std::string key :
       {"config", "print-config", "dry-run", "json", "help", "color", "rank", "resume-anyway"}) {
    CHECK(usage_of_file(key + " = true\n") == "FILE, line 1: '" + key +
                                                  "' cannot stand in a configuration file | give --" + key +
                                                  " on the command line");
  }
  CHECK(usage_of_file("dry_run = true").find("dry-run") == std::string::npos);  // not to be suggested
}

TEST_CASE("a value that its flag refuses is refused with the file and the line") {
  const auto see = std::string(" | ") + kTrainHelp;
  CHECK(usage_of_file("# x\nlr = -1\n") == "FILE, line 2: --lr must be above 0, got -1" + see);
  CHECK(usage_of_file("epochs = 2.5") == "FILE, line 1: --epochs is not a whole number: '2.5'" + see);
  CHECK(usage_of_file("deterministic = yes") ==
        "FILE, line 1: --deterministic must be 1, 0, true or false, got 'yes'" + see);
  CHECK(usage_of_file("sync = bucketted") ==
        "FILE, line 1: --sync must be parameterwise, bucketed or overlapped, got 'bucketted' | did you mean "
        "'bucketed'? see 'lockstep train --help'");
  const Variable empty("LOCKSTEP_FLAG_LR", "");  // not what is wrong
  CHECK(usage_of_file("lr = 0") == "FILE, line 1: --lr must be above 0, got 0" + see);
}

TEST_CASE("a file that cannot be a configuration is refused") {
  const std::string hint = " | --config takes a file of lines such as 'batch-size = 512'";
  const TempFolder folder;
  const auto refused = [](const std::string& path) {
    return usage_of([&] { parsed_flags({"--config", path}); });
  };
  const auto missing = (folder / "none").string();
  CHECK(refused(missing) == "cannot read the configuration '" + missing + "': there is no such file" + hint);
  CHECK(refused(folder.path()) ==
        "cannot read the configuration '" + folder.path().string() + "': it is a folder" + hint);
  CHECK(refused("/dev/null").find("it is not a regular file") != std::string::npos);
  CHECK(usage_of_file(std::string(size_t{1} << 20, '\n')) == "accepted");
  CHECK(usage_of_file(std::string((size_t{1} << 20) + 1, '\n')) ==
        "cannot read the configuration FILE: it has more than 1 MB" + hint);
}
