// The prediction of `bench scaling` for several processes, and what they agree on.
#include <lockstep/tests/catch.h>

#include <memory>
#include <vector>

#include <lockstep/app/bench/scaling/case.h>
#include <lockstep/app/bench/scaling/model.h>
#include <lockstep/tests/support/thread_processes.h>

using namespace lockstep;
using lockstep::testing::run_processes;

namespace {

constexpr double kRows = 8;

// 10 ms for eight rows.
const ComputeModel kCompute{.fixed = 2e-3, .per_row = 1e-3};

// Posted 4, 6 and 8 ms after the step's begin; backward ends after 8 ms.
const BucketTimes kBuckets{.ready = {.4, .6, .8}, .bytes = {1e6, 2e6, 1e6}, .computed = .8};

Link link_of(double bytes_per_second, bool overlaps = true) {
  return {.name = "test",
          .alpha_2 = 0,
          .alpha_8 = 0,
          .beta_2 = bytes_per_second,
          .beta_8 = bytes_per_second,
          .overlaps = overlaps};
}

double exposed_ms(const Link& link, int n, const Link* busy = nullptr) {
  const auto predicted = predict_process_step(kCompute, kBuckets, link, busy, kRows, n);
  CHECK(predicted.compute == Approx(10e-3));
  return 1e3 * predicted.exposed;
}

}  // namespace

TEST_CASE("prediction for processes: what is left of the sums when backward ends, by hand") {
  // At 1 GB/s the sums of two processes take 1, 2 and 1 ms: 4-5, 6-8, 8-9. One is left over.
  CHECK(exposed_ms(link_of(1e9), 2) == Approx(1));
  // At a quarter: 4-8, 8-16, 16-20.
  CHECK(exposed_ms(link_of(.25e9), 2) == Approx(12));
  // Between four processes each sends 3/2 of the bytes: 4-5.5, 6-9, 9-10.5.
  CHECK(exposed_ms(link_of(1e9), 4) == Approx(2.5));
  CHECK(exposed_ms(link_of(1e9), 1) == 0);
}

TEST_CASE("prediction for processes: cores that compute also sum") {
  CHECK(exposed_ms(link_of(1e9, /*overlaps=*/false), 2) == Approx(4));
  // At least what such sums cost on the cores.
  const auto slow = link_of(.5e9, /*overlaps=*/false), fast = link_of(8e9, /*overlaps=*/false);
  CHECK(exposed_ms(link_of(1e9), 2, &slow) == Approx(8));
  CHECK(exposed_ms(link_of(1e9), 2, &fast) == Approx(1));
}

// The update takes 2 of the 10 ms, and half of that between two processes.
TEST_CASE("prediction for processes with --shard: what is left of sums and of fetches, by hand") {
  const UpdateModel update{.seconds = 2e-3, .bytes = kBuckets.bytes, .owners = 2};
  const auto predicted = [&](const Link& link, const Link* busy) {
    const auto step = predict_process_step(kCompute, kBuckets, link, busy, kRows, 2, update);
    CHECK(step.compute == Approx(9e-3));
    CHECK(step.update == Approx(1e-3));
    return step;
  };
  // The parts are summed in 4-4.5, 6-7, 8-8.5: .5 is left. Updates end after .25, .75 and 1 ms, fetches after
  // .75, 1.75 and 2.25.
  const auto fast = predicted(link_of(1e9), nullptr);
  CHECK(fast.sums == Approx(2e-3));
  CHECK(fast.fetches == Approx(2e-3));
  CHECK(fast.exposed == Approx(.5e-3 + 1.25e-3));
  // Both halves, where the cores that compute also sum.
  CHECK(predicted(link_of(1e9, /*overlaps=*/false), nullptr).exposed == Approx(4e-3));
  const auto slow = link_of(.5e9, /*overlaps=*/false);
  CHECK(predicted(link_of(1e9), &slow).exposed == Approx(8e-3));
}

TEST_CASE("bench scaling measures and predicts powers of two, and all") {
  const auto sizes = [](int most) {
    const auto worlds = worlds_up_to(most);
    return std::vector<int>(worlds.begin(), worlds.end());
  };
  CHECK(sizes(1) == std::vector<int>{1});
  CHECK(sizes(2) == std::vector<int>{1, 2});
  CHECK(sizes(7) == std::vector<int>{1, 2, 4, 7});
  CHECK(sizes(8) == std::vector<int>{1, 2, 4, 8});
}

TEST_CASE("all processes get the largest of their numbers") {
  const std::vector<std::vector<double>> given = {{1, -3, 0}, {5, -2, 0}, {2, -4, 7}};
  std::vector<std::vector<double>> got(given.size());
  run_processes(3, [&](int process, const std::shared_ptr<ProcessGroup>& group) {
    LargestOfAll largest(group.get());
    for (const double own : given[static_cast<size_t>(process)]) {
      got[static_cast<size_t>(process)].push_back(largest.of(own));
    }
  });
  for (const auto& each : got) CHECK(each == std::vector<double>{5, -2, 7});
  CHECK(LargestOfAll(nullptr).of(-1) == -1);
}

TEST_CASE("all processes learn whether one of them says yes") {
  const std::vector<std::vector<bool>> given = {
      {false, true, false}, {false, false, true}, {false, false, false}};
  std::vector<std::vector<bool>> got(given.size());
  run_processes(3, [&](int process, const std::shared_ptr<ProcessGroup>& group) {
    LargestOfAll largest(group.get());
    for (const bool own : given[static_cast<size_t>(process)]) {
      got[static_cast<size_t>(process)].push_back(largest.any(own));
      largest.barrier();
    }
  });
  for (const auto& each : got) CHECK(each == std::vector<bool>{false, true, true});
}
