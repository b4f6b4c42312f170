// What benchmarks compute and print without measuring. Expected values are by hand.
#include <lockstep/tests/catch.h>

#include <lockstep/app/bench/allreduce/sizes.h>
#include <lockstep/app/bench/scaling/model.h>
#include <lockstep/app/bench/step/phases.h>
#include <lockstep/app/report/bench_options.h>
#include <lockstep/app/report/report.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("numbers of bytes are read and written in powers of 1024") {
  CHECK(parse_bytes("8") == 8);
  CHECK(parse_bytes("512K") == 524288);
  CHECK(parse_bytes("16m") == 16777216);
  CHECK(parse_bytes("1G") == 1073741824);
  CHECK(parse_bytes("16MiB") == 16777216);
  CHECK(parse_bytes("512KiB") == 524288);
  CHECK(parse_bytes("8kb") == 8192);
  CHECK(parse_bytes("010") == 10);
  for (const auto* text :
       {"", "K", "8KX", "8iB", "0x10", "-1", "1.5M", "8 K", "99999999999999999999", "2000G", "8T"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_bytes(text), UsageError);
  }
  CHECK(bytes_text(8) == "8");
  CHECK(bytes_text(516272) == "516272");
  CHECK(bytes_text(524288) == "512K");
  CHECK(bytes_text(134217728) == "128M");
  CHECK(bytes_text(int64_t{3} << 30) == "3G");
}

TEST_CASE("a row is aligned with its titles") {
  const std::vector<Column> columns = {{.key = "way", .title = "way", .width = 6, .digits = kText},
                                       {.key = "bytes", .title = "size", .unit = "B", .width = 5},
                                       {.key = "ms", .title = "time", .unit = "ms", .width = 7, .digits = 2}};
  CHECK(table_heading(columns) == "# way      size     time\n#           (B)     (ms)");
  CHECK(table_line(columns, {{"way", "root"}, {"bytes", 64}, {"ms", 1.005}, {"more", 1}}) ==
        "  root       64     1.00");
  CHECK(table_line(columns, {{"way", "none"}, {"bytes", 0}, {"ms", nullptr}}) == "  none        0        -");
  CHECK(table_line(columns, {{"way", "none"}}) == "  none        -        -");
}

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

TEST_CASE("phases_of() adds up the phases of a traced step") {
  using Track = Trace::Track;
  const auto event = [](const char* name, int rank, Track track, double begin, double end) {
    return Trace::Event{.name = name, .rank = rank, .track = track, .begin = begin, .end = end};
  };
  const std::vector<Trace::Event> events = {
      event("gather", 0, Track::kCompute, 0, 1),
      event("forward", 0, Track::kCompute, 1, 4),
      event("backward", 0, Track::kCompute, 4, 10),
      event("allreduce bucket 0", 0, Track::kCommunication, 8, 12),
      event("update", 0, Track::kCompute, 12, 13),
      // Rank 1 computes on a GPU, in two micro-batches; its host's spans do not count.
      event("forward", 1, Track::kCompute, 0, .1),
      event("gather", 1, Track::kDeviceCompute, 0, 2),
      event("forward", 1, Track::kDeviceCompute, 2, 3),
      event("backward", 1, Track::kDeviceCompute, 3, 5),
      event("forward", 1, Track::kDeviceCompute, 5, 6),
      event("backward", 1, Track::kDeviceCompute, 6, 8),
      event("update", 1, Track::kDeviceCompute, 12, 15),
  };
  const auto phases = phases_of(events, {Track::kCompute, Track::kDeviceCompute}, 1);
  CHECK(phases.data == Approx((1 + 2) / 2.0));
  CHECK(phases.forward == Approx((3 + 2) / 2.0));
  CHECK(phases.backward == Approx((6 + 4) / 2.0));
  CHECK(phases.sync == Approx((2 + 4) / 2.0));
  CHECK(phases.update == Approx((1 + 3) / 2.0));
  CHECK(phases_of(events, {Track::kCompute, Track::kDeviceCompute}, 2).sync == Approx((2 + 4) / 4.0));
}

TEST_CASE("a benchmark that fails ends by its own error, though its results cannot be written either") {
  const lockstep::testing::TempFolder folder;
  BenchOptions options;
  options.json = (folder / "gone/bench.json").string();
  std::filesystem::create_directory(folder / "gone");
  BenchReport report("nothing", options, Json::object());
  CHECK_THROWS_AS(report.run([&] {
    std::filesystem::remove_all(folder / "gone");
    throw DeviceError("the GPU is lost");
  }),
                  DeviceError);
}
