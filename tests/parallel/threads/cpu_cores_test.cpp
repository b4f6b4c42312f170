#include <sched.h>

#include <lockstep/tests/catch.h>
#include <thread>

#include <lockstep/parallel/threads/cpu_cores.h>

using namespace lockstep;

TEST_CASE("workers get disjoint cores if there are enough") {
  const std::vector<int> eight{0, 1, 2, 3, 8, 9, 10, 11};
  CHECK(cores_for_worker(eight, 0, 4, 2) == std::vector<int>{0, 1});
  CHECK(cores_for_worker(eight, 3, 4, 2) == std::vector<int>{10, 11});
  CHECK(cores_for_worker(eight, 1, 2, 3) == std::vector<int>{3, 8, 9});
  CHECK(cores_for_worker(eight, 0, 1, 8) == eight);
}

TEST_CASE("with more threads than cores every worker gets all cores") {
  const std::vector<int> two{0, 1};
  CHECK(cores_for_worker(two, 2, 3, 1) == two);
  CHECK(cores_for_worker(two, 0, 1, 4) == two);
}

TEST_CASE("pin_to_cores pins the calling thread only") {
  const auto allowed = allowed_cores();
  REQUIRE_FALSE(allowed.empty());
  std::vector<int> seen;
  std::thread([&] {
    pin_to_cores({allowed.back()});
    seen = allowed_cores();
  }).join();
  CHECK(seen == std::vector<int>{allowed.back()});
  CHECK(allowed_cores() == allowed);  // this thread is not pinned
}
