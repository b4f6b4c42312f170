// How `bench overlap` evaluates times and events. All values are by hand.
#include <lockstep/tests/catch.h>

#include <lockstep/app/bench/overlap/numbers.h>
#include <lockstep/support/error.h>

using namespace lockstep;

namespace {

Trace::Event event(const char* name, int rank, Trace::Track track, double begin, double end) {
  return {.name = name, .rank = rank, .track = track, .begin = begin, .end = end};
}

Trace::Event matmul(const char* name, double begin, double end, int rank = 0) {
  return event(name, rank, Trace::Track::kCompute, begin, end);
}

Trace::Event copy(const char* name, double begin, double end, int rank = 0) {
  return event(name, rank, Trace::Track::kCommunication, begin, end);
}

}  // namespace

TEST_CASE("hidden_part() is the part of the shorter one that cost no time") {
  const auto part = [](double compute, double copy, double together) {
    return hidden_part({compute, compute, compute}, {copy, copy, copy}, {together, together, together});
  };
  CHECK(part(4, 1, 4) == 1);
  CHECK(part(4, 1, 5) == 0);
  CHECK(part(4, 1, 4.25) == .75);
  CHECK(part(1, 4, 4.25) == .75);  // whichever is the shorter
  CHECK(part(4, 1, 6) == -1);      // slower than one after the other
  CHECK(part(2, 2, 3) == .5);
}

TEST_CASE("hidden_part() of repetitions is their median and needs three") {
  // The parts are 1, .5 and 0. The medians 4, 1 and 5 would give 0.
  const std::vector<double> compute = {4, 8, 2}, copy = {1, 2, 1}, together = {4, 9, 3};
  CHECK(hidden_part(compute, copy, together) == .5);
  CHECK(hidden_part({4, 8}, {1, 2}, {4, 9}) == std::nullopt);
  CHECK_THROWS_AS(hidden_part(compute, {1, 2}, together), UsageError);
  CHECK_THROWS_AS(hidden_part({4}, copy, together), UsageError);
}

TEST_CASE("computed_beside_a_copy() counts matmuls during a copy") {
  const std::vector<Trace::Event> events = {
      matmul("matmul 0", 0, 1),   copy("copy 0", 1, 1.5),  // begins as matmul 0 ends
      matmul("matmul 1", 1, 2),   matmul("matmul 2", 2, 3), copy("copy 1", 2.9, 4),
      matmul("matmul 3", 3, 3.5), matmul("matmul 4", 4, 5),
  };
  CHECK(computed_beside_a_copy(events) == 3);  // 1, 2 and 3
  CHECK(computed_beside_a_copy({matmul("matmul 0", 0, 1), matmul("matmul 1", 0, 1)}) == 0);
  // Copies of other devices and of streams count too.
  CHECK(computed_beside_a_copy({matmul("matmul 0", 0, 1), copy("copy 0", .5, .6, 1)}) == 1);
  CHECK(computed_beside_a_copy({event("matmul 0", 0, Trace::Track::kDeviceCompute, 0, 1),
                                event("copy 0", 0, Trace::Track::kDeviceCommunication, .5, 2)}) == 1);
}

TEST_CASE("most_at_once() ignores copies and events that only touch") {
  CHECK(most_at_once({}) == 0);
  CHECK(most_at_once({matmul("a", 0, 1), matmul("b", 1, 2), copy("c", 0, 2)}) == 1);
  CHECK(most_at_once({matmul("a", 0, 2, 0), matmul("b", 1, 3, 1), matmul("c", 2.5, 4, 0)}) == 2);
  CHECK(most_at_once({matmul("a", 0, 3, 0), matmul("b", 1, 3, 1), matmul("c", 2, 4, 2)}) == 3);
}

TEST_CASE("copies_ahead() finds a copy that begins before its matmul has ended") {
  const auto made = matmul("matmul 3", 0, 1);
  CHECK(copies_ahead({made, copy("copy 3", 1, 2)}, 0) == 0);
  CHECK(copies_ahead({made, copy("copy 3", .99, 2)}, 0) == 1);
  CHECK(copies_ahead({made, copy("copy 3", .99, 2)}, .02) == 0);
  CHECK(copies_ahead({made, copy("copy 4", 1, 2)}, 0) == 1);     // there is no matmul 4
  CHECK(copies_ahead({made, copy("copy 3", 1, 2, 1)}, 0) == 1);  // not on that device
  // In one queue, where a copy is an event of the computing thread.
  CHECK(copies_ahead({made, matmul("copy 3", .5, 2)}, 0) == 1);
}

TEST_CASE("a timeline counts from its first event and names the tracks") {
  const auto rows = timeline("copy: overlapped", {matmul("matmul 0", 10, 11, 1), copy("copy 0", 9.5, 12)},
                             {"cpu:0", "cuda:1"});
  REQUIRE(rows.size() == 2);
  CHECK(rows[0] == nlohmann::ordered_json{{"experiment", "copy: overlapped"},
                                          {"track", "cuda:1 compute"},
                                          {"name", "matmul 0"},
                                          {"begin", .5},
                                          {"end", 1.5}});
  CHECK(rows[1].at("track") == "cpu:0 copy");
  CHECK(rows[1].at("begin") == 0);
  CHECK(rows[1].at("end") == 2.5);
}
