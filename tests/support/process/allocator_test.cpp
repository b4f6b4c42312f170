#include <sys/resource.h>

#include <lockstep/tests/catch.h>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include <lockstep/tests/skip.h>

namespace {

// Allocates, touches and frees what a training step does. Returns how many pages the kernel had to
// provide.
long faults_of_a_step() {
  rusage before{}, after{};
  getrusage(RUSAGE_THREAD, &before);
  {
    constexpr size_t kSize = 14'000'000;
    std::vector<std::unique_ptr<volatile char[]>> blocks;
    for (int i = 0; i < 3; ++i) {
      blocks.emplace_back(new char[kSize]);
      for (size_t at = 0; at < kSize; at += 4096) blocks.back()[at] = 1;
    }
  }
  getrusage(RUSAGE_THREAD, &after);
  return after.ru_minflt - before.ru_minflt;
}

}  // namespace

TEST_CASE("a step reuses the pages that the step before has freed") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  SKIP_CASE("the sanitizer has an allocator of its own");
#endif
  std::thread([] {                   // a worker's heap differs from the main thread's
    CHECK(faults_of_a_step() > 10);  // 21 pages of 2 MB, or more of 4 KB
    CHECK(faults_of_a_step() < 10);  // 10,000 with glibc's malloc
  })
      .join();
}
