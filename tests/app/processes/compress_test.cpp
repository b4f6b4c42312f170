// --compress: what the plan says of it, and what it cannot be combined with.
#include <lockstep/tests/catch.h>

#include <cstddef>
#include <string>
#include <vector>

#include <lockstep/app/processes/train_world.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/plan/plan_bytes.h>
#include <lockstep/app/train/plan/recipe.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/processes/worlds.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::world_of;

namespace {

TrainFlags lenet_flags() {
  TrainFlags flags;
  flags.data.path = "synthetic";
  flags.data.limit_train = 64;
  flags.data.limit_test = 8;
  flags.trainer.threads = 1;
  return flags;
}

}  // namespace

// S = 4 x 129,068 bytes of gradients (docs/scaling-out.md, "What travels").
TEST_CASE("a plan says what each process sends per step") {
  const auto plan_of = [](const std::vector<size_t>& replicas, const auto& change) {
    auto flags = lenet_flags();
    change(flags);
    return make_train_plan(flags, {}, world_of(0, replicas));
  };
  const auto none = [](TrainFlags&) {};
  const auto bf16 = [](TrainFlags& flags) { flags.trainer.compress = Compress::kBf16; };
  const auto fp16 = [](TrainFlags& flags) { flags.trainer.compress = Compress::kFp16; };
  const auto fp64 = [](TrainFlags& flags) { flags.trainer.replica.precision = Precision::kFp64; };
  const auto invariant = [](TrainFlags& flags) { flags.trainer.replica.invariant = true; };
  CHECK(plan_of({1, 1}, none).parameter_count == 129'068);
  CHECK(plan_of({1, 1}, none).wire_bytes() == 516'272);
  CHECK(plan_of({3, 1}, none).wire_bytes() == 516'272);
  CHECK(plan_of({1, 1, 1, 1}, none).wire_bytes() == 774'408);
  CHECK(plan_of({1, 1}, bf16).wire_bytes() == 258'136);
  CHECK(plan_of({1, 1, 1, 1}, fp16).wire_bytes() == 387'204);
  CHECK(plan_of({1, 1}, fp64).wire_bytes() == 1'032'544);
  CHECK(plan_of({3, 1}, invariant).wire_bytes() == 1'548'816);
  CHECK_THAT(describe(plan_of({1, 1}, bf16)), ContainsSubstring("(gloo, bf16: 0.26 MB per step)"));
  CHECK_THAT(describe(plan_of({1, 1}, fp16)), ContainsSubstring("(gloo, fp16: 0.26 MB per step)"));
  CHECK_THAT(describe(plan_of({3, 1}, invariant)),
             ContainsSubstring("(between processes: 1.55 MB per step)"));
  const auto fields = plan_fields(plan_of({1, 1}, bf16));
  CHECK(fields.at("compress") == "bf16");
  CHECK(fields.at("wire_bytes") == 258'136);
  auto flags = lenet_flags();
  flags.devices = "cpux2";
  const auto alone = make_train_plan(flags);
  CHECK(plan_fields(alone).at("compress") == "none");
  CHECK(plan_fields(alone).at("wire_bytes") == 0);
}

// LeNet's parameters have 180, 20, 25000, 50, 102400, 128, 1280 and 10 numbers, each filled up to a multiple
// of 16: 129,120 in all, which is one bucket.
TEST_CASE("the memory estimate counts what compressed gradients travel in") {
  // The bytes that --compress adds in the first process.
  const auto added = [](const std::vector<size_t>& replicas, SyncMode sync, Compress compress) {
    auto flags = lenet_flags();
    flags.sync = sync;
    const auto plain = host_bytes(make_train_plan(flags, {}, world_of(0, replicas)));
    flags.trainer.compress = compress;
    return host_bytes(make_train_plan(flags, {}, world_of(0, replicas))) - plain;
  };
  for (const auto compress : {Compress::kBf16, Compress::kFp16}) {
    // 2 bytes each to send and to receive, and this process's part in float.
    CHECK(added({1, 1}, SyncMode::kOverlapped, compress) == 4 * 129'120 + 4 * 64'560);
    CHECK(added({3, 1}, SyncMode::kBucketed, compress) == 4 * 129'120 + 4 * 64'560);
    // From three processes on plain sums travel, too: 4 bytes each to send and to receive.
    CHECK(added({1, 1, 1, 1}, SyncMode::kBucketed, compress) == 4 * 129'120 + 4 * 32'280 - 8 * 129'120);
    CHECK(added({1, 1}, SyncMode::kParameterwise, compress) == 4 * 102'400 + 4 * 51'200);
    // Three parts are uneven there: 34,134 each for 102,400.
    CHECK(added({1, 1, 1}, SyncMode::kParameterwise, compress) ==
          4 * 3 * 34'134 + 4 * 34'134 - 8 * 3 * 34'134);
    CHECK(added({1, 1}, SyncMode::kOverlapped, Compress::kNone) == 0);
  }
}

TEST_CASE("a plan with --compress needs other processes") {
  auto flags = lenet_flags();
  flags.trainer.compress = Compress::kBf16;
  CHECK_THROWS_AS(make_train_plan(flags), UsageError);
}
