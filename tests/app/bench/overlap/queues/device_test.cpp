// Devices of `bench overlap` on the CPU: what they compute and copy, and in which order.
#include <lockstep/tests/catch.h>
#include <functional>
#include <map>

#include <lockstep/app/bench/overlap/numbers.h>
#include <lockstep/app/bench/overlap/queues/copy.h>
#include <lockstep/app/bench/overlap/queues/independent_operators.h>
#include <lockstep/app/bench/overlap/queues/two_layer_network.h>
#include <lockstep/parallel/devices.h>

using namespace lockstep;

namespace {

using Cores = std::vector<int>;

OverlapDevices cpus(int count, int64_t size, uint64_t seed) {
  return make_overlap_devices({.devices = parse_devices("cpux" + std::to_string(count))}, size, seed);
}

void run_one(const std::function<void(TaskGraph& graph)>& add) {
  TaskGraph graph;
  add(graph);
  graph.run();
}

std::vector<torch::Tensor> squares(const OverlapDevices& devices) {
  std::vector<torch::Tensor> results;
  for (const auto& device : devices) {
    const auto exact = device->input().to(torch::kFloat64);
    results.push_back(exact.mm(exact).to(torch::kFloat32));
  }
  return results;
}

std::map<std::pair<int, std::string>, Trace::Event> by_name(const Trace& trace) {
  std::map<std::pair<int, std::string>, Trace::Event> events;
  for (const auto& event : trace.events()) events[{event.rank, event.name}] = event;
  return events;
}

}  // namespace

TEST_CASE("device_names() adds the place in the list to devices listed twice") {
  const torch::Device cpu(torch::kCPU), gpu(torch::kCUDA, 0), other(torch::kCUDA, 1);
  using Names = std::vector<std::string>;
  CHECK(device_names({cpu, cpu}) == Names{"cpu:0", "cpu:1"});
  CHECK(device_names({gpu, other}) == Names{"cuda:0", "cuda:1"});
  CHECK(device_names({gpu, gpu}) == Names{"cuda:0/0", "cuda:0/1"});
  CHECK(device_names({gpu, cpu}) == Names{"cuda:0", "cpu"});
}

TEST_CASE("copier_cores() are idle cores, or else the next device's") {
  CHECK(copier_cores({0, 1}, 0, 2, 1) == Cores{1});
  CHECK(copier_cores({0, 1}, 1, 2, 1) == Cores{0});
  CHECK(copier_cores({2, 3, 6, 7}, 0, 2, 2) == Cores{6, 7});
  CHECK(copier_cores({2, 3, 6, 7}, 1, 2, 2) == Cores{2, 3});
  CHECK(copier_cores({2, 3, 6, 7}, 0, 2, 1) == Cores{6, 7});
  CHECK(copier_cores({2, 3, 6, 7}, 1, 2, 1) == Cores{6, 7});
  CHECK(copier_cores({5}, 0, 2, 1) == Cores{5});  // too few cores for all
}

TEST_CASE("every way computes each device's results and copies all of them") {
  const auto all = cpus(3, 23, 5);
  const auto expected = squares(all);
  CHECK_FALSE(torch::allclose(expected[0], expected[1]));
  for (const auto& way : copy_ways(false)) {
    INFO(way.name);
    CHECK(wrong_slots(all, way) == 0);
    compute_and_copy(all, way, 9, 2);
    for (size_t d = 0; d < all.size(); ++d) {
      CHECK(all[d]->wrong_results(expected[d]) == 0);
      CHECK(all[d]->wrong_copies(way.memory) == 0);
      CHECK(all[d]->wrong_results(expected[(d + 1) % 3]) == OverlapDevice::kSlots);
    }
  }
  // Slots that were not written are wrong.
  all[0]->fill_with_nan();
  CHECK(all[0]->wrong_results(expected[0]) == OverlapDevice::kSlots);
  CHECK(all[0]->wrong_copies(HostMemory::kPageable) == OverlapDevice::kSlots);
  run_one([&](TaskGraph& graph) { all[0]->add_matmul(graph, 1); });
  CHECK(all[0]->wrong_results(expected[0]) == OverlapDevice::kSlots - 1);
  run_one([&](TaskGraph& graph) { all[0]->add_copy(graph, all[0]->copier(), 1, HostMemory::kPageable, 1); });
  CHECK(all[0]->wrong_copies(HostMemory::kPageable) == OverlapDevice::kSlots - 1);
}

TEST_CASE("overlapped copies follow their matmuls, and matmuls the copies of the results they overwrite") {
  constexpr int kIterations = 11;
  const auto all = cpus(2, 40, 1);
  for (int round = 0; round < 20; ++round) {
    Trace trace;
    compute_and_copy(all, copy_ways(false).back(), kIterations, 2, &trace);
    const auto events = by_name(trace);
    REQUIRE(events.size() == 2 * 2 * kIterations);
    REQUIRE(copies_ahead(trace.events(), 0) == 0);
    for (int rank = 0; rank < 2; ++rank) {
      for (int i = 0; i < kIterations; ++i) {
        const auto& copy = events.at({rank, "copy " + std::to_string(i)});
        REQUIRE(copy.track == Trace::Track::kCommunication);
        REQUIRE(copy.begin_order > events.at({rank, "matmul " + std::to_string(i)}).end_order);
        if (i < OverlapDevice::kSlots) continue;
        const auto before = "copy " + std::to_string(i - OverlapDevice::kSlots);
        REQUIRE(events.at({rank, "matmul " + std::to_string(i)}).begin_order >
                events.at({rank, before}).end_order);
      }
    }
  }
}

TEST_CASE("a device receives the other's results") {
  const auto all = cpus(2, 16, 3);
  compute_and_copy(all, copy_ways(false).front(), OverlapDevice::kSlots, 1);
  CHECK(all[0]->differing_results(*all[1]) == OverlapDevice::kSlots);
  run_one([&](TaskGraph& graph) { all[1]->add_receive(graph, *all[0], 2); });
  CHECK(all[0]->differing_results(*all[1]) == OverlapDevice::kSlots - 1);
}

TEST_CASE("independent operators are right in both ways and use the stated queues") {
  const auto operands = make_operands(torch::kCPU, 5, 19, 4);
  for (const bool side : {false, true}) {
    IndependentOperators operators(torch::kCPU, 2, 5, side);
    operators.use(operands);
    CHECK(operators.queues() == (side ? 2 : 1));
    CHECK(operators.wrong_results() == 0);
    CHECK(operators.seconds(2) > 0);
    Trace trace;
    operators.trace_once(trace);
    const auto events = by_name(trace);
    REQUIRE(events.size() == 5);
    for (int j = 0; j < 5; ++j) CHECK(events.count({side ? j % 2 : 0, "matmul " + std::to_string(j)}) == 1);
    if (!side) CHECK(most_at_once(trace.events()) == 1);
  }
}

TEST_CASE("the two-layer network on several devices agrees with autograd on one") {
  const auto count = GENERATE(2, 3);
  WorkQueue host({.rank = count});
  TwoLayerNetwork network(cpus(count, 4, 1), host, 26, 9);
  for (const bool serially : {false, true, false}) {
    network.reset();
    CHECK(network.error().weights > 1e-3);  // no step was taken
    serially ? void(network.graph().run_serially()) : void(network.graph().run());
    CHECK(network.error().gradients < 1e-5);
    CHECK(network.error().weights < 1e-5);
    CHECK(network.differing_weights() == 0);
  }
}
