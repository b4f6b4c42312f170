#include <lockstep/tests/catch.h>
#include <cstdlib>
#include <string>

#include <lockstep/support/cpu/capability.h>
#include <lockstep/support/error.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("the best capability of the CPU is chosen, or the one that is named") {
  const auto best = has_capability(CpuCapability::kAvx512) ? CpuCapability::kAvx512
                    : has_capability(CpuCapability::kAvx2) ? CpuCapability::kAvx2
                                                           : CpuCapability::kPortable;
  CHECK(choose_capability(nullptr) == best);
  CHECK(choose_capability("") == best);
  CHECK(has_capability(CpuCapability::kPortable));
  for (const auto& [name, capability] : kCpuCapabilityNames) {
    const std::string wanted(name);
    if (has_capability(capability)) {
      CHECK(choose_capability(wanted.c_str()) == capability);
    } else {
      CHECK_THROWS_AS(choose_capability(wanted.c_str()), DeviceError);
      CHECK_THROWS_WITH(choose_capability(wanted.c_str()),
                        ContainsSubstring(wanted) && ContainsSubstring("does not have"));
    }
  }
}

TEST_CASE("an unknown capability is refused with the list of names") {
  for (const auto* name : {" ", "avx", "AVX2"}) {
    CHECK_THROWS_AS(choose_capability(name), UsageError);
    CHECK_THROWS_WITH(choose_capability(name), ContainsSubstring("avx512, avx2 or portable") &&
                                                   ContainsSubstring("'" + std::string(name) + "'"));
  }
}

TEST_CASE("the environment variable is read once") {
  const auto first = cpu_capability();
  const char* before = std::getenv("LOCKSTEP_CPU_CAPABILITY");
  const std::string kept = before ? before : "";
  setenv("LOCKSTEP_CPU_CAPABILITY", "nonsense", 1);
  CHECK(cpu_capability() == first);
  before ? setenv("LOCKSTEP_CPU_CAPABILITY", kept.c_str(), 1) : unsetenv("LOCKSTEP_CPU_CAPABILITY");
}
