// Each check of the doctor: facts that make it warn or fail, beside a machine on which all is well.
#include <lockstep/tests/catch.h>
#include <cstdint>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/app/doctor/doctor.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

FolderFacts good_folder(const std::string& path) {
  return {.path = path, .free_bytes = 100 * kGiB, .bytes_per_second = 500e6};
}

// A machine on which every check is ok.
Facts good_machine() {
  Facts facts;
  facts.gpu = {.cards = 2,
               .kernel_driver = "580.65.06",
               .driver_cuda = "13.0",
               .built_cuda = "13.0",
               .devices = {{.name = "H100"}, {.name = "H100"}},
               .nccl = "2.30.4"};
  facts.cpu = {.cores = 8,
               .online = 8,
               .governors = {"performance"},
               .load = .5,
               .huge_pages = "madvise",
               .best = "avx512",
               .chosen = "avx512",
               .torch_kernels = "AVX512"};
  facts.limits = {.open_files = 1 << 20,
                  .memory_bytes = 64 * kGiB,
                  .available_bytes = 60 * kGiB,
                  .shared_bytes = 32 * kGiB,
                  .free_shared_bytes = 31 * kGiB};
  facts.cache = good_folder("/cache");
  facts.runs = good_folder("runs");
  facts.temporary = good_folder("/tmp");
  facts.data = {.folder = "/data", .files = {{"/data/a", "00", "00"}}};
  facts.network = {.interfaces = {"eth0"}, .port = 29500, .launchers = {"mpirun"}};
  facts.clock = {.now = 1'800'000'000, .source = "tsc"};
  facts.terminal = {.interactive = true, .is_terminal = true, .kind = "xterm"};
  return facts;
}

Judgement judgement_of(const std::string& name, const Facts& facts) {
  for (const auto& check : doctor_checks()) {
    if (check.name == name) return check.judge(facts);
  }
  FAIL("no check " << name);
  return {};
}

struct Bad {
  std::string name;  // of the check
  Health health;
  std::string text;  // a part of what it says
  std::function<void(Facts&)> spoil;
};

std::vector<Bad> bad_gpus() {
  return {
      {"gpu driver", Health::kFail, "no driver for 2 NVIDIA cards",
       [](auto& f) { f.gpu.kernel_driver = ""; }},
      {"gpu driver", Health::kFail, "knows CUDA 12.4, torch has CUDA 13.0",
       [](auto& f) { f.gpu.driver_cuda = "12.4"; }},
      {"gpu driver", Health::kWarn, "built without CUDA", [](auto& f) { f.gpu.built_cuda = ""; }},
      {"gpus", Health::kFail, "none can be used: no CUDA-capable device",
       [](auto& f) {
         f.gpu.devices.clear();
         f.gpu.no_devices = "no CUDA-capable device";
       }},
      {"gpus", Health::kFail, "cuda:1 has no kernels",
       [](auto& f) {
         f.gpu.device_problems = {{"cuda:1 has no kernels", "build for 9.0"}};
       }},
      {"peer access", Health::kWarn, "1 pair copy through the host, such as cuda:0 and cuda:1",
       [](auto& f) {
         f.gpu.without_access = {{0, 1}};
       }},
      {"nccl", Health::kWarn, "none in this build, for 2 GPUs", [](auto& f) { f.gpu.nccl = ""; }},
  };
}

std::vector<Bad> bad_limits() {
  return {
      {"shared memory", Health::kFail, "no /dev/shm",
       [](auto& f) { f.limits.shared_bytes = f.limits.free_shared_bytes = 0; }},
      {"shared memory", Health::kWarn, "64 MiB free", [](auto& f) { f.limits.free_shared_bytes = 64 << 20; }},
      {"memory", Health::kFail, "511 MiB of 64.0 GiB", [](auto& f) { f.limits.available_bytes = 511 << 20; }},
      {"memory", Health::kWarn, "1.5 GiB", [](auto& f) { f.limits.available_bytes = 3 * kGiB / 2; }},
      {"open files", Health::kFail, "at most 64 open files", [](auto& f) { f.limits.open_files = 64; }},
      {"open files", Health::kWarn, "at most 512 open files", [](auto& f) { f.limits.open_files = 512; }},
      {"threads", Health::kFail, "31 threads can be started; a run needs about 32",
       [](auto& f) { f.limits.threads_left = 31; }},
      {"threads", Health::kFail, "0 threads", [](auto& f) { f.limits.threads_left = -5; }},
      {"threads", Health::kWarn, "127 threads", [](auto& f) { f.limits.threads_left = 127; }},
      {"locked memory", Health::kWarn, "at most 8 MiB locked, for InfiniBand",
       [](auto& f) {
         f.limits.locked_bytes = 8 << 20;
         f.gpu.infiniband = true;
       }},
  };
}

std::vector<Bad> bad_storage() {
  return {
      {"cache", Health::kWarn, "/cache: Permission denied",
       [](auto& f) { f.cache.problem = "Permission denied"; }},
      {"cache", Health::kWarn, "1.0 GiB free", [](auto& f) { f.cache.free_bytes = kGiB; }},
      {"run folder", Health::kFail, "runs: Read-only file system",
       [](auto& f) { f.runs.problem = "Read-only file system"; }},
      {"run folder", Health::kFail, "99 MiB free", [](auto& f) { f.runs.free_bytes = 99 << 20; }},
      {"run folder", Health::kWarn, "999 MiB free", [](auto& f) { f.runs.free_bytes = 999 << 20; }},
      {"run folder", Health::kWarn, "5 MB/s, which is slow", [](auto& f) { f.runs.bytes_per_second = 5e6; }},
      {"temporary", Health::kFail, "0 MiB free", [](auto& f) { f.temporary.free_bytes = 0; }},
      {"data", Health::kWarn, "/data/a is not Fashion-MNIST as published",
       [](auto& f) { f.data.files.front().sha256 = "ff"; }},
      {"data", Health::kFail, "no folder",
       [](auto& f) {
         f.data.problem = Problem{"no folder", "install it"};
       }},
  };
}

std::vector<Bad> bad_cpus() {
  return {
      {"cores", Health::kWarn, "8 cores, with the time of 1.5", [](auto& f) { f.cpu.quota = 1.5; }},
      {"openmp", Health::kWarn, "OMP_PROC_BIND=close puts the threads of all replicas on the same cores",
       [](auto& f) { f.cpu.openmp["OMP_PROC_BIND"] = "close"; }},
      {"openmp", Health::kWarn, "OMP_THREAD_LIMIT=4 leaves cores idle",
       [](auto& f) { f.cpu.openmp["OMP_THREAD_LIMIT"] = "4"; }},
      {"openmp", Health::kFail, "OpenMP cannot start 7 threads",
       [](auto& f) {
         f.cpu.openmp_problem = Problem{"OpenMP cannot start 7 threads", "unset OMP_STACKSIZE"};
       }},
      {"openmp", Health::kWarn, "OMP_WAIT_POLICY=active",
       [](auto& f) { f.cpu.openmp["OMP_WAIT_POLICY"] = "active"; }},
      {"governor", Health::kWarn, "powersave (acpi-cpufreq): the lowest clock",
       [](auto& f) {
         f.cpu.governors = {"powersave"};
         f.cpu.frequency_driver = "acpi-cpufreq";
       }},
      {"steal time", Health::kWarn, "3.0 % of the time stolen", [](auto& f) { f.cpu.steal = .03; }},
      {"steal time", Health::kWarn, "load 4.1 on 8 cores", [](auto& f) { f.cpu.load = 4.1; }},
      {"huge pages", Health::kWarn, "never", [](auto& f) { f.cpu.huge_pages = "never"; }},
      {"huge pages", Health::kWarn, "this kernel has none", [](auto& f) { f.cpu.huge_pages = ""; }},
      {"kernels", Health::kFail, "LOCKSTEP_CPU_CAPABILITY must be",
       [](auto& f) {
         f.cpu.kernels_problem = Problem{"LOCKSTEP_CPU_CAPABILITY must be avx2", "unset it"};
       }},
      {"kernels", Health::kWarn, "kernels avx2, torch's AVX512; this CPU can avx512",
       [](auto& f) { f.cpu.chosen = "avx2"; }},
      {"kernels", Health::kWarn, "by ATEN_CPU_CAPABILITY=avx2", [](auto& f) { f.cpu.torch_asked = "avx2"; }},
      {"kernels", Health::kWarn, "this CPU has no AVX2",
       [](auto& f) { f.cpu.best = f.cpu.chosen = "portable"; }},
  };
}

std::vector<Bad> bad_surroundings() {
  return {
      {"port", Health::kFail, "no port",
       [](auto& f) {
         f.network.master_problem = Problem{"no port", "x"};
       }},
      {"port", Health::kWarn, "in use", [](auto& f) { f.network.port_problem = "port 29500 is in use"; }},
      {"port", Health::kFail, "in use",
       [](auto& f) {
         f.network.host = "10.0.0.1";
         f.network.port_problem = "port 29500 is in use";
       }},
      {"interface", Health::kFail, "none leads to 10.0.0.1", [](auto& f) { f.network.host = "10.0.0.1"; }},
      {"interface", Health::kWarn, "only loopback", [](auto& f) { f.network.interfaces.clear(); }},
      {"launcher", Health::kFail, "RANK is set, WORLD_SIZE is not",
       [](auto& f) {
         f.network.world_problem = Problem{"RANK is set, WORLD_SIZE is not", "unset RANK"};
       }},
      {"clock", Health::kFail, "0 s since 1970", [](auto& f) { f.clock.now = 0; }},
      {"clock", Health::kWarn, "hpet", [](auto& f) { f.clock.source = "hpet"; }},
      {"clock", Health::kWarn, "not synchronised", [](auto& f) { f.clock.synchronised = false; }},
      {"terminal", Health::kWarn, "dumb, 80 columns: no live line",
       [](auto& f) {
         f.terminal.interactive = false;
         f.terminal.kind = "dumb";
       }},
      {"terminal", Health::kWarn, "60 columns", [](auto& f) { f.terminal.width = 60; }},
      {"terminal", Health::kWarn, "not UTF-8", [](auto& f) { f.terminal.utf8 = false; }},
  };
}

}  // namespace

TEST_CASE("on a good machine every check of the doctor is ok, and says so without a hint") {
  const auto all = judge_all(good_machine());
  CHECK(all.size() >= 15);
  std::set<std::string_view> names;
  for (const auto& [name, judgement] : all) {
    INFO(name << ": " << judgement.text);
    CHECK(judgement.health == Health::kOk);
    CHECK_FALSE(judgement.text.empty());
    CHECK(judgement.hint.empty());
    CHECK(names.insert(name).second);
  }
}

TEST_CASE("every check of the doctor warns or fails on bad facts, and says how to fix them") {
  std::set<std::string> seen;
  for (const auto& group : {bad_gpus(), bad_limits(), bad_storage(), bad_cpus(), bad_surroundings()}) {
    for (const auto& [name, health, text, spoil] : group) {
      auto facts = good_machine();
      spoil(facts);
      const auto judgement = judgement_of(name, facts);
      INFO(name << ": " << judgement.text);
      CHECK(static_cast<int>(judgement.health) == static_cast<int>(health));
      CHECK_THAT(judgement.text, ContainsSubstring(text));
      CHECK_FALSE(judgement.hint.empty());
      seen.insert(name);
    }
  }
  for (const auto& check : doctor_checks()) {
    INFO(check.name);
    CHECK(seen.count(std::string(check.name)) == 1);
  }
}

TEST_CASE("the doctor says of little memory that replicas can share out what each keeps") {
  auto facts = good_machine();
  facts.limits.available_bytes = kGiB;
  CHECK_THAT(judgement_of("memory", facts).hint, ContainsSubstring("train --shard"));
}

// Weights, gradients and AdamW's moments: 16 bytes per parameter. With 8 replicas and --shard 8 + 8 / 8.
TEST_CASE("the doctor says for which model there is room, also with --shard") {
  auto facts = good_machine();
  CHECK(
      judgement_of("memory", facts).text ==
      "60.0 GiB of 64.0 GiB available: room for AdamW and 503 million parameters on each of 8 replicas, 894 "
      "million with --shard optimizer");
  facts.cpu.cores = 1;
  CHECK(judgement_of("memory", facts).text ==
        "60.0 GiB of 64.0 GiB available: room for AdamW and 4,026 million parameters");
  for (auto& device : facts.gpu.devices) device.total_bytes = 80 * kGiB;
  CHECK(judgement_of("gpus", facts).text ==
        "2 GPUs: H100; room for AdamW and 5,368 million parameters on each of 2 replicas, 7,158 million with "
        "--shard optimizer");
}

TEST_CASE("without a GPU, and with output to a file, the doctor has nothing against it") {
  auto facts = good_machine();
  facts.gpu = {};
  facts.limits.shared_bytes = facts.limits.free_shared_bytes = 0;
  facts.limits.locked_bytes = 8 << 20;
  facts.terminal = {};
  facts.data = {.folder = "synthetic"};
  facts.network.launchers.clear();
  facts.cpu.governors.clear();
  facts.cpu.openmp = {{"OMP_NUM_THREADS", "3"}, {"OMP_PROC_BIND", "false"}};
  for (const auto& [name, judgement] : judge_all(facts)) {
    INFO(name << ": " << judgement.text);
    CHECK(judgement.health == Health::kOk);
  }
  CHECK_THAT(judgement_of("gpus", facts).text, StartsWith("none: no NVIDIA GPU"));
  CHECK_THAT(judgement_of("openmp", facts).text,
             ContainsSubstring("whatever OMP_NUM_THREADS=3, OMP_PROC_BIND=false says"));
}

TEST_CASE("the doctor's table has a line per check, hints below it, and at most 80 columns") {
  auto facts = good_machine();
  facts.data.problem =
      Problem{"the folder /a/rather/long/name/of/a/folder/with/data is missing, and more words",
              "apt-get install dataset-fashion-mnist, or name another folder with --data DIR"};
  facts.terminal.width = 60;
  const auto text = doctor_text(judge_all(facts), Style(false));
  CHECK_THAT(
      text, ContainsSubstring("ok    gpu driver     driver 580.65.06 with CUDA 13.0, torch has CUDA 13.0\n"));
  CHECK_THAT(text, ContainsSubstring("fail  data           the folder "));
  CHECK_THAT(text, ContainsSubstring("\n                     -> apt-get install dataset-fashion-mnist, "));
  CHECK_THAT(text, ContainsSubstring("24 checks: 22 ok, 1 warn, 1 fail\n"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
}

TEST_CASE("the doctor's JSON has each check, and whether all is well") {
  auto facts = good_machine();
  facts.terminal.width = 60;
  auto json = doctor_json(judge_all(facts));
  CHECK(json.at("ok") == true);
  CHECK(json.at("counts").dump() == R"({"ok":23,"warn":1,"fail":0})");
  CHECK(json.at("checks").front().dump() ==
        R"({"name":"gpu driver","health":"ok","text":"driver 580.65.06 with CUDA 13.0, torch has CUDA 13.0",)"
        R"("hint":null})");
  CHECK(json.at("checks").back().at("health") == "warn");
  CHECK(json.at("checks").back().at("hint").is_string());
  facts.clock.now = 0;
  CHECK(doctor_json(judge_all(facts)).at("ok") == false);
}
