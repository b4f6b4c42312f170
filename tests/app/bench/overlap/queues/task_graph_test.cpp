// TaskGraph: order, overlap and the slowest chain.
#include <ATen/CPUGeneratorImpl.h>
#include <lockstep/tests/catch.h>
#include <chrono>
#include <future>
#include <map>
#include <stdexcept>

#include <lockstep/app/bench/overlap/queues/dependent_matmuls.h>
#include <lockstep/app/bench/overlap/queues/task_graph.h>
#include <lockstep/support/error.h>

using namespace lockstep;

namespace {

std::map<std::string, Trace::Event> events_by_name(const Trace& trace) {
  std::map<std::string, Trace::Event> events;
  for (const auto& event : trace.events()) events[event.name] = event;
  return events;
}

}  // namespace

TEST_CASE("a task starts when the tasks before it are done, on any queue") {
  WorkQueue one({.rank = 0}), two({.rank = 1});
  TaskGraph graph;
  int made[5] = {};
  const auto a = graph.add("a", one, {}, [&] { made[0] = 3; });
  const auto b = graph.add("b", two, {}, [&] { made[1] = 5; });
  const auto c = graph.add("c", one, {a, b}, [&] { made[2] = made[0] * made[1]; });
  const auto d = graph.add("d", two, {c}, [&] { made[3] = made[2] + made[1]; });
  graph.add("e", one, {c, d}, [&] { made[4] = made[3] - made[2]; });
  const bool serially = GENERATE(false, true);
  for (int round = 0; round < 200; ++round) {
    std::fill(std::begin(made), std::end(made), -1);
    Trace trace;
    for (auto* queue : {&one, &two}) queue->trace_to(&trace);
    serially ? void(graph.run_serially()) : void(graph.run());
    for (auto* queue : {&one, &two}) queue->trace_to(nullptr);
    REQUIRE(made[4] == 5);
    const auto events = events_by_name(trace);
    REQUIRE(events.at("c").begin_order > events.at("a").end_order);
    REQUIRE(events.at("c").begin_order > events.at("b").end_order);
    REQUIRE(events.at("d").begin_order > events.at("c").end_order);
    REQUIRE(events.at("e").begin_order > events.at("d").end_order);
    if (serially) REQUIRE(events.at("b").begin_order > events.at("a").end_order);
  }
}

TEST_CASE("independent tasks on two queues run at the same time") {
  WorkQueue one({.rank = 0}), two({.rank = 1});
  std::promise<void> first, second;
  auto first_came = first.get_future(), second_came = second.get_future();
  bool met[2] = {};
  constexpr auto kLong = std::chrono::seconds(60);  // reached only if they never overlap
  TaskGraph graph;
  graph.add("a", one, {}, [&] {
    first.set_value();
    met[0] = second_came.wait_for(kLong) == std::future_status::ready;
  });
  graph.add("b", two, {}, [&] {
    second.set_value();
    met[1] = first_came.wait_for(kLong) == std::future_status::ready;
  });
  graph.run();
  CHECK(met[0]);
  CHECK(met[1]);
}

TEST_CASE("the critical path is the slowest chain of tasks") {
  WorkQueue queue({});
  TaskGraph graph;
  const auto a = graph.add("a", queue, {}, [] {});
  const auto b = graph.add("b", queue, {}, [] {});
  const auto c = graph.add("c", queue, {a, b}, [] {});
  graph.add("d", queue, {a}, [] {});
  graph.add("e", queue, {c}, [] {});
  CHECK(graph.critical_path({1, 2, 4, 8, 16}) == 2 + 4 + 16);
  CHECK(graph.critical_path({1, 2, 4, 32, 16}) == 1 + 32);
  CHECK(graph.critical_path({4, 2, 4, 8, 16}) == 4 + 4 + 16);
  CHECK(TaskGraph().critical_path({}) == 0);
}

TEST_CASE("a task after an unknown task is refused, and a task that throws ends the run") {
  WorkQueue one({.rank = 0}), two({.rank = 1});
  TaskGraph graph;
  CHECK_THROWS_AS(graph.add("a", one, {0}, [] {}), UsageError);
  bool failing = true, done = false;
  const auto a = graph.add("a", one, {}, [&] {
    if (failing) throw std::runtime_error("task a");
  });
  graph.add("b", two, {a}, [&] { done = true; });
  CHECK_THROWS_WITH(graph.run(), "task a");
  failing = done = false;
  graph.run();
  CHECK(done);
}

TEST_CASE("dependent matmuls give f = x x (x x + y y) + y y (x x + y y) on one device and on two") {
  constexpr int64_t kSize = 33;
  WorkQueue one({.rank = 0}), two({.rank = 1});
  DependentMatmuls alone(one, one, kSize, 3, 7), divided(one, two, kSize, 3, 7);
  CHECK(alone.result().isnan().all().item<bool>());  // nothing has run
  alone.graph().run();
  divided.graph().run();
  CHECK(torch::equal(alone.result(), divided.result()));
  CHECK(alone.graph().size() == 3 * 6);
  CHECK(divided.graph().size() == 3 * 9);  // b, c and e are copied

  auto first = at::make_generator<at::CPUGeneratorImpl>(7),
       second = at::make_generator<at::CPUGeneratorImpl>(8);
  const auto x = torch::rand({kSize, kSize}, first).to(torch::kFloat64) / kSize;
  const auto y = torch::rand({kSize, kSize}, second).to(torch::kFloat64) / kSize;
  const auto sum = x.mm(x) + y.mm(y);
  const auto expected = sum.mm(sum);  // (a + b) c
  CHECK(torch::allclose(divided.result().to(torch::kFloat64), expected, 1e-5, 0));
  CHECK_FALSE(torch::allclose(divided.result().to(torch::kFloat64), x.mm(x).mm(sum), 1e-5, 0));
  divided.fill_with_nan();
  CHECK(divided.result().isnan().all().item<bool>());
}
