// main() of every Catch2 test: lists the cases for ctest and skips those that this machine cannot run.
#include <lockstep/support/cuda/info.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/catch_session.h>
#include <lockstep/tests/skip.h>

#include <cstdlib>
#include <iostream>

// For CHECK_THROWS_WITH: tests compare an error's sentence, without its hint.
CATCH_TRANSLATE_EXCEPTION(const lockstep::Error& error) { return error.message(); }

namespace {

constexpr int kFailed = 1;    // for Catch2 of any version: 2 returns how many cases failed, which may be 77
constexpr int kSkipped = 77;  // what ctest is told to read as "skipped"

int skipped_cases = 0;

void list_for_ctest(Catch::Session& session) {
  for (const lockstep::testing::ListedCase& test_case : lockstep::testing::visible_cases(session)) {
    std::cout << test_case.name << '\t';
    for (const std::string& tag : test_case.tags) {
      std::cout << tag << ',';
    }
    std::cout << '\n';
  }
}

// Why a case with these labels cannot run here; empty if it can.
std::string missing_device(const std::string& labels) {
  const bool two = labels.find("cuda2") != std::string::npos;
  if (!two && labels.find("cuda") == std::string::npos) {
    return {};
  }
  if (const auto problem = lockstep::cuda_problem()) {
    return "needs a GPU: " + *problem;
  }
  const size_t count = lockstep::cuda_devices().size();
  return two && count < 2 ? "needs 2 GPUs, found " + std::to_string(count) : std::string();
}

}  // namespace

void lockstep::testing::mark_skipped(const std::string& why) {
  ++skipped_cases;
  std::cout << "skipped: " << why << '\n';
}

int main(int argc, char** argv) {
  Catch::Session session;
  bool list = false;
  session.cli(session.cli() | lockstep::testing::clara::Opt(list)["--list-for-ctest"](
                                  "one line per case: name, tab, its tags"));
  if (const int status = session.applyCommandLine(argc, argv); status != 0) {
    return status;
  }
  lockstep::testing::demand_cases(session);
  if (list) {
    list_for_ctest(session);
    return 0;
  }
  const char* labels = std::getenv("LOCKSTEP_TEST_LABELS");
  if (const std::string why = missing_device(labels == nullptr ? "" : labels); !why.empty()) {
    std::cout << "skipped: " << why << '\n';
    return kSkipped;
  }
  if (session.run() != 0) {
    return kFailed;
  }
  // How many cases ctest runs as one test; by hand one is assumed.
  const char* cases = std::getenv("LOCKSTEP_TEST_CASES");
  return skipped_cases > 0 && skipped_cases >= std::atoi(cases == nullptr ? "1" : cases) ? kSkipped : 0;
}
