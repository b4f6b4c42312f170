// Communicators between processes over real Gloo: dtypes, and processes whose calls differ.
#include <lockstep/tests/catch.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/tests/parallel/collectives/between_processes.h>
#include <lockstep/tests/parallel/collectives/gloo/joined.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Runs task(process, its communicator) in every process. Returns what each has thrown.
std::vector<std::exception_ptr> over_gloo(const Layout& layout, const std::vector<World>& worlds,
                                          const std::function<void(int, Communicator&)>& task) {
  return run_worlds(worlds, [&](int process, ProcessGroup& group) {
    task(process, *communicator_of(layout, process, shared(group)));
  });
}

Tensors any_bytes_of(int world, int64_t n, torch::ScalarType dtype) {
  Tensors tensors;
  for (int rank = 0; rank < world; ++rank) tensors.push_back(any_bytes(rank, n, dtype));
  return tensors;
}

Work sum(Endpoint& endpoint, int64_t n, torch::ScalarType dtype = torch::kFloat32) {
  return endpoint.allreduce_sum(torch::zeros({n}, dtype));
}

using PostOne = std::function<Work(Endpoint&)>;

PostOne sum_of(int64_t n, torch::ScalarType dtype = torch::kFloat32) {
  return [=](Endpoint& endpoint) { return sum(endpoint, n, dtype); };
}
PostOne copy_from(int root) {
  return [=](Endpoint& endpoint) { return endpoint.broadcast(torch::zeros({5}), root); };
}
PostOne gather_of(int64_t n) {
  return [=](Endpoint& endpoint) {
    return endpoint.all_gather(torch::zeros({n}), torch::zeros({endpoint.world_size(), n}));
  };
}

struct Different {
  const char* what;
  std::vector<PostOne> first, second;  // of the replicas of process 0 and of process 1
  std::string first_text, second_text;
};

const std::vector<Different> kDifferent{
    {"kind", {sum_of(5)}, {copy_from(0)}, "allreduce 0 of 5 float32", "broadcast 0 from rank 0 of 5 float32"},
    {"kind of the same bytes",
     {copy_from(0)},
     {gather_of(5)},
     "broadcast 0 from rank 0 of 5 float32",
     "all_gather 0 of 5 float32"},
    {"numbers", {sum_of(5)}, {sum_of(1000)}, "allreduce 0 of 5 float32", "allreduce 0 of 1,000 float32"},
    {"one number beside chunks",
     {sum_of(1)},
     {sum_of(2)},
     "allreduce 0 of 1 float32",
     "allreduce 0 of 2 float32"},
    {"no numbers",
     {sum_of(0), sum_of(5)},
     {sum_of(5), sum_of(5)},
     "allreduce 0 of 0 float32",
     "allreduce 0 of 5 float32"},
    {"rows", {gather_of(3)}, {gather_of(4)}, "all_gather 0 of 3 float32", "all_gather 0 of 4 float32"},
    {"dtype of the same bytes",
     {sum_of(6)},
     {sum_of(6, torch::kInt32)},
     "allreduce 0 of 6 float32",
     "allreduce 0 of 6 int32"},
    {"root",
     {copy_from(0)},
     {copy_from(1)},
     "broadcast 0 from rank 0 of 5 float32",
     "broadcast 0 from rank 1 of 5 float32"},
    {"one call fewer",
     {sum_of(5), sum_of(6), sum_of(7)},
     {sum_of(5), sum_of(7)},
     "allreduce 1 of 6 float32",
     "allreduce 1 of 7 float32"}};

}  // namespace

TEST_CASE("over Gloo sums of every dtype are exact, and copies move the bytes of every dtype") {
  struct Case {
    torch::ScalarType dtype;
    int64_t n;
    Tensors summed, copied = {}, given = {}, gathered = {};  // by rank
    torch::Tensor sum = {};
  };
  for (const Layout& layout : {Layout{1, 1}, Layout{2, 1}}) {
    const int world = world_of(layout);
    std::vector<Case> cases;
    for (const int64_t n : {0, 1, 997}) {
      for (const auto dtype : kSummedTypes) cases.push_back({dtype, n, inputs(world, n, dtype)});
      for (const auto dtype : kCopiedTypes) cases.push_back({dtype, n, {}});
    }
    for (auto& one : cases) {
      one.copied = any_bytes_of(world, one.n, one.dtype);
      one.given = any_bytes_of(world, one.n, one.dtype);
      for (int rank = 0; rank < world; ++rank)
        one.gathered.push_back(torch::empty({world, one.n}, one.dtype));
      if (!one.summed.empty()) one.sum = exact_sum(one.summed);
    }
    const auto task = [&](int, Communicator& communicator) {
      for (const auto& one : cases) {
        if (!one.summed.empty()) allreduce_all(communicator, one.summed);
        broadcast_all(communicator, one.copied, 1);
        gather_all(communicator, one.given, one.gathered);
      }
    };
    for (const auto& error : over_gloo(layout, worlds_of(processes_of(layout)), task)) {
      CHECK(message_of<Error>(error) == "no error");
    }
    for (const auto& one : cases) {
      INFO(text_of(layout) << " replicas, " << one.n << " of " << one.dtype);
      CHECK((one.summed.empty() || all_are(one.sum, one.summed)));
      CHECK(all_are(any_bytes(1, one.n, one.dtype), one.copied));
      for (const auto& found : one.gathered) {
        for (int rank = 0; rank < world; ++rank) {
          CHECK(same_bits(found[rank], one.given[static_cast<size_t>(rank)]));
        }
      }
    }
  }
}

TEST_CASE("over Gloo a reduce_scatter has the bits of the allreduce, and gather_parts gives them to all") {
  struct Case {
    PartBounds bounds;
    Tensors expected, found;  // by rank
  };
  for (const Layout& layout : {Layout{1, 1}, Layout{1, 2, 1}}) {
    const int world = world_of(layout);
    std::vector<Case> cases;
    for (const int64_t n : {1, 997, 100'003}) {
      PartBounds even{0}, last(static_cast<size_t>(world), 0);  // and everything is the last rank's
      for (int64_t rank = 1; rank <= world; ++rank) even.push_back(n * rank / world);
      last.push_back(n);
      const auto numbers = rounded_numbers(world, n);
      for (const auto& bounds : {even, last}) {
        cases.push_back({bounds, tensors_of(numbers), tensors_of(numbers)});
      }
    }
    const auto task = [&](int, Communicator& communicator) {
      for (const auto& [bounds, expected, found] : cases) {
        allreduce_all(communicator, expected);
        run_on_all(communicator, [&, &bounds = bounds, &found = found](Endpoint& endpoint, size_t rank) {
          return endpoint.reduce_scatter(found[rank], bounds);
        });
        run_on_all(communicator, [&, &bounds = bounds, &found = found](Endpoint& endpoint, size_t rank) {
          return endpoint.gather_parts(found[rank], bounds);
        });
      }
    };
    for (const auto& error : over_gloo(layout, worlds_of(processes_of(layout)), task)) {
      CHECK(message_of<Error>(error) == "no error");
    }
    for (const auto& one : cases) {
      INFO(text_of(layout) << " replicas, " << one.found[0].numel() << " elements");
      CHECK(all_are(one.expected.front(), one.found));
    }
  }
}

namespace {

// The messages that the works of each rank throw.
std::vector<std::string> messages_of(const Different& different, const Layout& layout,
                                     const std::vector<World>& worlds) {
  std::vector<std::string> messages(static_cast<size_t>(world_of(layout)));
  over_gloo(layout, worlds, [&](int process, Communicator& communicator) {
    std::vector<std::vector<Work>> posted;
    for (int local = 0; local < communicator.local_size(); ++local) {
      auto& works = posted.emplace_back();
      for (const auto& post : process == 0 ? different.first : different.second) {
        works.push_back(post(communicator.endpoint(local)));
      }
    }
    for (int local = 0; local < communicator.local_size(); ++local) {
      messages[static_cast<size_t>(communicator.first_rank() + local)] = message_of<PeerError>([&] {
        for (auto& work : posted[static_cast<size_t>(local)]) work.wait();
      });
    }
    throw Leaves();
  });
  return messages;
}

}  // namespace

TEST_CASE("processes whose calls differ all get an error that names both calls") {
  for (const Layout& layout : {Layout{1, 1}, Layout{2, 2}, Layout{1, 2}}) {
    std::vector<std::vector<std::string>> found(kDifferent.size());
    std::set<uint16_t> ports;
    Calls side_by_side;
    for (size_t i = 0; i < kDifferent.size(); ++i) {
      auto worlds = worlds_of(2);
      while (!ports.insert(worlds[0].master_port).second) worlds = worlds_of(2);
      side_by_side.push_back([&, i, worlds] { found[i] = messages_of(kDifferent[i], layout, worlds); });
    }
    call_side_by_side(side_by_side);
    for (size_t i = 0; i < kDifferent.size(); ++i) {
      const auto& different = kDifferent[i];
      INFO(different.what << ", " << text_of(layout) << " replicas");
      const auto expected =
          fmt::format("the processes wait for different collectives: process 0 for {}, process 1 for {}",
                      different.first_text, different.second_text);
      CHECK(found[i] == std::vector<std::string>(static_cast<size_t>(world_of(layout)), expected));
    }
  }
}

// Different threads may use them in any order: only the timeout says that nothing comes.
TEST_CASE("processes that wait in different communicators or gather learn at the timeout what for") {
  struct Case {
    std::function<void(ProcessGroup&, Communicator&)> second;  // what process 1 does meanwhile
    std::string second_waits;
  };
  const std::vector<Case> cases{
      {[](ProcessGroup&, Communicator& other) { sum(other.endpoint(0), 7).wait(); },
       "allreduce 0 of 7 float32 on communicator 1"},
      {[](ProcessGroup& group, Communicator&) { group.gather("four"); }, "gather 6 of 4 bytes on the store"},
      {[](ProcessGroup& group, Communicator&) {
         communicator_of({1, 1}, 1, shared(group));
       },
       "gather 6 of "}};
  std::vector<std::vector<std::string>> found(cases.size());
  Calls side_by_side;
  for (size_t i = 0; i < cases.size(); ++i) {
    side_by_side.push_back([&, i, worlds = worlds_of(2)] {
      found[i].resize(2);
      run_worlds(
          worlds,
          [&](int process, ProcessGroup& group) {
            const auto one = communicator_of({1, 1}, process, shared(group));
            const auto other = communicator_of({1, 1}, process, shared(group));
            found[i][static_cast<size_t>(process)] = message_of<PeerError>([&] {
              try {
                process == 0 ? sum(one->endpoint(0), 7).wait() : cases[i].second(group, *other);
              } catch (const Error&) {
                std::rethrow_exception(group.explain(std::current_exception()));
              }
            });
            throw Leaves();
          },
          within(10000));
    });
  }
  call_side_by_side(side_by_side);
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto expected =
        "all processes answer, and wait for each other: process 0 of 2 for allreduce 0 of 7 "
        "float32 on communicator 0; process 1 of 2 for " +
        cases[i].second_waits;
    for (const auto& text : found[i]) CHECK_THAT(text, Catch::Matchers::StartsWith(expected));
  }
}
