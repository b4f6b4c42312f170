#include <lockstep/support/cuda/info.h>

#include <lockstep/tests/catch.h>
#include <array>
#include <cstdio>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace {

using namespace lockstep;

std::string output_of(const char* command) {
  FILE* pipe = popen(command, "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  std::array<char, 256> part{};
  while (fgets(part.data(), part.size(), pipe) != nullptr) {
    text += part.data();
  }
  REQUIRE(pclose(pipe) == 0);
  return text;
}

// Name, compute capability, MiB; one line per GPU.
std::string nvidia_smi() {
  return output_of("nvidia-smi --query-gpu=name,compute_cap,memory.total --format=csv,noheader,nounits");
}

}  // namespace

TEST_CASE("cuda_build, cuda_devices and cuda_problem agree") {
  const auto problem = cuda_problem();
  CHECK(problem.has_value() == cuda_devices().empty());
  if (cuda_build() == "without CUDA") {
    CHECK(problem == "this lockstep was built without CUDA");
  } else {
    CHECK(std::regex_match(cuda_build(), std::regex("CUDA [0-9]{2}\\.[0-9]")));
    CHECK(problem != "this lockstep was built without CUDA");
  }
  if (problem) {
    CHECK(problem->find('\n') == std::string::npos);
    CHECK(problem->back() != '.');
  }
}

TEST_CASE("cuda_devices lists the GPUs of nvidia-smi", "[cuda]") {
  const std::string listed = nvidia_smi();
  for (const CudaDevice& device : cuda_devices()) {
    std::ostringstream expected;
    expected << device.name << ", " << device.capability_major << '.' << device.capability_minor << ", ";
    INFO(expected.str() << " in\n" << listed);
    const size_t at = listed.find(expected.str());
    REQUIRE(at != std::string::npos);
    // nvidia-smi also counts the driver's own memory.
    const double mib = std::stod(listed.substr(at + expected.str().size()));
    CHECK(static_cast<double>(device.total_bytes) / 1048576 == Approx(mib).epsilon(0.05));
    CHECK(device.free_bytes <= device.total_bytes);
    CHECK(device.multiprocessors > 0);
  }
}

TEST_CASE("a GPU that is not there has no UUID") {
  CHECK(cuda_uuid(-1).empty());
  CHECK(cuda_uuid(static_cast<int>(cuda_devices().size())).empty());
}

TEST_CASE("the UUIDs of GPUs differ, and are those of nvidia-smi", "[cuda]") {
  const std::string listed = output_of("nvidia-smi -L");  // "(UUID: GPU-...)", "(UUID: MIG-...)"
  std::set<std::string> found;
  for (size_t index = 0; index < cuda_devices().size(); ++index) {
    const auto uuid = cuda_uuid(static_cast<int>(index));
    INFO(uuid << " in\n" << listed);
    CHECK(std::regex_match(uuid, std::regex("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")));
    CHECK(listed.find("-" + uuid + ")") != std::string::npos);
    found.insert(uuid);
  }
  CHECK(found.size() == cuda_devices().size());
}
