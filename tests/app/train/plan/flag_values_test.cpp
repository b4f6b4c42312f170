// Values of flags that are refused before data are read. combinations_test.cpp has combinations.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <lockstep/tests/catch.h>

#include <string>
#include <vector>

#include <lockstep/app/cli/as_error.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/train_command.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

struct RefusedValue {
  Words flags;
  Words says;  // in the error or its hint
};

// "error | hint" as the program shows them, with the exit code of usage.
std::string refusal_of_flags(const Words& words) {
  try {
    const auto flags = parsed_flags(words);
    check_combinations(flags, recipe_of(flags));
    check_train_values(flags);
  } catch (const UsageError&) {
    const auto shown = as_error(std::current_exception());
    CHECK(shown.exit_code() == ExitCode::kUsage);
    return shown.message() + " | " + shown.hint();
  }
  return "accepted";
}

void check_refused(const std::vector<RefusedValue>& cases, const Words& common = {}) {
  for (const auto& [flags, says] : cases) {
    INFO(fmt::format("{}", fmt::join(flags, " ")));
    const auto words = refusal_of_flags(common + flags);
    for (const auto& part : says) CHECK_THAT(words, ContainsSubstring(part));
  }
}

}  // namespace

TEST_CASE("a value out of its flag's range is refused, with the flag and the value") {
  check_refused({
      {{"--batch-size", "0"}, {"--batch-size"}},
      {{"--batch-size", "-3"}, {"--batch-size", "-3"}},
      {{"--epochs", "0"}, {"--epochs"}},
      {{"--lr", "0"}, {"--lr"}},
      {{"--lr", "nan"}, {"--lr", "nan"}},
      {{"--threads", "0"}, {"--threads"}},
      {{"--seed", "-1"}, {"--seed"}},
      {{"--limit-train", "0"}, {"--limit-train"}},
      {{"--limit-test", "0"}, {"--limit-test"}},
      {{"--test-share", "1"}, {"--test-share", "1"}},
      {{"--image-size", "0"}, {"--image-size"}},
      {{"--workers", "0"}, {"--workers"}},
      {{"--data-memory", "0"}, {"--data-memory"}},
      {{"--data-memory", "much"}, {"--data-memory", "16MiB", "much"}},
      {{"--synthetic-shape", "3x32"}, {"--synthetic-shape", "3x32x32", "3x32"}},
      {{"--normalize", "0.5"}, {"--normalize", "auto, none", "0.5"}},
      {{"--augment", "flop"}, {"--augment", "flop", "flip"}},
      {{"--augment", "crop:0"}, {"--augment", "crop"}},
      {{"--log-every", "0"}, {"--log-every"}},
      {{"--momentum", "1"}, {"--momentum", "1"}},
      {{"--weight-decay", "-1"}, {"--weight-decay", "-1"}},
      {{"--clip-norm", "0"}, {"--clip-norm", "0"}},
      {{"--ema", "0"}, {"--ema", "above 0 and below 1", "0"}},
      {{"--ema", "1"}, {"--ema", "above 0 and below 1", "1"}},
      {{"--accumulate", "0"}, {"--accumulate", "0"}},
      {{"--warmup-epochs", "-1"}, {"--warmup-epochs", "-1"}},
      {{"--gamma", "0"}, {"--gamma", "above 0 and below 1", "0"}},
      {{"--gamma", "1"}, {"--gamma", "above 0 and below 1", "1"}},
      {{"--gamma", "nan"}, {"--gamma", "nan"}},
      {{"--plateau-patience", "-1"}, {"--plateau-patience", "-1"}},
      {{"--warmup-epochs", "2", "--epochs", "2"}, {"--warmup-epochs 2", "--epochs"}},
      {{"--bucket-mb", "0"}, {"--bucket-mb", "0"}},
      {{"--devices", "cpux0"}, {"cpux0"}},
      {{"--devices", "gpu"}, {"'gpu'"}},
  });
}

TEST_CASE("the error for an unknown value names the nearest one") {
  check_refused({
      {{"--sync", "overlaped"}, {"--sync", "did you mean 'overlapped'?"}},
      {{"--allreduce", "twoshot"}, {"--allreduce", "did you mean 'two_shot'?"}},
      {{"--optimizer", "adamww"}, {"--optimizer", "did you mean 'adamw'?"}},
      {{"--schedule", "cosin"}, {"--schedule", "did you mean 'cosine'?"}},
      {{"--schedule", "one-cycle"}, {"--schedule", "did you mean 'onecycle'?"}},
      {{"--precision", "bf-16"}, {"--precision", "did you mean 'bf16'?"}},
      {{"--recipe", "resnet18-flet"}, {"--recipe", "did you mean 'resnet18-fleet'?"}},
      {{"--recipe", "lenet-scrach"}, {"--recipe", "did you mean 'lenet-scratch'?"}},
  });
}

TEST_CASE("impossible shares are refused") {
  check_refused(
      {
          {{"--split=1:2:3"}, {"--split 1:2:3", "3 shares for 2 replicas"}},
          {{"--split=1"}, {"--split 1 ", "1 share for 2 replicas"}},
          {{"--split=0:0"}, {"--split 0:0", "all shares are 0"}},
          {{"--split=-1:2"}, {"--split -1:2", "not negative"}},
          {{"--split=inf:1"}, {"--split inf:1", "finite"}},
          {{"--split=nan:1"}, {"--split nan:1", "finite"}},
          {{"--split=1e308:1e308"}, {"--split 1e+308:1e+308", "sum to inf"}},
          {{"--split=1e-310:1e-310"}, {"--split 1e-310:1e-310"}},
      },
      {"--devices", "cpux2"});
  for (const std::string text : {"evne", "3:", ":", "3:one", "3,1", "auto:1"}) {
    check_refused(
        {{{"--split=" + text},
          {"even, auto or numbers like 3:1, got '" + text + "'", " | give one number per replica"}}});
  }
}
