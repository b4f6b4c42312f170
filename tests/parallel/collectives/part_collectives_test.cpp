// Endpoint::reduce_scatter() and gather_parts(): the bits of an allreduce, for any parts.
#include <lockstep/tests/catch.h>

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/tests/parallel/collectives/between_processes.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Even parts, one owner of everything, nothing for every second rank, parts that grow.
std::vector<PartBounds> bounds_for(int world, int64_t n) {
  std::vector<PartBounds> all(4);
  for (int64_t rank = 0; rank <= world; ++rank) {
    all[0].push_back(n * rank / world);
    all[1].push_back(rank > world / 2 ? n : 0);
    all[2].push_back(n * ((rank + 1) / 2 * 2) / (world + 2) * (rank > 0));
    all[3].push_back(n * rank * rank / (world * world));
  }
  all[2].back() = n;
  return all;
}

torch::Tensor part(const torch::Tensor& tensor, const PartBounds& bounds, size_t rank) {
  return tensor.slice(0, bounds[rank], bounds[rank + 1]);
}

}  // namespace

TEST_CASE(
    "a reduce_scatter leaves each owner the bits of the allreduce, and gather_parts gives them to all") {
  const auto setups = setups_of({{1}, {2}, {3}, {5}}, {{1, 1}, {2, 2}, {3, 1}, {1, 3, 2}, {1, 1, 1, 1}});
  for (const auto& setup : setups) {
    if (setup.algorithm == Allreduce::kRing) continue;  // adds in an order of its own
    const int world = world_of(setup.layout);
    for (const int64_t n : {0, 1, 7, 997, 20'011}) {
      for (const auto& bounds : bounds_for(world, n)) {
        INFO(setup.text() << ", " << n << " elements, bounds " << fmt::format("{}", fmt::join(bounds, ", ")));
        const auto numbers = rounded_numbers(world, n);
        const auto expected = tensors_of(numbers), found = tensors_of(numbers);
        Tensors sums(found.size());
        const CommunicatorOptions options{.devices = {}, .algorithm = setup.algorithm};
        in_processes(
            setup.layout,
            [&](int, Communicator& communicator) {
              allreduce_all(communicator, expected);
              run_on_all(communicator, [&](Endpoint& endpoint, size_t rank) {
                return endpoint.reduce_scatter(found[rank], bounds);
              });
              for (int local = 0; local < communicator.local_size(); ++local) {
                const auto rank = static_cast<size_t>(communicator.first_rank() + local);
                sums[rank] = part(found[rank], bounds, rank).clone();
                found[rank].zero_();
                part(found[rank], bounds, rank).copy_(sums[rank]);
              }
              run_on_all(communicator, [&](Endpoint& endpoint, size_t rank) {
                return endpoint.gather_parts(found[rank], bounds);
              });
            },
            options);
        for (size_t rank = 0; rank < sums.size(); ++rank) {
          CHECK(same_bits(sums[rank], part(expected[rank], bounds, rank)));
        }
        CHECK(all_are(expected.front(), found));
      }
    }
  }
}

TEST_CASE("between three and more processes floating-point sums are added in their order") {
  for (const Layout& layout : {Layout{1, 1, 1}, Layout{1, 3, 2}}) {
    const auto numbers = rounded_numbers(world_of(layout), 997);
    const auto tensors = tensors_of(numbers);
    in_processes(layout, [&](int, Communicator& communicator) { allreduce_all(communicator, tensors); });
    std::vector<float> expected;
    for (size_t i = 0; i < 997; ++i) {
      const auto sums = sums_of_processes(numbers, layout, i);
      float sum = sums[0];
      for (size_t process = 1; process < sums.size(); ++process) sum += sums[process];
      expected.push_back(sum);
    }
    CHECK(all_are(torch::tensor(expected), tensors));
  }
}

TEST_CASE("gather_parts moves the bytes of every dtype") {
  for (const auto dtype : kCopiedTypes) {
    for (const Layout& layout : {Layout{3}, Layout{2, 1}}) {
      const PartBounds bounds{0, 3, 3, 10};
      Tensors found;
      for (int rank = 0; rank < 3; ++rank) found.push_back(any_bytes(rank, 10, dtype));
      const auto expected = torch::cat(
          {found[0].view(torch::kByte).slice(0, 0, 3), found[2].view(torch::kByte).slice(0, 3, 10)});
      in_processes(layout, [&](int, Communicator& communicator) {
        run_on_all(communicator, [&](Endpoint& endpoint, size_t rank) {
          return endpoint.gather_parts(found[rank], bounds);
        });
      });
      for (const auto& tensor : found) CHECK(same_bits(tensor.view(torch::kByte), expected));
    }
  }
}

TEST_CASE("bounds that do not fit and numbers that are not added are refused") {
  struct Refused {
    PartBounds bounds;
    torch::ScalarType dtype;
    std::string words;
  };
  const std::vector<Refused> cases = {
      {{0, 5}, torch::kFloat32, "with the bounds 0, 5"},
      {{0, 3, 4},
       torch::kFloat32,
       "reduce_scatter of 5 elements of Float between 2 ranks with the bounds 0, 3, 4"},
      {{1, 3, 5}, torch::kFloat32, "with the bounds 1, 3, 5"},
      {{0, 6, 5}, torch::kFloat32, "with the bounds 0, 6, 5"},
      {{0, 3, 5}, torch::kInt32, "reduce_scatter cannot add 5 elements of Int"},
  };
  for (const auto& [bounds, dtype, words] : cases) {
    INFO(words);
    const auto communicator = cpu_communicator(2);
    auto works = post_on_all(*communicator, [&](Endpoint& endpoint, size_t) {
      return endpoint.reduce_scatter(torch::zeros({5}, dtype), bounds);
    });
    for (auto& work : works) CHECK_THAT(usage_error(work), Catch::Matchers::ContainsSubstring(words));
  }
}
