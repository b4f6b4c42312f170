// Messages and plans of runs on GPUs, tested without a GPU.
#include <lockstep/tests/catch.h>

#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/plan/plan_bytes.h>
#include <lockstep/app/train/plan/plan_memory.h>
#include <lockstep/parallel/collectives/peer_notice.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/support/error.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

const torch::Device kFirst(torch::kCUDA, 0), kSecond(torch::kCUDA, 1), kCpu(torch::kCPU);

TrainPlan plan_on(const std::vector<torch::Device>& devices) {
  TrainPlan plan;
  plan.recipe = "resnet18-pytorch";
  plan.model = "resnet18";
  plan.parameter_count = 11'175'818;
  plan.data.set.spec = {{.name = "images", .row_shape = {1, 28, 28}},
                        {.name = "labels", .dtype = torch::kInt64, .role = Role::kTarget}};
  plan.data.set.classes = 10;
  plan.data.set.row_noun = "image";
  plan.data.set.train.rows = 1000;
  plan.data.set.test.rows = 100;
  plan.trainer.devices = devices;
  plan.batch_size = 500;
  plan.epochs = 1;
  plan.steps_per_epoch = 2;
  plan.total_steps = 2;
  return plan;
}

// The message of torch 2.11's allocator.
const std::string kTorchWords =
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 8.00 GiB of which 512.00 "
    "MiB is "
    "free. Including non-PyTorch memory, this process has 7.40 GiB memory in use.";

}  // namespace

TEST_CASE("out of GPU memory: the error says what was asked for, what is free, and which batch should fit") {
  auto plan = plan_on({kFirst, kSecond});
  plan.batch_size = 8192;
  const auto error = out_of_memory(kTorchWords, plan);
  CHECK(error.exit_code() == ExitCode::kMemory);
  // 2 GiB and 512 MiB.
  CHECK(error.message() == "cuda:1 is out of memory: 2.15 GB more were asked for, 0.54 GB are free");
  // Two replicas on two GPUs: .9 x 8 GiB, minus parameters and gradients, divided by the bytes of a row.
  const auto bytes = [&](int64_t rows) {
    return static_cast<double>(replica_bytes(plan, rows, torch::kCUDA));
  };
  const double rows = (.9 * 8 * (1 << 30) - bytes(0)) / (bytes(1) - bytes(0));
  const int64_t batch = static_cast<int64_t>(rows) * 2 / 8 * 8;
  REQUIRE(batch < 4096);
  CHECK_THAT(error.hint(),
             ContainsSubstring("use batch size " + std::to_string(batch) + ", which should fit"));

  plan.trainer.devices = {kSecond, kSecond};  // both on one GPU: half of its memory each
  const double half = (.9 * 4 * (1 << 30) - bytes(0)) / (bytes(1) - bytes(0));
  const int64_t shared = static_cast<int64_t>(half) * 2 / 8 * 8;
  CHECK_THAT(out_of_memory(kTorchWords, plan).hint(),
             ContainsSubstring("use batch size " + std::to_string(shared) + ","));

  plan.batch_size = 40;  // it should have fitted: the proposal is smaller anyway
  CHECK_THAT(out_of_memory(kTorchWords, plan).hint(), ContainsSubstring("use batch size 16,"));
  plan.batch_size = 1;
  CHECK_THAT(out_of_memory(kTorchWords, plan).hint(), ContainsSubstring("use a smaller batch size"));
}

TEST_CASE("out of CPU memory: torch's words") {
  const auto error = out_of_memory("DefaultCPUAllocator: can't allocate memory", plan_on({kCpu}));
  CHECK(error.exit_code() == ExitCode::kMemory);
  CHECK_THAT(error.message(), ContainsSubstring("can't allocate"));
}

TEST_CASE("the plan of a run on GPUs says what is captured, and how gradients are summed") {
  auto plan = plan_on({kFirst});
  CHECK_THAT(describe(plan), ContainsSubstring("[cuda:0]: 1 replica\n"));
  CHECK_THAT(describe(plan), ContainsSubstring("captured once, then replayed as one CUDA graph"));
  plan = plan_on({kFirst, kSecond});
  plan.trainer.allreduce = Allreduce::kNccl;
  CHECK_THAT(describe(plan), ContainsSubstring("summed after backward (buckets of at most 25 MB), by NCCL"));
  CHECK_THAT(describe(plan), ContainsSubstring("as two CUDA graphs with the sums between them"));
  plan.trainer.shard = Shard::kOptimizer;
  CHECK_THAT(describe(plan), ContainsSubstring("the sums between them and the fetches behind them"));
  plan.trainer.shard = Shard::kNone;
  plan.trainer.replica.cuda_graph = CudaGraph::kOff;
  CHECK_THAT(describe(plan), ContainsSubstring("summed during backward"));
  CHECK_THAT(describe(plan), ContainsSubstring("queued kernel by kernel"));
  plan = plan_on({kFirst, kFirst});
  plan.world.place.processes = 2;
  plan.world.devices.assign(2, {kFirst, kFirst});
  plan.trainer.allreduce = Allreduce::kGloo;
  plan.parameter_count = 1'000'000;
  CHECK_THAT(describe(plan),
             ContainsSubstring("(gloo, staged through pinned host memory: 4.00 MB per step)"));
  plan.trainer.allreduce = Allreduce::kNccl;
  CHECK_FALSE(plan.wire_bytes());
  plan = plan_on({kFirst, kCpu});
  plan.trainer.threads = 3;
  CHECK_THAT(describe(plan), ContainsSubstring("[cuda:0, cpu]: 2 replicas with 3 threads each\n"));
  CHECK_THAT(describe(plan_on({kCpu, kCpu})), !ContainsSubstring("steps      "));
}

TEST_CASE("GPUs that cannot read each other's memory are named") {
  const torch::Device third(torch::kCUDA, 2);
  const auto all = [](int, int) { return true; };
  const auto not_with_second = [](int a, int b) { return a != 1 && b != 1; };
  CHECK_FALSE(peer_notice(std::vector{kFirst, kSecond, third}, all));
  CHECK_FALSE(peer_notice(std::vector{kFirst, third, kFirst, kCpu}, not_with_second));
  CHECK_THAT(*peer_notice(std::vector{kFirst, kSecond, third, kSecond}, not_with_second),
             ContainsSubstring("cuda:0 and cuda:1, cuda:1 and cuda:2 cannot read each other's memory"));
  const auto one_way = [](int a, int b) { return a < b; };
  CHECK(peer_notice(std::vector{kFirst, kSecond}, one_way));
}
