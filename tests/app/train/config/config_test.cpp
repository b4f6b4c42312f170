// Configuration files: their text, and how they set flags.
#include <lockstep/tests/catch.h>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/train/config/config_file.h>
#include <lockstep/app/train/config/config_syntax.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/train_command.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>
#include <lockstep/tests/support/variable.h>

using namespace lockstep;
using lockstep::testing::parsed_flags;
using lockstep::testing::refusal_and_hint;
using lockstep::testing::TempFolder;
using lockstep::testing::Variable;
using lockstep::testing::Words;

namespace {

// "key=value" of each setting, without a blank that the text has not.
Words settings_in(const std::string& text) {
  Words found;
  for (const auto& setting : parse_config(text, "c", "train")) {
    found.push_back(setting.key + "=" + setting.value);
  }
  return found;
}

// "error | hint"; empty: accepted.
std::string usage_of_text(const std::string& text) {
  return refusal_and_hint([&] { settings_in(text); });
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
  auto message = refusal_and_hint([&] { parsed_flags({"--config", file.path()}); });
  const auto at = message.find(file.shown());
  return at == std::string::npos ? message : message.replace(at, file.shown().size(), "FILE");
}

constexpr const char* kTrainHelp = "see 'lockstep train --help'";

}  // namespace

TEST_CASE("a configuration is TOML with numbers, true, false and strings") {
  CHECK(settings_in("").empty());
  CHECK(settings_in("# none\n\n   \t\r\n").empty());
  CHECK(settings_in("a=1") == Words{"a=1"});
  CHECK(settings_in("[train]\nbatch-size = 512\n  devices =\"cpux2\"  # two\r\n\tlr=0.1#x\n") ==
        Words{"batch-size=512", "devices=cpux2", "lr=0.1"});
  CHECK(settings_in(" [ train ] # all\nz = 'cpu,cuda:0'\nb = -1e-3\nc_D-4 = true") ==
        Words{"z=cpu,cuda:0", "b=-0.001", "c_D-4=true"});  // in the text's order
  CHECK(settings_in("a = '#1, \"x\" \\n [y] = '  # \"'\nb = \"it's # 2\"") ==
        Words{"a=#1, \"x\" \\n [y] = ", "b=it's # 2"});
  CHECK(settings_in("a = 1_000\nb = 0x10\nc = \"\\u0041\"\ntrain.lr = 1") ==
        Words{"a=1000", "b=16", "c=A", "lr=1"});
  CHECK(settings_in("a = 9223372036854775807\nb = 5e-324\nc = 0.30000000000000004") ==
        Words{"a=9223372036854775807", "b=5e-324", "c=0.30000000000000004"});
  CHECK(settings_in("\ufeff[train]\r\nlr = 1\r\n") == Words{"lr=1"});  // a byte order mark
  CHECK(parse_config("\n\na = 1\n", "c", "train").at(0).line == 3);
  CHECK(parse_config("a = 1\n[train]\n\nb = 1\n", "c", "train").at(1).line == 4);
}

TEST_CASE("what is no TOML, and what is no setting, is refused with its line") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a = 1\nquiet\n", "'c', line 2: "},
      {"a = 1\nb = 2\na = 1", "'c', line 3: "},
      {"a = 1\n[train]\na = 1", "'c', line 3: 'a' is given again, after line 1"},
      {"a = 1\nlr.x = 1", "'c', line 2: there is no section 'lr'"},
      {"= 1", "'c', line 1: "},
      {"a # = b", "'c', line 1: "},
      {"\na =", "'c', line 2: "},
      {"\na = ''", "'c', line 2: 'a' has an empty value"},
      {"\na = [1, 2]", "'c', line 2: 'a' takes one number, true, false or text"},
      {"\na = {b = 1}", "'c', line 2: 'a' takes one number, true, false or text"},
      {"\na = 1979-05-27", "'c', line 2: 'a' takes one number, true, false or text"},
      {"\na = \"x\" y", "'c', line 2: "},
      {"\na = \"x", "'c', line 2: "},
      {"\na = \"C:\\zew\"", "'c', line 2: "},
      {"\n\u00a0epochs = 3", "'c', line 2: "},
      {"\nepochs\u200b = 3", "'c', line 2: "},
      {"\na = '\xff'", "'c', line 2: "},
      {"\na = 1\x1b[1m", "'c', line 2: "},
      {std::string("\na = 1\0", 7), "'c', line 2: "},
      {"a = 1\n[bench]", "'c', line 2: there is no section 'bench'"},
      {"a = 1\n[train.more]", "'c', line 2: there is no section 'more'"},
      {"a = 1\n[[train]]", "'c', line 2: there is no section 'train'"},
      {"a = 1\n[train", "'c', line 2: "},
      {"[[\nq", "'c', line 1: "},
      {"[" + std::string(1'000'000, '.') + "]", "'c' has more than 16 KB"}};
  for (const auto& [text, message] : cases) {
    const auto usage = usage_of_text(text);
    INFO(usage);
    CHECK(usage.starts_with(message));
    CHECK_FALSE(usage.ends_with(" | "));  // there is a hint
  }
  std::string nested = "[a";  // as deep as a text can
  while (nested.size() + 3 < kMostConfigBytes) nested += ".a";
  CHECK(usage_of_text(nested + "]").starts_with("'c', line 1: there is no section 'a'"));
}

TEST_CASE("older lines that are no TOML are refused with the line to write") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"devices = cpu,cuda:0 # two", "devices = \"cpu,cuda:0\""},
      {" sync=parameterwise", "sync = \"parameterwise\""},
      {"split = 3:1", "split = \"3:1\""},
      {"data = C:\\x", "data = 'C:\\x'"},
      {"deterministic = yes", "deterministic = \"yes\""},
      {"lr = .5", "lr = 0.5"},
      {"lr = 1.", "lr = 1"},
      {"lr = -.25e-3", "lr = -0.00025"},
      {"epochs = 05", "epochs = 5"}};
  for (const auto& [old, right] : cases) {
    const auto usage = usage_of_text("# old\n" + old + "\n");
    INFO(usage);
    CHECK(usage.starts_with("'c', line 2: "));
    CHECK(usage.ends_with(" | write " + right));
    CHECK(settings_in(right).size() == 1);
  }
  CHECK(usage_of_text("quiet").ends_with(" | a flag without a value is 'quiet = true'"));
  // Lines that lockstep wrote are TOML.
  CHECK(settings_in("# lockstep\nrecipe = \"lenet-scratch\"\ndata = 'a \"b\" # c\\d'\nlr = 1e-07\n"
                    "weight-decay = 5e+22\nnesterov = false\nseed = 0\n") ==
        Words{"recipe=lenet-scratch", "data=a \"b\" # c\\d", "lr=1e-07", "weight-decay=5e+22",
              "nesterov=false", "seed=0"});
}

TEST_CASE("a line holds every value that TOML can hold") {
  CHECK(config_line("lr", "0.1") == "lr = 0.1\n");
  CHECK(config_line("seed", "-1e-300") == "seed = -1e-300\n");
  CHECK(config_line("nesterov", "true") == "nesterov = true\n");
  CHECK(config_line("devices", "cpux2") == "devices = \"cpux2\"\n");
  CHECK(config_line("data", "nan") == "data = \"nan\"\n");  // TOML has such numbers
  CHECK(config_line("data", "C:\\x") == "data = 'C:\\x'\n");
  for (const std::string value :
       {"a b",       " a ",       "#",        "a#b",        "a # b",     "it's",
        "'",         "\"",        "\"x\"",    "\\",         "a,b",       "a[b]",
        "[a]",       "{a}",       "a=b",      "=",          ";a",        "`x`",
        "%{x}",      "$HOME",     "3:1",      "nan",        "inf",       "0x10",
        "1_000",     "True",      ".5",       "05",         "'''x",      "it's \"x\"",
        "a\nb",      "a\tb",      "\x7f",     "1e5",        "B\"(x)\"",  "train.a",
        "say \"x\"", "it's C:\\", "C:\\n\\t", "1979-05-27", "\xc3\xa9t", "18446744073709551615"}) {
    INFO(value);
    const auto read = parse_config(config_line("data", value), "c", "train");
    REQUIRE(read.size() == 1);
    CHECK(read[0].key == "data");
    CHECK(read[0].value == value);
  }
  for (const std::string& value : {std::string(), std::string("\xff\xfe"), std::string(1 << 14, 'x')}) {
    CHECK_THROWS_AS(config_line("data", value), UsageError);
  }
}

TEST_CASE("a configuration sets flags") {
  const ConfigFile file(
      "[train]\nbatch-size = 512\ndevices = \"cpux2\"\ndeterministic = true\n"
      "nesterov = false\nlr = 0.05\nmomentum = \"0.9\"\nsync = \"parameterwise\"\n"
      "data = 'my # data'\n");
  const auto flags = parsed_flags({"--config", file.path()});
  CHECK(flags.batch_size == 512);
  CHECK(flags.devices == "cpux2");
  CHECK(flags.deterministic);
  CHECK_FALSE(flags.trainer.replica.optimizer.nesterov);
  CHECK(flags.lr == .05);
  CHECK(flags.momentum == .9);
  CHECK(flags.sync == SyncMode::kParameterwise);
  CHECK(flags.data.path == "my # data");
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
  const ConfigFile recipe("lr = 0.5\nrecipe = \"resnet18-warmup\"\nmodel = \"lenet\"\n");
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
  CHECK(usage_of_file("deterministic = 'yes'") ==
        "FILE, line 1: --deterministic must be 1, 0, true or false, got 'yes'" + see);
  CHECK(usage_of_file("sync = 'bucketted'") ==
        "FILE, line 1: --sync must be parameterwise, bucketed or overlapped, got 'bucketted' | did you mean "
        "'bucketed'? see 'lockstep train --help'");
  const Variable empty("LOCKSTEP_FLAG_LR", "");  // not what is wrong
  CHECK(usage_of_file("lr = 0") == "FILE, line 1: --lr must be above 0, got 0" + see);
}

TEST_CASE("a file that cannot be a configuration is refused") {
  const std::string hint = " | --config takes a file of lines such as 'batch-size = 512'";
  const TempFolder folder;
  const auto refused = [](const std::string& path) {
    return refusal_and_hint([&] { parsed_flags({"--config", path}); });
  };
  const auto missing = (folder / "none").string();
  CHECK(refused(missing) == "cannot read the configuration '" + missing + "': there is no such file" + hint);
  CHECK(refused(folder.path()) ==
        "cannot read the configuration '" + folder.path().string() + "': it is a folder" + hint);
  CHECK(refused("/dev/null").find("it is not a regular file") != std::string::npos);
  CHECK(usage_of_file(std::string(size_t{1} << 14, '\n')).empty());
  CHECK(usage_of_file(std::string((size_t{1} << 14) + 1, '\n')) ==
        "cannot read the configuration FILE: it has more than 16 KB" + hint);
}
