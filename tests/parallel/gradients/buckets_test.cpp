#include <lockstep/tests/catch.h>
#include <algorithm>
#include <ostream>
#include <random>
#include <vector>

#include <lockstep/parallel/gradients/buckets.h>

using namespace lockstep;

namespace lockstep {

static bool operator==(const Bucket& a, const Bucket& b) {
  return a.begin == b.begin && a.end == b.end && a.first == b.first && a.last == b.last;
}

static std::ostream& operator<<(std::ostream& out, const Bucket& b) {
  return out << "elements [" << b.begin << ", " << b.end << ") tensors [" << b.first << ", " << b.last << "]";
}

}  // namespace lockstep

namespace {

using Sizes = std::vector<int64_t>;

std::vector<Bucket> plan(const Sizes& numels, int64_t element_size, const BucketBounds& bounds) {
  return plan_buckets(numels, element_size, bounds);
}

// Random sizes: 0, 1, around the alignment, and some large ones.
Sizes random_sizes(std::mt19937& random) {
  Sizes numels(random() % 30);
  for (auto& numel : numels) {
    const auto kind = random() % 6;
    numel = kind == 0 ? 0 : kind == 1 ? 1 : kind == 2 ? 1000 + random() % 1000 : random() % 50;
  }
  return numels;
}

int64_t bytes(const Bucket& bucket, int64_t element_size) {
  return (bucket.end - bucket.begin) * element_size;
}

}  // namespace

TEST_CASE("the flat layout by hand: reverse order, multiples of 16 elements") {
  const auto layout = flat_layout(Sizes{5, 16, 17, 0, 1});
  CHECK(layout.offset == Sizes{64, 48, 16, 16, 0});
  CHECK(layout.size == 80);

  CHECK(flat_layout(Sizes{}).size == 0);
  CHECK(flat_layout(Sizes{}).offset.empty());
  CHECK(flat_layout(Sizes{0, 0}).size == 0);
  CHECK(flat_layout(Sizes{1}).size == 16);
  CHECK(flat_layout(Sizes{3'000'000'000, 16}).offset == Sizes{16, 0});  // beyond 32 bits
  CHECK(flat_layout(Sizes{3'000'000'000, 16}).size == 3'000'000'016);
}

TEST_CASE("in the flat layout no two tensors share an element, and the order is reversed") {
  std::mt19937 random(1);
  for (int repeat = 0; repeat < 200; ++repeat) {
    const auto numels = random_sizes(random);
    const auto layout = flat_layout(numels);
    std::vector<int> owners(static_cast<size_t>(layout.size));
    for (size_t i = 0; i < numels.size(); ++i) {
      REQUIRE(layout.offset[i] % 16 == 0);
      REQUIRE(layout.offset[i] + numels[i] <= layout.size);
      for (int64_t k = 0; k < numels[i]; ++k) ++owners[static_cast<size_t>(layout.offset[i] + k)];
    }
    REQUIRE(std::count_if(owners.begin(), owners.end(), [](int count) { return count > 1; }) == 0);
    REQUIRE(std::is_sorted(layout.offset.rbegin(), layout.offset.rend()));
  }
}

TEST_CASE("buckets by hand: a small first one, large ones, a small last one") {
  const BucketBounds bounds{.first = 256, .others = 640, .last = 128};
  // 20 tensors of 64 bytes: 4 make up the first bucket, 2 the last, 10 and then 4 the ones between.
  CHECK(plan(Sizes(20, 16), 4, bounds) ==
        std::vector<Bucket>{{0, 64, 16, 19}, {64, 224, 6, 15}, {224, 288, 2, 5}, {288, 320, 0, 1}});
  // With 8 bytes per element: half as many tensors.
  CHECK(plan(Sizes(10, 16), 8, bounds) ==
        std::vector<Bucket>{{0, 32, 8, 9}, {32, 112, 3, 7}, {112, 144, 1, 2}, {144, 160, 0, 0}});
  // The gaps count: 1 element takes as much as 16.
  CHECK(plan(Sizes(20, 1), 4, bounds) == plan(Sizes(20, 16), 4, bounds));
  // A tensor larger than the bound gets its own bucket, without the smaller ones next to it.
  CHECK(plan({16, 1600, 16, 1600, 16}, 4, bounds) ==
        std::vector<Bucket>{
            {0, 16, 4, 4}, {16, 1616, 3, 3}, {1616, 1632, 2, 2}, {1632, 3232, 1, 1}, {3232, 3248, 0, 0}});
  CHECK(plan({1600, 1600}, 4, bounds) == std::vector<Bucket>{{0, 1600, 1, 1}, {1600, 3200, 0, 0}});
}

TEST_CASE("the standard bounds are 1, 25, ..., 25, 1 megabytes") {
  const Sizes numels(40, 1 << 18);  // 40 tensors of 1 MB
  std::vector<int> tensors;
  for (const auto& bucket : plan(numels, 4, {})) tensors.push_back(bucket.last - bucket.first + 1);
  CHECK(tensors == std::vector<int>{1, 25, 13, 1});
}

TEST_CASE("small tensors make one bucket, no tensors make none") {
  CHECK(plan({100, 16, 1}, 4, {}) == std::vector<Bucket>{{0, 144, 0, 2}});
  CHECK(plan({7}, 4, {}) == std::vector<Bucket>{{0, 16, 0, 0}});
  CHECK(plan({}, 4, {}).empty());
  CHECK(plan({}, 0, {}).empty());
  CHECK(plan({0, 0}, 4, {}) == std::vector<Bucket>{{0, 0, 0, 1}});  // empty tensors have hooks, too
}

TEST_CASE("bounds of 0 make each tensor a bucket, in the reverse of the order of registration") {
  CHECK(plan({5, 16, 17, 1}, 4, {.first = 0, .others = 0, .last = 0}) ==
        std::vector<Bucket>{{0, 16, 3, 3}, {16, 48, 2, 2}, {48, 64, 1, 1}, {64, 80, 0, 0}});
}

TEST_CASE("buckets cover the buffer exactly once and respect their bounds") {
  std::mt19937 random(2);
  for (int repeat = 0; repeat < 2000; ++repeat) {
    const auto numels = random_sizes(random);
    const auto layout = flat_layout(numels);
    const int64_t element_size = repeat % 2 == 0 ? 4 : 8;
    const auto up_to = [&](int64_t most) { return static_cast<int64_t>(random()) % most; };
    const BucketBounds bounds{.first = up_to(3000), .others = up_to(9000), .last = up_to(3000)};
    const auto buckets = plan_buckets(numels, element_size, bounds);
    int64_t next_element = 0;
    int next_tensor = static_cast<int>(numels.size()) - 1;
    for (size_t b = 0; b < buckets.size(); ++b) {
      const auto& bucket = buckets[b];
      INFO("bucket " << b << " of " << buckets.size() << ": " << bucket);
      REQUIRE(bucket.begin == next_element);
      REQUIRE(bucket.last == next_tensor);
      REQUIRE(bucket.first <= bucket.last);
      REQUIRE(layout.offset[static_cast<size_t>(bucket.last)] == bucket.begin);
      const bool is_last = b + 1 == buckets.size();
      const auto bound = is_last ? bounds.last : b == 0 ? bounds.first : bounds.others;
      if (bucket.first < bucket.last) REQUIRE(bytes(bucket, element_size) <= bound);
      // Only the last two buckets may leave out a tensor that would have fitted.
      if (b + 2 < buckets.size()) {
        const auto more = plan(Sizes{numels[static_cast<size_t>(bucket.first - 1)]}, element_size, bounds);
        REQUIRE(bytes(bucket, element_size) + bytes(more.front(), element_size) > bound);
      }
      next_element = bucket.end;
      next_tensor = bucket.first - 1;
    }
    REQUIRE(next_element == layout.size);
    REQUIRE(next_tensor == -1);
  }
}

TEST_CASE("buckets are taken in order and as early as possible, for any order of gradients") {
  // 5 tensors in buckets of 2, 1 and 2.
  ReadyBuckets ready(std::vector<Bucket>{{0, 32, 3, 4}, {32, 48, 2, 2}, {48, 80, 0, 1}});
  std::vector<int> arrivals{0, 1, 2, 3, 4};
  int permutations = 0;
  do {
    ++permutations;
    std::vector<bool> here(5);
    int taken = 0;
    CHECK(ready.take_ready() == -1);
    for (const int tensor : arrivals) {
      REQUIRE(ready.mark(tensor));
      here[static_cast<size_t>(tensor)] = true;
      const bool first = here[3] && here[4];
      const bool second = first && here[2];
      const bool third = second && here[0] && here[1];
      for (const int complete = first + second + third; taken < complete; ++taken) {
        REQUIRE(ready.take_ready() == taken);
      }
      REQUIRE(ready.take_ready() == -1);
    }
    REQUIRE(taken == 3);
    REQUIRE(ready.missing().empty());
    ready.reset();
  } while (std::next_permutation(arrivals.begin(), arrivals.end()));
  CHECK(permutations == 120);
}

TEST_CASE("a tensor is marked once, missing ones are listed, and reset() unmarks all") {
  ReadyBuckets ready(plan({16, 0, 16, 16}, 4, {.first = 64, .others = 64, .last = 0}));
  REQUIRE(ready.buckets().size() == 3);  // tensors 3 | 2 1 | 0: the empty one costs nothing
  CHECK(ready.missing() == std::vector<int>{0, 1, 2, 3});

  CHECK(ready.mark(2));
  CHECK_FALSE(ready.mark(2));  // otherwise its bucket would count as full
  CHECK(ready.mark(3));
  CHECK_FALSE(ready.mark(3));
  CHECK(ready.missing() == std::vector<int>{0, 1});
  CHECK(ready.take_ready() == 0);
  CHECK(ready.take_ready() == -1);
  CHECK_FALSE(ready.mark(3));  // taken already

  ready.reset();
  CHECK(ready.missing() == std::vector<int>{0, 1, 2, 3});
  CHECK(ready.take_ready() == -1);
  for (const int tensor : {0, 1, 2, 3}) CHECK(ready.mark(tensor));
  for (const int bucket : {0, 1, 2, -1, -1}) CHECK(ready.take_ready() == bucket);
  CHECK(ready.missing().empty());
}

TEST_CASE("without tensors nothing is missing") {
  ReadyBuckets ready(plan({}, 4, {}));
  CHECK(ready.take_ready() == -1);
  CHECK(ready.missing().empty());
  ready.reset();
  CHECK(ready.take_ready() == -1);
}
