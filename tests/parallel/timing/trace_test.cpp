// Threads collect results and the main thread asserts, since Catch2's assertions are not thread-safe.
#include <lockstep/tests/catch.h>
#include <algorithm>
#include <latch>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/parallel/timing/chrome_trace.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/temp_folder.h>

using lockstep::Trace;
using Track = Trace::Track;

namespace {

// A beginning or end: its position in the order, and its time.
std::vector<std::pair<int64_t, double>> moments(const std::vector<Trace::Event>& events) {
  std::vector<std::pair<int64_t, double>> all;
  for (const auto& event : events) {
    all.emplace_back(event.begin_order, event.begin);
    all.emplace_back(event.end_order, event.end);
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

TEST_CASE("a span has a name, a rank and a track, and lies inside the enclosing span") {
  Trace trace;
  {
    const Trace::Span outer(&trace, "step", 3);
    const Trace::Span inner(&trace, "allreduce bucket 2", 3, Track::kCommunication);
    CHECK(trace.events().empty());  // none has ended
  }
  const auto events = trace.events();
  REQUIRE(events.size() == 2);
  const auto& inner = events[0];  // ended first
  const auto& outer = events[1];
  CHECK(inner.name == "allreduce bucket 2");
  CHECK(inner.rank == 3);
  CHECK(inner.track == Track::kCommunication);
  CHECK(outer.name == "step");
  CHECK(outer.rank == 3);
  CHECK(outer.track == Track::kCompute);
  CHECK(outer.begin_order == 0);
  CHECK(inner.begin_order == 1);
  CHECK(inner.end_order == 2);
  CHECK(outer.end_order == 3);
  CHECK(outer.begin >= 0);
  CHECK(inner.begin >= outer.begin);
  CHECK(inner.end >= inner.begin);
  CHECK(outer.end >= inner.end);
}

TEST_CASE("a trace is JSON also where a name is not UTF-8") {
  Trace trace;
  { const Trace::Span span(&trace, "gr\xfc", 0); }
  const lockstep::testing::TempFolder folder;
  lockstep::AtomicFile file((folder / "t").string(), /*overwrite=*/false);
  lockstep::write_chrome_trace(trace, file, {}, {"host\xff"});
  const auto text = lockstep::testing::read_file(folder / "t");
  CHECK(text.find("\"gr\uFFFD\"") != std::string::npos);
  CHECK(text.find("\"host\uFFFD\"") != std::string::npos);
}

TEST_CASE("with no trace a span does nothing") {
  const Trace::Span span(nullptr, "step", 0);
  Trace trace;
  CHECK(trace.events().empty());
  CHECK(trace.dropped() == 0);
}

TEST_CASE(
    "several threads may trace: beginnings and ends have an order, and events are listed by their ends") {
  constexpr size_t kThreads = 4;
  constexpr size_t kSpans = 20'000;
  Trace trace;
  std::latch all_here(kThreads);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        all_here.arrive_and_wait();
        for (size_t i = 0; i < kSpans; ++i)
          const Trace::Span span(&trace, std::to_string(i), static_cast<int>(t));
      });
    }
    for (int i = 0; i < 10; ++i) trace.events();  // reading is safe meanwhile
  }
  const auto events = trace.events();
  REQUIRE(events.size() == kThreads * kSpans);
  CHECK(std::is_sorted(events.begin(), events.end(),
                       [](const auto& a, const auto& b) { return a.end_order < b.end_order; }));

  const auto all = moments(events);
  std::vector<int64_t> places;
  std::vector<double> times;
  for (const auto& [place, time] : all) {
    places.push_back(place);
    times.push_back(time);
  }
  std::vector<int64_t> expected(2 * kThreads * kSpans);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(places == expected);
  CHECK(std::is_sorted(times.begin(), times.end()));

  std::map<int, size_t> next;  // each thread's spans are there, in its own order
  size_t out_of_order = 0;
  for (const auto& event : events) {
    out_of_order += event.name != std::to_string(next[event.rank]++) || event.begin_order >= event.end_order;
  }
  CHECK(out_of_order == 0);
  CHECK(next.size() == kThreads);
}

TEST_CASE("an event that ends before another thread's begins comes first") {
  Trace trace;
  std::latch first_ended(1);
  {
    const std::jthread second([&] {
      first_ended.wait();
      const Trace::Span span(&trace, "second", 1);
    });
    const std::jthread first([&] {
      { const Trace::Span span(&trace, "first", 0); }
      first_ended.count_down();
    });
  }
  const auto events = trace.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].name == "first");
  CHECK(events[0].end_order < events[1].begin_order);
  CHECK(events[0].end <= events[1].begin);
}

TEST_CASE("a full trace keeps the first events and counts the rest") {
  Trace trace(3);
  for (int i = 0; i < 5; ++i) const Trace::Span span(&trace, std::to_string(i), i);
  const auto events = trace.events();
  REQUIRE(events.size() == 3);
  for (int i = 0; i < 3; ++i) CHECK(events[static_cast<size_t>(i)].rank == i);
  CHECK(trace.dropped() == 2);

  Trace none(0);
  { const Trace::Span span(&none, "step", 0); }
  CHECK(none.events().empty());
  CHECK(none.dropped() == 1);
}

TEST_CASE("resolve() asks for a pending event until it is known, and then no more") {
  Trace trace(2);
  int asked = 0;
  trace.add_later([&]() -> std::optional<Trace::Event> {
    if (++asked < 3) return std::nullopt;
    return Trace::Event{.name = "kernel", .rank = 1, .track = Track::kDeviceCompute, .begin = .25, .end = .5};
  });
  trace.resolve();
  trace.resolve();
  CHECK(trace.events().empty());
  { const Trace::Span span(&trace, "step", 0); }
  trace.resolve();
  trace.resolve();
  CHECK(asked == 3);
  const auto events = trace.events();
  REQUIRE(events.size() == 2);
  CHECK(events[1].name == "kernel");
  CHECK(events[1].track == Track::kDeviceCompute);
  CHECK(events[1].begin == .25);
  CHECK(events[1].end == .5);
  CHECK(events[1].begin_order > events[0].end_order);  // its position is that of resolve()
  CHECK(events[1].end_order > events[1].begin_order);
  trace.add_later([] { return Trace::Event{.name = "one too many"}; });
  trace.resolve();
  CHECK(trace.events().size() == 2);
  CHECK(trace.dropped() == 1);
}

TEST_CASE("events that can never be known are counted as dropped, and the others are kept") {
  Trace trace;
  trace.add_later(
      []() -> std::optional<Trace::Event> { throw std::runtime_error("an illegal memory access"); });
  trace.add_later([] { return Trace::Event{.name = "forward"}; });
  trace.resolve();
  CHECK(trace.dropped() == 1);
  REQUIRE(trace.events().size() == 1);
  CHECK(trace.events().front().name == "forward");
  trace.resolve();  // no event is asked for twice
  CHECK(trace.dropped() == 1);
}
