#include <sched.h>

#include <lockstep/tests/catch.h>
#include <thread>
#include <vector>

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

TEST_CASE("processes divide the cores by their replicas, and each gets one at least") {
  using Cores = std::vector<int>;
  const Cores cores = {2, 3, 5, 7, 8};
  CHECK(share_of_cores(cores, std::vector<size_t>{1, 1}, 0) == Cores{2, 3});
  CHECK(share_of_cores(cores, std::vector<size_t>{1, 1}, 1) == Cores{5, 7, 8});
  CHECK(share_of_cores(cores, std::vector<size_t>{3, 1}, 0) == Cores{2, 3, 5});
  CHECK(share_of_cores(cores, std::vector<size_t>{3, 1}, 1) == Cores{7, 8});
  for (size_t own = 0; own < 7; ++own) {
    const std::vector<size_t> replicas(7, 1);
    CHECK(share_of_cores({4, 6}, replicas, own) == Cores{own < 4 ? 4 : 6});
  }
  CHECK(share_of_cores({9}, std::vector<size_t>{4, 2}, 1) == Cores{9});
}

TEST_CASE("only processes of one machine that have the same cores divide them") {
  const auto allowed = allowed_cores();
  const auto cores_of = [&](const std::vector<CoreUser>& users, size_t own) {
    std::vector<int> found;
    std::thread([&] {
      pin_to_share(users, own);
      found = allowed_cores();
    }).join();
    return found;
  };
  const CoreUser here{.machine = "a", .cores = allowed}, there{.machine = "b", .cores = allowed};
  CHECK(cores_of({here}, 0) == allowed);
  CHECK(cores_of({here, there}, 0) == allowed);
  CHECK(cores_of({here, {.machine = "a", .cores = {allowed.back() + 1}}}, 0) == allowed);
  const std::vector<size_t> replicas = {1, 1};
  CHECK(cores_of({here, there, here}, 2) == share_of_cores(allowed, replicas, 1));
}
