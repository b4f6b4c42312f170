// Fuzzes configuration files, and values that are written into them.
#include <algorithm>
#include <set>
#include <vector>

#include <lockstep/app/train/config/config_syntax.h>
#include <lockstep/tests/fuzz/allocations.h>
#include <lockstep/tests/fuzz/harness.h>

using namespace lockstep;
using fuzz::require;

namespace {

std::vector<ConfigSetting> read(const std::string& text) { return parse_config(text, "c", "train"); }

// A line with the value gives the value back.
void check_written(const std::string& value) {
  std::string line;
  if (!fuzz::accepted([&] { line = config_line("key", value); })) return;
  const auto around = "[train]\n" + line + "# end\n";
  if (around.size() > kMostConfigBytes) return;
  const auto settings = read(around);
  require(settings.size() == 1 && settings[0].key == "key", "a line is one setting");
  require(settings[0].value == value, "a written value is read");
}

void check_read(const std::string& text) {
  std::vector<ConfigSetting> settings;
  if (!fuzz::accepted_within_memory(text.size(), [&] { settings = read(text); })) return;
  std::set<std::string> keys;
  const auto lines = std::ranges::count(text, '\n') + 1;
  std::string copy;
  std::vector<std::string> copied;
  int64_t last = 0;
  for (const auto& [key, value, line] : settings) {
    require(keys.insert(key).second, "no key comes twice");
    require(line > last && line <= lines, "lines are counted");
    require(!value.empty(), "a setting has a value");
    last = line;
    std::string written;
    if (!fuzz::accepted([&] { written = config_line(key, value); })) continue;
    copy += written;
    copied.push_back(value);
  }
  if (copy.size() > kMostConfigBytes) return;  // numbers such as 1e9 are written longer
  require(std::ranges::equal(read(copy), copied, {}, &ConfigSetting::value), "what was read can be written");
  fuzz::last_outcome = std::to_string(settings.size()) + " settings";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = fuzz::text_of(data, size);
  check_written(text);
  const auto written = fuzz::last_outcome;
  check_read(text);
  fuzz::last_outcome += ';' + written;
  return 0;
}
