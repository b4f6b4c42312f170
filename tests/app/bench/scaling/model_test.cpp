// The model of `bench scaling --predict`. Expected values are by hand.
#include <lockstep/tests/catch.h>
#include <vector>

#include <lockstep/app/bench/scaling/model.h>
#include <lockstep/support/error.h>

using namespace lockstep;

// Sums over NVIDIA's links, by hand: LeNet's 129,068 and ResNet-18's 11,175,818 gradients in float.
TEST_CASE("Link::seconds() follows the alpha-beta model") {
  const double lenet = 4 * 129'068, resnet18 = 4 * 11'175'818;
  const auto nvlink4 = parse_link("nvlink4"), pcie5 = parse_link("pcie5");
  CHECK(nvlink4.seconds(lenet, 1) == 0);
  CHECK(nvlink4.seconds(lenet, 2) == Approx(14e-6).margin(.5e-6));
  CHECK(nvlink4.seconds(lenet, 8) == Approx(28e-6).margin(.5e-6));
  CHECK(nvlink4.seconds(resnet18, 2) == Approx(161e-6).margin(.5e-6));
  CHECK(nvlink4.seconds(resnet18, 8) == Approx(255e-6).margin(.5e-6));
  CHECK(pcie5.seconds(lenet, 2) == Approx(33e-6).margin(.5e-6));
  CHECK(pcie5.seconds(lenet, 8) == Approx(75e-6).margin(.5e-6));
  CHECK(pcie5.seconds(resnet18, 2) == Approx(1.14e-3).margin(5e-6));
  CHECK(pcie5.seconds(resnet18, 8) == Approx(2.65e-3).margin(5e-6));
  const auto own = parse_link("10,2");  // 10 us, 2 GB/s
  CHECK(own.seconds(8e6, 4) == Approx(10e-6 + 1.5 * 8e6 / 2e9));
  CHECK(own.overlaps);
  for (const auto* text :
       {"", "nvlink", "10", "10,", ",2", "0,2", "10,-1", "10,2,3", "a,b", "10,1e308", "5e-324,2"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_link(text), UsageError);
  }
}

TEST_CASE("a measured link reproduces the measurements") {
  const auto link = measured_link(50e-6, 250e-6, 8e6, 2, /*overlaps=*/false);
  CHECK(link.seconds(8e6, 2) == Approx(250e-6));
  CHECK(link.seconds(0, 2) == Approx(50e-6));
  CHECK(link.seconds(8e6, 4) == Approx(50e-6 + 1.5 * 200e-6));
  const auto noisy = measured_link(60e-6, 40e-6, 8e6, 2, false);  // the larger sum was faster
  CHECK(noisy.seconds(8e6, 2) > noisy.seconds(0, 2));
}

TEST_CASE("fit_compute() finds the line through three steps") {
  const std::vector<double> rows = {256, 128, 64};
  const auto exact = fit_compute(rows, std::vector<double>{2 + 256 * .5, 2 + 128 * .5, 2 + 64 * .5});
  CHECK(exact.fixed == Approx(2));
  CHECK(exact.per_row == Approx(.5));
  CHECK(exact.seconds(32) == Approx(18));
  // Twice the rows take more than twice the time, so the fixed part is zero.
  const auto steep = fit_compute(rows, std::vector<double>{600, 250, 100});
  CHECK(steep.fixed == 0);
  CHECK(steep.per_row > 0);
  const auto flat = fit_compute(rows, std::vector<double>{5, 6, 7});
  CHECK(flat.per_row == 0);
  CHECK(flat.fixed == Approx(6).margin(.5));
  CHECK_THROWS_AS(fit_compute(std::vector<double>{64, 64}, std::vector<double>{1, 1}), UsageError);
  CHECK_THROWS_AS(fit_compute(std::vector<double>{64}, std::vector<double>{1}), UsageError);
}

TEST_CASE("sums are fully exposed on CPUs, and beyond backward on devices with links") {
  const ComputeModel compute{.fixed = 1e-3, .per_row = 10e-6};  // 2e-3 for 100 rows
  auto link = parse_link("100,1");                              // 100 us, 1 GB/s
  link.overlaps = false;
  const auto on_cores = predict_step(compute, link, 100, 3e6, 2);
  CHECK(on_cores.compute == Approx(2e-3));
  CHECK(on_cores.exposed == Approx(3.1e-3));
  CHECK(on_cores.step() == Approx(5.1e-3));
  link.overlaps = true;
  CHECK(predict_step(compute, link, 100, 3e6, 2).exposed == Approx(3.1e-3 - 2e-3 * 2 / 3));
  // The last bucket, at most a megabyte, is never hidden.
  CHECK(predict_step(compute, link, 1000, 3e6, 2).exposed == Approx(100e-6 + 1048576 / 1e9));
  CHECK(predict_step(compute, link, 100, 3e6, 1).exposed == 0);
}

// A step of 2 ms, of which the update of 4 MB in buckets of 1 and 3 MB takes .8 ms, over 1 GB/s.
TEST_CASE("with --shard half of the sum comes before the update, whose parts are fetched beside it") {
  const ComputeModel compute{.fixed = 1e-3, .per_row = 10e-6};
  const double bytes = 4e6;
  auto link = parse_link("100,1");
  const auto step = [&](int n, bool shared) {
    return predict_step(compute, link, 100, bytes, n,
                        {.seconds = .8e-3, .bytes = {1e6, 3e6}, .owners = shared ? n : 1});
  };
  // Backward hides 2/3 of 2 ms of the 2.05 in which the parts are summed. The fetches take .5125 and 1.5375
  // ms, and begin after .1 and .4 ms of the update, but one after the other.
  const auto two = step(2, true);
  CHECK(two.sums == Approx(2.05e-3));
  CHECK(two.fetches == Approx(2.05e-3));
  CHECK(two.update == Approx(.4e-3));
  CHECK(two.compute == Approx(1.6e-3));
  CHECK(two.exposed == Approx((2.05 - 4. / 3) * 1e-3 + (.1 + .5125 + 1.5375 - .4) * 1e-3));
  CHECK(step(2, false).step() == Approx((2 + 4.1 - 4. / 3) * 1e-3));
  CHECK(step(2, false).fetches == 0);
  CHECK(step(1, true).step() == Approx(2e-3));
  // Cores that compute also sum: both halves are exposed, and the sum of both is that of a whole one.
  link.overlaps = false;
  struct Row {
    int n;
    double sum, update;  // ms
  };
  for (const auto& [n, sum, update] :
       {Row{2, 4.1, .4}, Row{64, 7.975, .0125}, Row{1024, 8.0921875, .00078125}}) {
    INFO(n << " replicas");
    const auto whole = step(n, false), shared = step(n, true);
    CHECK(whole.sums == Approx(sum * 1e-3));
    CHECK(whole.step() == Approx((2 + sum) * 1e-3));
    CHECK(shared.sums + shared.fetches == Approx(sum * 1e-3));
    CHECK(shared.update == Approx(update * 1e-3));
    CHECK(shared.step() == Approx((2 - .8 + update + sum) * 1e-3));
  }
}
