// The parts of `bench partition`: the mesh, the cuts, the comparison of gradients, the findings.
#include <lockstep/tests/catch.h>

#include <functional>
#include <numeric>

#include <lockstep/app/bench/partition/figures.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/cpus.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::cpus;

namespace {

PartitionTask lenet_task(int64_t rows) {
  const auto network = layered_network("lenet");
  return {network,
          initial_parameters(network, 1, torch::kFloat32),
          {torch::arange(rows * 784, torch::kFloat32).remainder(251).div(251).view({rows, 1, 28, 28}),
           torch::arange(rows).remainder(10)}};
}

}  // namespace

TEST_CASE("mesh: a received tensor is a copy in the same memory format, and is counted") {
  Mesh mesh(cpus(2), 1);
  torch::Tensor sent, received, next;
  mesh.run([&](int rank) {
    if (rank == 0) {
      sent = torch::arange(2. * 3 * 4 * 5).view({2, 3, 4, 5}).contiguous(torch::MemoryFormat::ChannelsLast);
      mesh.send(0, 1, sent);
      mesh.send(0, 1, sent + 1);
    } else {
      received = mesh.receive(1, 0);
      next = mesh.receive(1, 0);
    }
  });
  CHECK(torch::equal(next, received + 1));  // in the order of sending
  CHECK(torch::equal(received, sent));
  CHECK_FALSE(received.is_alias_of(sent));
  CHECK(received.strides() == sent.strides());
  const auto traffic = mesh.take_traffic();
  CHECK(traffic.bytes == 2 * 120 * 4);
  CHECK(traffic.synchronisations == 2);
  CHECK(mesh.take_traffic().bytes == 0);
}

TEST_CASE("mesh: parts of different sizes are gathered, partial sums shared out") {
  constexpr int kDevices = 3;
  const std::vector<int64_t> sizes = {3, 1, 2};
  Mesh mesh(cpus(kDevices), 1);
  // Element (i, c) of rank r's partial tensor: 1000 r + 10 i + c.
  const auto partial = [](int rank) {
    return 1000. * rank + 10 * torch::arange(2.).view({2, 1}) + torch::arange(6.).view({1, 6});
  };
  std::vector<torch::Tensor> gathered(kDevices), sums(kDevices);
  const std::vector<int64_t> begins = {0, 3, 4};
  mesh.run([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    gathered[r] = mesh.gather(rank, partial(rank).narrow(1, begins[r], sizes[r]), sizes);
    sums[r] = mesh.sum_own(rank, partial(rank), sizes);
  });
  const auto whole = torch::tensor({{0., 1., 2., 1003., 2004., 2005.}, {10., 11., 12., 1013., 2014., 2015.}},
                                   torch::kFloat32);
  const auto sum = 3000 + 30 * torch::arange(2.).view({2, 1}) + 3 * torch::arange(6.).view({1, 6});
  for (size_t r = 0; r < kDevices; ++r) {
    CHECK(torch::equal(gathered[r], whole));
    CHECK(torch::equal(sums[r], sum.narrow(1, begins[r], sizes[r])));
  }
  // Every device reads the elements it lacks: (n-1) x all 12 elements, twice.
  const auto traffic = mesh.take_traffic();
  CHECK(traffic.bytes == 2 * (kDevices - 1) * 12 * 4);
  CHECK(traffic.synchronisations == 2);
}

TEST_CASE("mesh: an error on any device ends the run, and the next run works") {
  constexpr int kDevices = 3;
  Mesh mesh(cpus(kDevices), 1);
  const std::vector<int64_t> sizes = {1, 1, 1};
  for (int failing = 0; failing < kDevices; ++failing) {
    CHECK_THROWS_WITH(mesh.run([&](int rank) {
      if (rank == failing) throw FailedError("it broke");
      mesh.gather(rank, torch::zeros({1, 1}), sizes);
    }),
                      "it broke");
    CHECK_THROWS_WITH(mesh.run([&](int rank) {
      if (rank == failing) throw FailedError("it broke again");
      mesh.receive(rank, failing);
    }),
                      "it broke again");
    std::vector<torch::Tensor> gathered(kDevices);
    mesh.run([&](int rank) {  // nothing is left of earlier runs
      gathered[static_cast<size_t>(rank)] = mesh.gather(rank, torch::full({1, 1}, rank + 1.), sizes);
    });
    for (const auto& all : gathered) CHECK(torch::equal(all, torch::tensor({{1., 2., 3.}}, torch::kFloat32)));
  }
}

TEST_CASE("partition: an error in one stage ends the step on all devices") {
  Mesh mesh(cpus(3), 1);
  auto bad_rows = lenet_task(6);
  bad_rows.batch[0] = torch::zeros({6, 2, 28, 28});  // the first layer takes 1 channel
  CHECK_THROWS_WITH(take_step(mesh, *pipeline_parallel(mesh, bad_rows, {0, 3, 6, 9}, 2), .1),
                    ContainsSubstring("channels"));
  auto bad_label = lenet_task(6);
  bad_label.batch[1][5] = 10;  // the last stage's second micro-batch
  CHECK_THROWS_WITH(take_step(mesh, *pipeline_parallel(mesh, bad_label, {0, 3, 6, 9}, 2), .1),
                    ContainsSubstring("out of bounds"));
  auto bad_middle = lenet_task(6);
  bad_middle.network.layers[3].kernel = 5;
  bad_middle.params[2] = torch::zeros({50, 19, 5, 5});  // the middle stage's
  CHECK_THROWS_WITH(take_step(mesh, *pipeline_parallel(mesh, bad_middle, {0, 3, 6, 9}, 2), .1),
                    ContainsSubstring("channels"));
  const auto good = lenet_task(6);
  CHECK_NOTHROW(take_step(mesh, *pipeline_parallel(mesh, good, {0, 3, 6, 9}, 2), .1));
}

TEST_CASE("partition: an error on one device ends a data parallel step on all") {
  for (const int64_t row : {0, 2, 5}) {  // on the first, the second and the third device
    Mesh mesh(cpus(3), 1);
    auto task = lenet_task(6);
    task.batch[1][row] = 10;
    CHECK_THROWS_WITH(take_step(mesh, *data_parallel(mesh, task), .1), ContainsSubstring("out of bounds"));
  }
}

TEST_CASE("partition: balanced_stages makes the most expensive stage as cheap as possible") {
  using Starts = std::vector<size_t>;
  CHECK(balanced_stages(std::vector<double>{5, 1, 1, 1, 5}, 3) == Starts{0, 1, 4, 5});
  CHECK(balanced_stages(std::vector<double>{1, 1, 1, 9}, 2) == Starts{0, 3, 4});
  CHECK(balanced_stages(std::vector<double>{9, 1, 1, 1}, 4) == Starts{0, 1, 2, 3, 4});
  CHECK(balanced_stages(std::vector<double>{4, 2}, 1) == Starts{0, 2});
  CHECK_THROWS_WITH(balanced_stages(std::vector<double>{1, 1}, 3), "2 layers cannot be cut into 3 stages");
}

// Compared with all cuts into three stages.
TEST_CASE("partition: no other cut has a cheaper most expensive stage") {
  const std::vector<double> costs = {3, 1, 4, 1, 5, 9, 2, 6};
  const auto most = [&](size_t a, size_t b) {
    const auto sum = [&](size_t begin, size_t end) {
      return std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(begin),
                             costs.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
    };
    return std::max({sum(0, a), sum(a, b), sum(b, costs.size())});
  };
  double best = 1e9;
  for (size_t a = 1; a + 1 < costs.size(); ++a) {
    for (size_t b = a + 1; b < costs.size(); ++b) best = std::min(best, most(a, b));
  }
  const auto starts = balanced_stages(costs, 3);
  CHECK(most(starts[1], starts[2]) == best);
}

TEST_CASE("partition: cuts that are impossible are refused") {
  Mesh eleven(cpus(11), 1);
  CHECK_THROWS_WITH(tensor_parallel(eleven, lenet_task(2)),
                    "linear 10 of lenet cannot be shared out over 11 devices");
  Mesh two(cpus(2), 1);
  CHECK_THROWS_WITH(pipeline_parallel(two, lenet_task(2), {0, 3, 9}, 3),
                    "2 rows cannot be cut into 3 micro-batches");
  CHECK_THROWS_WITH(layered_network("resnet18"), ContainsSubstring("'resnet18'"));
}

TEST_CASE("partition: a wrong gradient is found") {
  const Params expected = {torch::tensor({2., -4.}, torch::kFloat64), torch::zeros({2}, torch::kFloat64)};
  const auto with = [&](size_t tensor, double by) {
    Params gradients = {expected[0].clone(), expected[1].clone()};
    gradients[tensor][0] += by;
    return difference(gradients, expected).relative;
  };
  CHECK(difference(expected, expected).relative == 0);
  CHECK(difference(expected, expected).largest == 4);
  CHECK(with(0, 1e-8) == Approx(1e-8 / 4));
  CHECK(std::isinf(with(1, 1e-300)));  // a zero gradient must match exactly
  CHECK(std::isnan(with(0, std::nan(""))));
  CHECK_THROWS_AS(difference({expected[0]}, expected), UsageError);
  CHECK_THROWS_AS(difference({expected[0].view({1, 2}), expected[1]}, expected), UsageError);
}

TEST_CASE("partition: the check fails if any copy has wrong gradients") {
  const Params expected = {torch::tensor({2., -4.}, torch::kFloat64)};
  const Params nearly = {torch::tensor({2. + 3e-10, -4.}, torch::kFloat64)};  // differs by 7.5e-11 of 4
  const Params wrong = {torch::tensor({2. + 6e-10, -4.}, torch::kFloat64)};
  const Params not_a_number = {torch::tensor({std::nan(""), -4.}, torch::kFloat64)};
  CHECK(check_against("it", {expected, nearly}, expected).ok);
  for (const auto& copies : {std::vector{expected, wrong}, std::vector{wrong, expected},
                             std::vector{not_a_number, expected}, std::vector{expected, not_a_number}}) {
    CHECK_FALSE(check_against("it", copies, expected).ok);
  }
  CHECK_THAT(check_against("it", {wrong}, expected).detail,
             ContainsSubstring("1.5e-10") && ContainsSubstring("1e-10"));
}

TEST_CASE("partition: the gradients of every scheme are checked") {
  Mesh mesh(cpus(2), 1);
  BenchPartitionOptions options;
  options.micro_batches = 2;
  const auto checks = check_gradients(mesh, layered_network("lenet"), {0, 3, 9}, options);
  CHECK(checks.size() == 4);
  for (const auto& check : checks) CHECK(check.ok);
}

namespace {

SchemeFigures scheme(const std::string& name, double over_one, int64_t bytes, int64_t synchronisations,
                     int64_t parameters, int64_t activations) {
  return {.scheme = name,
          .seconds = Seconds(5, over_one),
          .over_one = over_one,
          .cost = {.traffic = {bytes, synchronisations},
                   .parameter_bytes = parameters,
                   .activation_bytes = activations}};
}

PartitionFigures figures() {
  PartitionFigures made{.network = "net", .devices = "[a, b]", .size = 2, .at_once = 2};
  made.stages = {"x", "y"};
  made.stage_shares = {.4, .6};
  made.one = scheme("one device", 1, 0, 0, 1000, 1000);
  made.pipeline = scheme("pipeline parallel", 1, 4'000'000, 2, 600, 700);
  made.pipeline_micro_batches = scheme("pipeline parallel, micro-batches", .8, 4'000'000, 8, 600, 700);
  made.pipeline_micro_batches.micro_batches = 4;
  made.micro_ratio = .8;
  made.tensor_parallel = scheme("tensor parallel", 1.25, 8'000'000, 7, 500, 1500);
  made.data_parallel = scheme("data parallel", .625, 1'000'000, 1, 1000, 500);
  return made;
}

std::string text(const PartitionFigures& figures) {
  std::string all;
  for (const auto& finding : partition_findings(figures)) all += finding.sentence + "\n";
  return all;
}

}  // namespace

TEST_CASE("partition: findings as the chapter expects them") {
  const auto found = text(figures());
  for (const auto* said : {
           "x (40 %) | y (60 %)",
           "data parallel moves the fewest bytes, 1.00 MB per step; pipeline parallel 4.0 x as many, tensor "
           "parallel 8.0 x as many",
           "so it does here",
           "tensor parallel synchronises most often, 7 times per step; pipeline parallel 2, data parallel 1",
           "pipeline parallel with 4 micro-batches 8, no less often than tensor parallel",
           "it does so most often of the three here",
           "the fastest is data parallel, 1.60 x as fast as one device (80 % of the ideal 2 x)",
           // 1 - 1 / (2 x .8); (2-1)/(4+2-1); 1 - 4 / (2 (1 + 3 x .6))
           "50 % of the time with one micro-batch (theory for even stages: (n-1)/n = 50 %), 38 % with 4 "
           "((n-1)/(m+n-1) = 20 %; 29 % with these stages",
           "pipeline parallel 60.0 % (70 %), tensor parallel 50.0 % (150 %), data parallel 100.0 % (50 %)",
           "more parameters: pipeline parallel and tensor parallel; no room: data parallel",
       }) {
    CHECK_THAT(found, ContainsSubstring(said));
  }
}

TEST_CASE("partition: findings where the chapter is contradicted") {
  auto other = figures();
  std::swap(other.tensor_parallel.cost.traffic, other.pipeline.cost.traffic);
  other.pipeline_micro_batches.cost.traffic.synchronisations = 1;
  other.data_parallel.over_one = 1.5;
  other.pipeline_micro_batches.over_one = 1.1;
  other.pipeline.cost.parameter_bytes = 998;
  const auto found = text(other);
  for (const auto* said : {
           "here it does not",
           "with 4 micro-batches 1, less often than tensor parallel",
           "here others do so as often or more",
           "the fastest, pipeline parallel, takes 1.00 x as long",
           "recommends data parallel, which is 0.67 x as fast",
           "more parameters: tensor parallel; no room: pipeline parallel and data parallel",
       }) {
    CHECK_THAT(found, ContainsSubstring(said));
  }
}

TEST_CASE("partition: too few repetitions give no findings on time; devices that share cores get no theory") {
  auto few = figures();
  for (auto* one :
       {&few.one, &few.pipeline, &few.pipeline_micro_batches, &few.tensor_parallel, &few.data_parallel}) {
    one->over_one.reset();
  }
  few.micro_ratio.reset();
  CHECK_THAT(text(few), !ContainsSubstring("fast") && !ContainsSubstring("theory"));
  auto sharing = figures();
  sharing.at_once = 1;
  CHECK_THAT(text(sharing), ContainsSubstring("160 % of the ideal 1.0 x") && !ContainsSubstring("(n-1)"));
}
