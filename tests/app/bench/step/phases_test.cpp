#include <lockstep/tests/catch.h>
#include <vector>

#include <lockstep/app/bench/step/phases.h>

using namespace lockstep;

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
