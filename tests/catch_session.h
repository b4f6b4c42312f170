// The parts of Catch2 that the tests' main() uses, for versions 2 and 3.
#pragma once

#include <string>
#include <vector>

#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/catch_translate_exception.hpp>
#include <catch2/internal/catch_test_case_registry_impl.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

namespace lockstep::testing {

struct ListedCase {
  std::string name;
  std::vector<std::string> tags;
};

#if __has_include(<catch2/catch_session.hpp>)

namespace clara = Catch::Clara;

inline std::vector<ListedCase> visible_cases(Catch::Session& session) {
  std::vector<ListedCase> cases;
  for (const Catch::TestCaseHandle& handle : Catch::getAllTestCasesSorted(session.config())) {
    const Catch::TestCaseInfo& info = handle.getTestCaseInfo();
    if (!info.isHidden()) {
      cases.push_back({info.name, {}});
      for (const Catch::Tag& tag : info.tags) {
        cases.back().tags.emplace_back(tag.original.begin(), tag.original.end());
      }
    }
  }
  return cases;
}

// A name that matches no case is an error by itself.
inline void demand_cases(Catch::Session&) {}

#else

namespace clara = Catch::clara;

inline std::vector<ListedCase> visible_cases(Catch::Session& session) {
  std::vector<ListedCase> cases;
  for (const Catch::TestCase& test_case : Catch::getAllTestCasesSorted(session.config())) {
    if (!test_case.isHidden()) {
      cases.push_back({test_case.name, test_case.tags});
    }
  }
  return cases;
}

// A name that matches no case is an error, as in version 3.
inline void demand_cases(Catch::Session& session) {
  auto& warnings = session.configData().warnings;
  warnings = static_cast<Catch::WarnAbout::What>(warnings | Catch::WarnAbout::NoTests);
}

#endif

}  // namespace lockstep::testing
