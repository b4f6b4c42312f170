// Mistakes in a loop of Replicas that would deadlock, crash or train replicas apart in silence.
#include <lockstep/tests/catch.h>

#include <functional>
#include <memory>
#include <string>

#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/replicas/loops.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

using PlainLoop = Replicas<Learner>;

const auto kIdle = [](Learner&, const auto&, Step&) {};

void wait_alone(Learner& own, RowRange, Step& step) { step.wait(own.net); }

// T whose module no shared_ptr has.
struct Pointing {
  std::unique_ptr<torch::nn::LinearImpl> net = std::make_unique<torch::nn::LinearImpl>(3, 2);
};

}  // namespace

TEST_CASE("a function of a loop that calls the loop is refused: it would wait for itself") {
  struct Case {
    const char* name;
    std::function<void(PlainLoop&)> call;
  };
  const Case cases[] = {
      {"step", [](PlainLoop& loop) { loop.step(int64_t{2}, kIdle); }},
      {"evaluate", [](PlainLoop& loop) { loop.evaluate(int64_t{2}, kIdle); }},
      {"take_sums", [](PlainLoop& loop) { loop.take_sums(); }},
      {"run", [](PlainLoop& loop) { loop.run([](Learner&, Endpoint&) {}); }},
      {"state", [](PlainLoop& loop) { loop.state(); }},
  };
  for (const int replicas : {1, 2}) {
    for (const auto& [name, call] : cases) {
      INFO(name << " on " << replicas);
      const auto refused = [&, &call = call](const auto& outer) {
        PlainLoop loop(on_cpus(replicas));
        loop.attach(&Learner::net);
        CHECK_THAT(refusal_of([&] { outer(loop, [&] { call(loop); }); }),
                   ContainsSubstring("a function that the replicas run has called for their next task"));
      };
      refused([](PlainLoop& loop, const auto& inner) {
        loop.step(int64_t{2}, [&](Learner&, RowRange, Step& step) {
          if (step.is_first()) inner();
        });
      });
      refused([](PlainLoop& loop, const auto& inner) {
        loop.run([&](Learner&, Endpoint& endpoint) {
          if (is_first(endpoint)) inner();
        });
      });
    }
  }
}

TEST_CASE("sums that are not kept in a variable can be gone through") {
  PlainLoop loop(on_cpus(1));
  loop.attach(&Learner::net);
  loop.step(int64_t{2}, [](Learner&, RowRange, Step& step) {
    step.add("a sum with a name that is longer than a short string", 2);
  });
  STATIC_REQUIRE_FALSE(std::is_reference_v<decltype(loop.take_sums().all())>);
  double total = 0;
  for (const auto& [name, sum] : loop.take_sums().all()) total += sum;
  CHECK(total == 2);
}

TEST_CASE("steps with no module attached are refused on several replicas") {
  for (const auto& layout : std::vector<Layout>{{2}, {1, 1}}) {
    for (const auto& found : on_layout(layout, [](const ReplicasOptions& options) {
           return refusal_and_hint([&] { PlainLoop(options).step(int64_t{2}, kIdle); });
         })) {
      CHECK_THAT(found, ContainsSubstring("no module attached: 2 replicas would train apart") &&
                            ContainsSubstring("attach(&T::net)"));
    }
  }
  PlainLoop two(on_cpus(2)), one(on_cpus(1));
  CHECK_NOTHROW(two.evaluate(int64_t{2}, kIdle));
  CHECK_NOTHROW(one.step(int64_t{2}, kIdle));
}

TEST_CASE("a module in the place of the attached one is refused before it is used") {
  const auto replace = [](Learner& own) { own.net = two_layers(); };
  struct Case {
    const char* place;
    std::function<void(PlainLoop&)> call;
  };
  const Case cases[] = {
      {"in step 0: ", [](PlainLoop& loop) { loop.step(some_rows(4), train); }},
      {"in step 0: ", [](PlainLoop& loop) { loop.step(int64_t{4}, kIdle); }},
      {"in an evaluation after 0 steps: ", [](PlainLoop& loop) { loop.evaluate(int64_t{4}, kIdle); }},
      {"after 0 steps: ", [](PlainLoop& loop) { loop.state(); }},
      {"after 0 steps: ", [](PlainLoop& loop) { loop.check_sync(); }},
  };
  const auto words =
      ContainsSubstring("T has another module in the place of net (torch::nn::SequentialImpl)");
  for (const auto& [place, call] : cases) {
    INFO(place);
    PlainLoop loop(on_cpus(2));
    loop.attach("net", &Learner::net);
    loop.run([&](Learner& own, Endpoint&) { replace(own); });
    CHECK_THAT(refusal_of([&, &call = call] { call(loop); }), ContainsSubstring(place) && words);
  }
  for (const bool named : {false, true}) {  // within the step
    PlainLoop loop(on_cpus(2));
    loop.attach("net", &Learner::net);
    CHECK_THAT(refusal_of([&] {
                 loop.step(int64_t{4}, [&](Learner& own, RowRange, Step& step) {
                   replace(own);
                   named ? step.wait(own.net) : step.wait();
                 });
               }),
               StartsWith("rank ") && ContainsSubstring("in step 0: ") && words);
  }
}

TEST_CASE("a module that nothing keeps alive may not be replaced either") {
  Replicas<Pointing> loop(on_cpus(2));
  loop.attach("net", &Pointing::net);
  loop.run([](Pointing& own, Endpoint&) { own.net = std::make_unique<torch::nn::LinearImpl>(3, 2); });
  CHECK_THAT(refusal_of([&] { loop.step(int64_t{2}, [](Pointing&, RowRange, Step& step) { step.wait(); }); }),
             ContainsSubstring("T has another module in the place of net (torch::nn::LinearImpl)"));
}

TEST_CASE("several T that share a module, or a part of one, are refused by attach()") {
  struct Sharing {
    torch::nn::Sequential net;
  };
  const auto one = two_layers();
  CHECK_THAT(refusal_of([&] {
               Replicas<Sharing> loop(on_cpus(2), [&](Endpoint&) { return Sharing{one}; });
               loop.attach(&Sharing::net);
             }),
             StartsWith("two replicas have one tensor 0.weight"));
  const torch::nn::Linear layer(3, 2);
  CHECK_THAT(refusal_of([&] {
               Replicas<Sharing> loop(on_cpus(2), [&](Endpoint&) {
                 return Sharing{torch::nn::Sequential(torch::nn::Linear(3, 3), layer)};
               });
               loop.attach(&Sharing::net);
             }),
             StartsWith("two replicas have one tensor 1.weight"));
}

TEST_CASE("wait() without a backward pass says so in the words of a loop") {
  const auto words_of = [](const std::function<void(PlainLoop&)>& call) {
    PlainLoop loop(on_cpus(2));
    loop.attach("net", &Learner::net);
    loop.step(some_rows(4), train);
    return refusal_and_hint([&] { call(loop); });
  };
  const auto in_step = words_of([](PlainLoop& loop) { loop.step(int64_t{2}, wait_alone); });
  CHECK_THAT(in_step, StartsWith("rank ") &&
                          ContainsSubstring("in step 1: wait() was called, but no backward pass outside a "
                                            "no_sync() has reached net"));
  CHECK_THAT(in_step, !ContainsSubstring("allreduce_all") && ContainsSubstring("call backward() first"));
  const auto in_evaluation = words_of([](PlainLoop& loop) { loop.evaluate(int64_t{2}, wait_alone); });
  CHECK_THAT(in_evaluation, ContainsSubstring("in an evaluation after 1 step: wait() was called") &&
                                ContainsSubstring("wait() belongs to step()"));
  // Other errors of GradientSync name the step, too.
  CHECK_THAT(words_of([](PlainLoop& loop) {
               loop.step(int64_t{2}, [](Learner& own, RowRange, Step& step) {
                 own.net->parameters().front().sum().backward();
                 step.wait();
               });
             }),
             StartsWith("rank ") && ContainsSubstring("in step 1: backward reached 1 of 4 parameters"));
}

TEST_CASE("wait() without a backward pass is fine where unused parameters count as zeros") {
  PlainLoop loop(on_cpus(2));
  loop.attach(&Learner::net, {.unused = UnusedParameters::kZero});
  CHECK_NOTHROW(loop.step(int64_t{2}, wait_alone));
}

TEST_CASE("a loop whose optimizers update whole parameters takes no shards") {
  PlainLoop loop(on_cpus(2));
  CHECK(refusal_of([&] { loop.attach(&Learner::net, {.shard = Shard::kOptimizer}); }) ==
        "attach() was called with shard optimizer, but the optimizers of a loop of your own update whole "
        "parameters");
}

TEST_CASE("wait() with no module attached says to attach it; a second attach() says that there is one") {
  PlainLoop loop(on_cpus(1));
  CHECK_THAT(refusal_and_hint([&] {
               PlainLoop(on_cpus(1)).step(int64_t{1}, [](Learner&, RowRange, Step& step) { step.wait(); });
             }),
             ContainsSubstring("no module is attached") && ContainsSubstring("call Replicas::attach()"));
  loop.attach(&Learner::net);
  CHECK_THAT(refusal_of([&] { loop.attach(&Learner::net); }),
             StartsWith("attach() has been called without a name already"));
  CHECK_THAT(refusal_of<WeightsError>([&] { loop.load({}); }),
             ContainsSubstring("of the loop's 4 parameters"));
}

TEST_CASE("a step's function takes its shard by value or by constant reference") {
  const auto value = [](Learner&, auto, Step&) {};
  const auto constant = [](Learner&, const auto&, auto&) {};
  const auto reference = [](Learner&, auto&, Step&) {};
  const auto without = [](Learner&, const auto&) {};
  STATIC_REQUIRE(StepFunction<decltype(value), Learner, Batch>);
  STATIC_REQUIRE(StepFunction<decltype(constant), Learner, Pair>);
  STATIC_REQUIRE(StepFunction<decltype(train)&, Learner, Pair>);
  STATIC_REQUIRE_FALSE(StepFunction<decltype(reference), Learner, Batch>);
  STATIC_REQUIRE_FALSE(StepFunction<decltype(reference), Learner, int64_t>);
  STATIC_REQUIRE_FALSE(StepFunction<decltype(without), Learner, Batch>);
}

TEST_CASE("check_sync() of a loop finds the replica whose weights have been changed") {
  for (const auto& layout : std::vector<Layout>{{1}, {2}, {3}, {2, 1}}) {
    INFO(text_of(layout) << " replicas");
    const int last = world_of(layout) - 1;
    const auto found = on_layout(layout, [&](ReplicasOptions options) {
      PlainLoop loop(std::move(options));
      loop.attach("net", &Learner::net);
      loop.step(some_rows(7), train);
      loop.check_sync();
      loop.run([&](Learner& own, Endpoint& endpoint) {
        const torch::NoGradGuard no_grad;
        if (endpoint.rank() == last) own.net->named_parameters()["2.bias"][1].add_(1e-9);
      });
      return refusal_of<OutOfSyncError>([&] { loop.check_sync(); });
    });
    for (const auto& text : found) {
      if (last == 0) {
        CHECK(text.empty());
      } else {
        CHECK_THAT(
            text, StartsWith("after step 1 the replicas differ: net.2.bias of rank " + std::to_string(last)));
      }
    }
  }
}
