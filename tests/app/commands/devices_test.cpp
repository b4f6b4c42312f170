// The text of `lockstep devices`.
#include <lockstep/tests/catch.h>
#include <string>

#include <lockstep/app/commands/devices.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

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

TEST_CASE("lockstep devices: a process that may not use all cores, such as one of lockstep launch") {
  Machine machine;
  machine.cores = 2;
  machine.online = 16;
  CHECK(cores_text(machine) == "2 of 16 cores");
  CHECK_THAT(describe(machine), ContainsSubstring("2 of 16 cores, "));
  machine.cores = 16;
  CHECK(cores_text(machine) == "16 cores");
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
