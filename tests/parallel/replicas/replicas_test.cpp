#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/dropout.h>

#include <lockstep/tests/catch.h>

#include <atomic>
#include <cmath>
#include <memory>
#include <span>
#include <stdexcept>
#include <thread>

#include <lockstep/parallel/build_replicas.h>
#include <lockstep/parallel/replica_random.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/replicas/loops.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

constexpr int64_t kBatches[] = {7, 4, 1, 2};  // rows; fewer than replicas, too

struct Trained {
  torch::Tensor weights;
  double loss = 0;
  int64_t rows = 0;
};

Trained trained_on(ReplicasOptions options) {
  Replicas<Learner> replicas(std::move(options));
  replicas.attach(&Learner::net);
  for (const auto rows : kBatches) replicas.step(some_rows(rows, rows), train);
  const auto sums = replicas.take_sums();
  return {weights_of(replicas, &Learner::net), sums["loss"], sums.rows()};
}

// The same with plain torch, on whole batches.
Trained trained_by_torch() {
  Learner own;
  Trained result;
  for (const auto rows : kBatches) {
    const auto [X, y] = some_rows(rows, rows);
    own.sgd.zero_grad();
    const auto squares = (own.net->forward(X) - y).square();
    (squares.sum() / rows).backward();
    own.sgd.step();
    result.loss += squares.sum().item<double>();
    result.rows += rows;
  }
  result.weights = flat_copy(*own.net);
  return result;
}

// Notes the threads in which it is built and destroyed, and whether two are built at once.
struct Living {
  explicit Living(std::vector<std::thread::id>& died) : died_in(&died) {
    if (++building > 1) at_once = true;
    inner = build_replicas(2, [] { return torch::rand({2}); });  // which takes its turn within this one's
    draws = torch::cat({inner[0], torch::rand({3})});
    built_in = std::this_thread::get_id();
    --building;
  }
  Living(const Living&) = delete;
  ~Living() { died_in->at(static_cast<size_t>(rank)) = std::this_thread::get_id(); }

  static inline std::atomic<int> building = 0;
  static inline std::atomic<bool> at_once = false;
  std::vector<std::thread::id>* died_in;
  std::vector<torch::Tensor> inner;
  torch::Tensor draws;
  std::thread::id built_in;
  int rank = 0;
};

}  // namespace

TEST_CASE("Replicas train as plain torch does on whole batches, on any layout and with empty shards") {
  const auto expected = trained_by_torch();
  for (const auto& layout : kLayouts) {
    INFO(text_of(layout) << " replicas");
    for (const auto& found : on_layout(layout, trained_on)) {
      CHECK(max_difference(found.weights, expected.weights) < 1e-12);
      CHECK(std::abs(found.loss - expected.loss) < 1e-12);
      CHECK(found.rows == expected.rows);
    }
  }
}

TEST_CASE("a replica without rows or a backward pass counts as zeros, whatever its gradients hold") {
  for (const bool drops : {false, true}) {  // zero_grad() drops a gradient, or leaves the last step's
    Replicas<Learner> replicas(on_cpus(2));
    replicas.attach(&Learner::net);
    std::vector<torch::Tensor> sums(2);
    const auto sum = [&](Learner& own, const Tuple& shard, Step& step) {
      const auto& [X, y] = shard;
      if (drops || X.size(0) > 0) own.sgd.zero_grad();
      if (X.size(0) > 0) (own.net->forward(X) - y).square().sum().backward();
      step.wait();
      sums[static_cast<size_t>(step.rank())] = own.net->parameters().front().grad().clone();
    };
    replicas.step(some_rows(4), sum);
    replicas.step(some_rows(1, 9), sum);
    Learner whole;
    const auto [X, y] = some_rows(1, 9);
    (whole.net->forward(X) - y).square().sum().backward();
    for (const auto& found : sums) {
      CHECK(max_difference(found, whole.net->parameters().front().grad()) < 1e-12);
    }
  }
}

TEST_CASE("a replica without rows adds a loss of its own, also one of micro-batches") {
  for (const bool no_sync : {false, true}) {
    Replicas<Learner> replicas(on_cpus(2));
    replicas.attach(&Learner::net);
    std::vector<torch::Tensor> sums(2);
    replicas.step(int64_t{1}, [&](Learner& own, RowRange rows, Step& step) {
      const auto backward = [&] { own.net->parameters().front().sum().backward(); };
      own.sgd.zero_grad();
      if (rows.rows > 0) {
        for (const auto& param : own.net->parameters()) param.sum().backward();
      } else if (no_sync) {
        const auto paused = step.sync(own.net).no_sync();
        backward();
      } else {
        backward();
      }
      step.wait(own.net);
      sums[static_cast<size_t>(step.rank())] = own.net->parameters().front().grad().clone();
    });
    for (const auto& found : sums) CHECK(found.eq(2).all().item<bool>());
  }
}

TEST_CASE("a step that forgets wait() is refused in every process, and so is an evaluation") {
  for (const bool evaluates : {false, true}) {
    const auto found = on_layout({1, 1}, [&](const ReplicasOptions& options) {
      Replicas<Learner> replicas(options);
      replicas.attach("net", &Learner::net);
      const auto forget = [](Learner& own, RowRange, Step&) {
        const torch::AutoGradMode with_graph(true);
        own.net->forward(some_rows(2).first).sum().backward();
      };
      return refusal_of([&] {
        evaluates ? static_cast<void>(replicas.evaluate(int64_t{2}, forget))
                  : replicas.step(int64_t{2}, forget);
      });
    });
    for (const auto& text : found) {
      CHECK_THAT(text, ContainsSubstring("backward has reached net (torch::nn::SequentialImpl), but wait()"));
    }
  }
}

TEST_CASE("shares of a batch are those of the options") {
  auto options = on_cpus(2);
  options.split = {3, 1};
  Replicas<Learner> replicas(options);
  std::vector<int64_t> begins(2), rows(2);
  replicas.attach(&Learner::net);
  replicas.step(int64_t{8}, [&](Learner&, RowRange own, Step& step) {
    begins[static_cast<size_t>(step.rank())] = own.begin;
    rows[static_cast<size_t>(step.rank())] = own.rows;
  });
  CHECK(begins == std::vector<int64_t>{0, 6});
  CHECK(rows == std::vector<int64_t>{6, 2});
  options.split = {3, 1, 1};
  CHECK_THROWS_AS(Replicas<Learner>(options), UsageError);
}

TEST_CASE("each T is built in turn with the same draws, and lives and dies in its replica's thread") {
  std::vector<std::thread::id> built(3), used(3), died(3);
  std::vector<torch::Tensor> draws(3);
  torch::manual_seed(9);
  const auto expected = torch::cat({torch::rand({2}), torch::rand({3})}), next = torch::rand({2});
  torch::manual_seed(9);
  {
    Replicas<Living> replicas(on_cpus(3), [&](Endpoint&) { return Living(died); });
    CHECK(torch::rand({2}).equal(next));
    replicas.run([&](Living& own, Endpoint& endpoint) {
      const auto i = static_cast<size_t>(endpoint.rank());
      own.rank = endpoint.rank();
      built[i] = own.built_in;
      used[i] = std::this_thread::get_id();
      draws[i] = own.draws;
    });
  }
  CHECK_FALSE(Living::at_once);
  CHECK(built == used);
  CHECK(died == used);
  CHECK(used[0] != used[1]);
  for (const auto& drawn : draws) CHECK(drawn.equal(expected));
}

TEST_CASE("a step draws the numbers of its seed, step and rank") {
  auto options = on_cpus(2);
  options.seed = 3;
  Replicas<Learner> replicas(options);
  replicas.attach(&Learner::net);
  std::vector<torch::Tensor> drawn(2);
  const auto draw = [&](Learner&, RowRange, Step& step) {
    drawn[static_cast<size_t>(step.rank())] = torch::rand({4});
  };
  for (int64_t step = 0; step < 2; ++step) {
    replicas.step(int64_t{2}, draw);
    for (int rank = 0; rank < 2; ++rank) {
      CHECK(drawn[static_cast<size_t>(rank)].equal(torch::rand({4}, replica_generator(3, step, rank))));
    }
  }
  const auto last = drawn;
  replicas.evaluate(int64_t{2}, draw);  // others than the steps around it
  CHECK_FALSE(drawn[0].equal(last[0]));
  CHECK_FALSE(drawn[0].equal(torch::rand({4}, replica_generator(3, 2, 0))));
}

TEST_CASE("named sums add what the replicas add, of any dtype, until they are taken") {
  Replicas<Learner> replicas(on_cpus(3));
  replicas.attach(&Learner::net);
  const auto add = [](Learner&, RowRange own, Step& step) {
    step.add("rows", static_cast<double>(own.rows));
    step.add("right", torch::ones({own.rows}, torch::kBool));
    step.add("numbers", torch::arange(own.begin, own.end()));
    if (step.is_first()) step.add("first", 1);
  };
  replicas.step(int64_t{5}, add);
  replicas.step(int64_t{2}, add);
  const auto sums = replicas.take_sums();
  CHECK(sums.rows() == 7);
  CHECK(sums["rows"] == 7);
  CHECK(sums["right"] == 7);
  CHECK(sums["numbers"] == 0 + 1 + 2 + 3 + 4 + 0 + 1);
  CHECK(sums["first"] == 2);
  CHECK(sums.mean("rows") == 1);
  CHECK(sums.all().front().first == "rows");
  CHECK_THAT(refusal_and_hint([&] { static_cast<void>(sums["wrong"]); }),
             ContainsSubstring("'wrong'") && ContainsSubstring("rows, right, numbers, first"));
  CHECK(replicas.take_sums().rows() == 0);
  replicas.step(int64_t{1}, [](Learner&, RowRange, Step& step) { step.add("loss", NAN); });
  CHECK(std::isnan(replicas.take_sums()["loss"]));
}

TEST_CASE("an evaluation counts each row once, without gradients, in evaluation mode, and as no step") {
  for (const auto& layout : kLayouts) {
    INFO(text_of(layout) << " replicas");
    const auto checked = on_layout(layout, [](ReplicasOptions options) {
      Replicas<Learner> replicas(std::move(options));
      replicas.attach(&Learner::net);
      replicas.run([](Learner& own, Endpoint&) { own.net->children()[1]->eval(); });
      const auto numbers = torch::arange(11);
      std::atomic<bool> wrong_mode = false;
      const auto sums = replicas.evaluate(numbers, [&](Learner& own, const auto& shard, Step& step) {
        if (torch::GradMode::is_enabled() || own.net->is_training()) wrong_mode = true;
        step.add("squares", shard * shard);
      });
      std::atomic<bool> restored = true;
      replicas.run([&](Learner& own, Endpoint&) {
        if (!own.net->is_training() || own.net->children()[1]->is_training()) restored = false;
      });
      return std::tuple(sums["squares"], sums.rows(), wrong_mode.load(), restored.load(),
                        replicas.steps_taken(), replicas.take_sums().rows());
    });
    for (const auto& found : checked) CHECK(found == std::tuple(385., 11, false, true, 0, 0));
  }
}

TEST_CASE("a module that T holds by value is evaluated as any other, and trains afterwards") {
  struct Plain : torch::nn::Module {
    torch::nn::Linear layer = register_module("layer", torch::nn::Linear(3, 2));
  };
  struct Holder {
    Plain net;
  };
  Replicas<Holder> replicas(on_cpus(2));
  replicas.attach(&Holder::net);
  std::atomic<int> training = 0;
  const auto count = [&](Holder& own) { training += own.net.is_training() + own.net.layer->is_training(); };
  replicas.evaluate(int64_t{2}, [&](Holder& own, RowRange, Step&) { count(own); });
  CHECK(training == 0);
  replicas.run([&](Holder& own, Endpoint&) { count(own); });
  CHECK(training == 4);  // two modules of two replicas
}

TEST_CASE("an error of one replica ends the step on all and names its rank and step") {
  Replicas<Learner> replicas(on_cpus(3));
  replicas.attach(&Learner::net);
  replicas.step(some_rows(6), train);
  std::string words;
  try {
    replicas.step(some_rows(6), [](Learner& own, const Tuple& shard, Step& step) {
      if (step.rank() == 1) throw std::runtime_error("a fault of the user's");
      train(own, shard, step);
    });
  } catch (const FailedError& error) {
    words = error.message();
    CHECK_THROWS_AS(std::rethrow_if_nested(error), std::runtime_error);
  }
  CHECK(words == "rank 1 (cpu): in step 1: a fault of the user's");
  CHECK_THROWS_AS(replicas.step(some_rows(6), train), Error);
}

TEST_CASE("an error of a factory is thrown once, and what was built dies") {
  static std::atomic<int> alive;
  struct Counted {
    Counted() { ++alive; }
    Counted(const Counted&) = delete;
    ~Counted() { --alive; }
  };
  alive = 0;
  const auto build = [](Endpoint& endpoint) {
    if (endpoint.rank() == 1) throw std::runtime_error("a fault");
    return Counted();
  };
  CHECK_THAT(refusal_of<FailedError>([&] { Replicas<Counted>(on_cpus(3), build); }),
             StartsWith("rank 1 (cpu)") && ContainsSubstring("a fault"));
  CHECK(alive == 0);
}

TEST_CASE("the batch of a process that is alone is not compared: its numbers are read by replicas alone") {
  struct Counted {
    operator std::span<const int64_t>() const {
      ++*reads;
      return numbers;
    }
    std::vector<int64_t> numbers = {4, 5, 6};
    std::shared_ptr<std::atomic<int>> reads = std::make_shared<std::atomic<int>>(0);
  };
  const Counted batch;
  Replicas<Learner> replicas(on_cpus(2));
  replicas.attach(&Learner::net);
  replicas.step(batch, [](Learner&, std::span<const int64_t>, Step&) {});
  CHECK(batch.reads->load() == 3);  // for the rows, and by two replicas
}

TEST_CASE("attach() and keep() take what is a part of T") {
  const auto reference = [](Learner & own) -> auto& { return own.net; };
  const auto pointer = [](Learner& own) { return &*own.net; };
  const auto value = [](Learner& own) { return own.net; };
  STATIC_REQUIRE(PartOf<decltype(&Learner::net), Learner, torch::nn::Module>);
  STATIC_REQUIRE(PartOf<decltype(&Learner::sgd), Learner, torch::optim::Optimizer>);
  STATIC_REQUIRE(PartOf<decltype(reference), Learner, torch::nn::Module>);
  STATIC_REQUIRE_FALSE(PartOf<decltype(pointer), Learner, torch::nn::Module>);
  STATIC_REQUIRE_FALSE(PartOf<decltype(value), Learner, torch::nn::Module>);
  STATIC_REQUIRE_FALSE(PartOf<decltype(&Learner::sgd), Learner, torch::nn::Module>);
  STATIC_REQUIRE_FALSE(PartOf<decltype(&Learner::net), Learner, torch::optim::Optimizer>);
}

TEST_CASE("processes that give other batches get one error each") {
  struct Case {
    const char* words;
    std::function<void(Replicas<Learner>&, int process)> call;
  };
  const auto nothing = [](Learner&, const auto&, Step&) {};
  const Case cases[] = {
      {"rank 1 has 5 rows where rank 0 has 4 rows",
       [&](auto& replicas, int process) { replicas.step(int64_t{4 + process}, nothing); }},
      {"rank 1 has rows or labels with the digest",
       [&](auto& replicas, int process) {
         replicas.step(std::vector<int64_t>{process, 2, 7}, nothing);
       }},
      {"rank 1 has rows or labels with the digest",
       [&](auto& replicas, int process) {
         replicas.step(std::pair(torch::rand({2, 3}), torch::tensor({1, process}, torch::kInt64)), nothing);
       }},
      {"rank 1 has rows or labels with the digest",
       [&](auto& replicas, int process) {
         replicas.step(Batch(torch::tensor({{1, 2}, {3, process}}, torch::kInt64), torch::zeros({2})),
                       nothing);
       }},
      {"rank 1 has evaluation 0 where rank 0 has step 0",
       [&](auto& replicas, int process) {
         process == 0 ? replicas.step(int64_t{4}, nothing)
                      : static_cast<void>(replicas.evaluate(int64_t{4}, nothing));
       }},
  };
  for (const auto& [words, call] : cases) {
    INFO(words);
    const auto found = by_process(2, [&, &call = call](int process, const Group& group) {
      Replicas<Learner> replicas(on_cpus(1, group));
      replicas.attach(&Learner::net);
      return refusal_of([&] { call(replicas, process); });
    });
    for (const auto& text : found) CHECK_THAT(text, ContainsSubstring(words));
  }
}

TEST_CASE("processes whose options or modules differ are refused") {
  for (const auto& text : by_process(2, [](int process, const Group&group) {
         auto options = on_cpus(1, group);
         options.seed = static_cast<uint64_t>(process);
         return refusal_of([&] { Replicas<Learner>(std::move(options)); });
       })) {
    CHECK_THAT(text, ContainsSubstring("process 1 has seed 1 where process 0 has seed 0"));
  }
  for (const auto& text : by_process(2, [](int process, const Group&group) {
         Replicas<Learner> replicas(on_cpus(1, group));
         return refusal_of([&] { replicas.attach(process == 0 ? "net" : "other", &Learner::net); });
       })) {
    CHECK_THAT(text, ContainsSubstring("process 1 has other where process 0 has net"));
  }
  struct Kept {
    torch::nn::Sequential net = two_layers();
    torch::optim::SGD sgd{net->parameters(), .1};
    torch::Tensor hidden = torch::zeros({2});
  };
  const auto kept_otherwise = [](const auto& keep) {
    const auto found = by_process(2, [&](int process, const Group& group) {
      Replicas<Kept> replicas(on_cpus(1, group));
      return refusal_of([&] { keep(replicas, process); });
    });
    CHECK(found[0] == found[1]);
    return found[0];
  };
  CHECK_THAT(
      kept_otherwise(
          [](auto& replicas, int process) { replicas.keep(process == 0 ? "sgd" : "other", &Kept::sgd); }),
      ContainsSubstring("process 1 has the optimizer 'other' where process 0 has the optimizer 'sgd'"));
  CHECK_THAT(kept_otherwise([](auto& replicas, int process) {
               process == 0 ? replicas.keep("a", &Kept::sgd) : replicas.keep("a", &Kept::hidden);
             }),
             ContainsSubstring("process 1 has the tensor 'a' where process 0 has the optimizer 'a'"));
}

TEST_CASE("wrong calls of Replicas are refused, with what to do") {
  struct Two {
    torch::nn::Sequential a = two_layers(), b = two_layers();
  };
  const auto loss_of = [](auto& net) { return net->forward(some_rows(2).first).square().sum(); };
  struct Case {
    const char* words;
    std::function<void(Two&, Step&)> call;
  };
  const Case cases[] = {
      {"backward has reached b (torch::nn::SequentialImpl), too, before wait() for a",
       [&](Two& own, Step& step) {
         (loss_of(own.a) + loss_of(own.b)).backward();
         step.wait(own.a);
       }},
      {"backward has reached a (torch::nn::SequentialImpl), but wait() was not called",
       [&](Two& own, Step&) { loss_of(own.a).backward(); }},
      {"the endpoint was used between a backward pass of b (torch::nn::SequentialImpl) and wait()",
       [&](Two& own, Step& step) {
         loss_of(own.b).backward();
         sum_over_replicas(1, step);
       }},
      {"wait() without a module, but 2 are attached", [](Two&, Step& step) { step.wait(); }},
      {"a module that is not attached",
       [](Two&, Step& step) {
         auto other = two_layers();
         step.wait(other);
       }},
      {"'loss' is complex",
       [](Two&, Step& step) { step.add("loss", torch::ones({2}, torch::kComplexFloat)); }},
      {"'loss' is an undefined tensor", [](Two&, Step& step) { step.add("loss", torch::Tensor()); }},
  };
  for (const auto& [words, call] : cases) {
    INFO(words);
    Replicas<Two> replicas(on_cpus(2));
    replicas.attach("a", &Two::a);
    replicas.attach("b", &Two::b);
    CHECK_THAT(refusal_of([&, &call = call] {
                 replicas.step(int64_t{2}, [&](Two& own, RowRange, Step& step) { call(own, step); });
               }),
               StartsWith("rank ") && ContainsSubstring("in step 0: ") && ContainsSubstring(words));
  }
  Replicas<Two> replicas(on_cpus(1));
  replicas.attach("a", &Two::a);
  CHECK_THAT(refusal_of([&] { replicas.attach("a", &Two::b); }),
             ContainsSubstring("with the name 'a' already"));
  CHECK_THAT(refusal_of([&] { replicas.attach(&Two::b); }),
             ContainsSubstring("without a name after one with the name 'a'"));
  CHECK_THAT(refusal_of([&] { replicas.step(int64_t{0}, [](Two&, RowRange, Step&) {}); }),
             ContainsSubstring("a batch of 0 rows"));
}
