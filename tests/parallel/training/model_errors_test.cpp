// Faults of the model and the data of a trainer's user: each is an error of lockstep with its place.
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <fmt/format.h>
#include <lockstep/tests/catch.h>

#include <atomic>
#include <exception>
#include <functional>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include <lockstep/parallel/trainer.h>
#include <lockstep/support/error.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/mishap.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Found {
  ExitCode code = ExitCode::kDone;  // kDone: no error of lockstep
  std::string what, hint;
  std::exception_ptr thrown;
};

Found error_of(const std::function<void()>& action) {
  Found found;
  try {
    action();
  } catch (const Error& error) {
    found = {error.exit_code(), error.message(), error.hint(), std::current_exception()};
  } catch (...) {
    found.thrown = std::current_exception();
  }
  return found;
}

template <class E>
bool holds(const Found& found) {  // E, or an error with E nested
  try {
    if (found.thrown) std::rethrow_exception(found.thrown);
  } catch (const E&) {
    return true;
  } catch (const std::exception& error) {
    try {
      std::rethrow_if_nested(error);
    } catch (const E&) {
      return true;
    } catch (...) {
    }
  }
  return false;
}

using Change = std::function<Outcome(const Batch&, const Loss& loss)>;

// A model whose outcomes are changed; evaluation: only those of evaluations, else only those of training.
ModelFactory changed(bool evaluation, const Change& change) {
  return [=] {
    auto model = two_layers()();
    model.loss_sum = [=, loss = model.loss_sum, module = model.module](const Batch& rows) {
      return module->is_training() == evaluation ? loss(rows) : change(rows, loss);
    };
    return model;
  };
}

enum class TrainerCall { kStep, kEvaluate };

// Two replicas, of which rank 1 alone has row 9 of ten in the step, and rank 0 all rows in an evaluation.
Found error_of(TrainerCall call, const ModelFactory& model, const Layout& layout = {2}) {
  const auto rows = rows_on_device(10);
  const auto found = in_processes(layout, {}, [&](int, const TrainerOptions& own) {
    Trainer trainer(model, rows, rows, own);
    return error_of(
        [&] { call == TrainerCall::kStep ? trainer.step(first_rows(10)) : void(trainer.evaluate()); });
  });
  for (const auto& own : found) {  // of two processes, that of the replica that failed
    if (own.code != ExitCode::kPeer) return own;
  }
  return found.front();
}

bool has_row_9(const Batch& rows) {
  return rows.target()[-1].item<int64_t>() == 7;
}  // RowSource's label of row 9

}  // namespace

TEST_CASE("an outcome that a trainer cannot use is refused, with its replica and what it should be") {
  struct Case {
    const char* what;
    std::function<void(Outcome&)> change;
    bool in_evaluation = true;
  };
  const Case cases[] = {
      {"the outcome has no loss", [](auto& outcome) { outcome.loss.reset(); }},
      {"the outcome's loss has the shape [2, 1] instead of []",
       [](auto& outcome) {
         outcome.loss = outcome.loss.expand({2, 1});
       }},
      {"the outcome's loss is Long instead of floating point",
       [](auto& outcome) { outcome.loss = outcome.metrics[0].sum; }},
      {"the outcome's loss is on meta, the rows on cpu",
       [](auto& outcome) { outcome.loss = outcome.loss.to(torch::kMeta); }},
      {"the outcome's loss requires no gradient", [](auto& outcome) { outcome.loss = outcome.loss.detach(); },
       false},
      {"the outcome has no top1", [](auto& outcome) { outcome.metrics[0].sum.reset(); }},
      {"the outcome's top1 has the shape [1] instead of []",
       [](auto& outcome) { outcome.metrics[0].sum = outcome.metrics[0].sum.view({1}); }},
      {"the outcome's top5 is on meta, the rows on cpu",
       [](auto& outcome) { outcome.metrics[1].sum = outcome.metrics[1].sum.to(torch::kMeta); }},
      {"the outcome's top5 is Float, the model declares a count",
       [](auto& outcome) { outcome.metrics[1].sum = outcome.loss.detach(); }},
      {"the outcome has a weight of top1, the model declares none",
       [](auto& outcome) { outcome.metrics[0].weight = outcome.metrics[0].sum; }},
      {"the outcome has 1 metrics, the model declares top1, top5",
       [](auto& outcome) { outcome.metrics.pop_back(); }}};
  for (const auto& [what, change, in_evaluation] : cases) {
    const Change of_row_9 = [&change](const Batch& rows, const Loss& loss) {
      auto outcome = loss(rows);
      if (has_row_9(rows)) change(outcome);
      return outcome;
    };
    for (const auto& layout : {Layout{2}, Layout{1, 1}}) {
      INFO(text_of(layout) << ", " << what);
      const auto step = error_of(TrainerCall::kStep, changed(false, of_row_9), layout);
      CHECK(step.code == ExitCode::kUsage);
      CHECK(step.what == fmt::format("rank 1 (cpu): in the forward pass of step 1: {}", what));
      CHECK_FALSE(step.hint.empty());
      const auto test = error_of(TrainerCall::kEvaluate, changed(true, of_row_9), layout);
      CHECK(test.code == (in_evaluation ? ExitCode::kUsage : ExitCode::kDone));
      if (!in_evaluation) continue;
      CHECK(test.what == fmt::format("rank 0 (cpu): in the evaluation of rows 0 to 9: {}", what));
    }
  }
}

TEST_CASE("a metric that is not as its model declares it is refused, with its replica") {
  struct Case {
    const char* what;
    MetricKind kind;
    Metric metric;
  };
  const auto one = torch::ones({}), ones = torch::ones({2});
  const Case cases[] = {
      {"the outcome has no weight of m", {.own_weight = true}, {one}},
      {"the outcome's weight of m has the shape [2] instead of []", {.own_weight = true}, {one, ones}},
      {"the outcome's m is Long, the model declares a mean", {}, {one.to(torch::kInt64)}},
      {"the outcome's m is Bool, the model declares a count",
       {.type = MetricType::kCount},
       {one.to(torch::kBool)}}};
  for (const auto& [what, kind, metric] : cases) {
    const auto factory =
        model_factory<TwoLayersImpl>(std::function<void(const torch::Tensor&)>())
            .loss([metric = metric](TwoLayersImpl& net, const Batch& in) {
              Outcome outcome{net.forward(in.input()).sum(), {Metric(torch::ones({}), torch::ones({}))}};
              outcome.metrics[0] = metric;
              return outcome;
            })
            .metric("m", kind);
    for (const auto& layout : {Layout{2}, Layout{1, 1}}) {
      const auto found = error_of(TrainerCall::kStep, factory, layout);
      CHECK(found.code == ExitCode::kUsage);
      CHECK_THAT(found.what,
                 Catch::Matchers::EndsWith(std::string("(cpu): in the forward pass of step 1: ") + what));
    }
  }
}

TEST_CASE("a name that a batch does not have ends the step, and the error lists the names") {
  const auto factory =
      model_factory<TwoLayersImpl>(std::function<void(const torch::Tensor&)>())
          .loss([](TwoLayersImpl& net, const Batch& in) { return net.forward(in["X"]).sum(); });
  for (const auto& layout : {Layout{2}, Layout{1, 1}}) {
    const auto found = error_of(TrainerCall::kStep, factory, layout);
    CHECK(found.code == ExitCode::kUsage);
    CHECK_THAT(found.what, ContainsSubstring("no tensor named X"));
    CHECK_THAT(found.hint, ContainsSubstring("input, target"));
  }
}

TEST_CASE("what a model throws is a FailedError with replica and step, without a backtrace, and is nested") {
  struct ThrowsInBackward : torch::autograd::Function<ThrowsInBackward> {
    static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) { return x * 1; }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list) {
      throw Mishap("my layer");
    }
  };
  const auto throws_of_row_9 = [](const std::function<Outcome(const Batch&, const Loss&)>& thrower) {
    return [thrower](const Batch& rows, const Loss& loss) {
      return has_row_9(rows) ? thrower(rows, loss) : loss(rows);
    };
  };
  const auto own = throws_of_row_9([](const Batch&, const Loss&) -> Outcome { throw Mishap("my layer."); });
  const auto by_torch = throws_of_row_9([](const Batch& rows, const Loss&) {
    return classification_outcome(torch::zeros({2}).view({3}), rows.target());
  });
  const auto backward = throws_of_row_9([](const Batch& rows, const Loss& loss) {
    auto outcome = loss(rows);
    outcome.loss = ThrowsInBackward::apply(outcome.loss);
    return outcome;
  });
  const struct {
    TrainerCall call;
    const Change& change;
    const char* what;
    bool torchs;
  } cases[] = {
      {TrainerCall::kStep, own, "rank 1 (cpu): in the forward pass of step 1: my layer", false},
      {TrainerCall::kStep, backward, "rank 1 (cpu): in the backward pass of step 1: my layer", false},
      {TrainerCall::kStep, by_torch,
       "rank 1 (cpu): in the forward pass of step 1: shape '[3]' is invalid for input of size 2", true},
      {TrainerCall::kEvaluate, own, "rank 0 (cpu): in the evaluation of rows 0 to 9: my layer", false},
      {TrainerCall::kEvaluate, by_torch,
       "rank 0 (cpu): in the evaluation of rows 0 to 9: shape '[3]' is invalid for input of size 2", true},
  };
  for (const auto& [call, change, what, torchs] : cases) {
    for (const auto& layout : {Layout{2}, Layout{1, 1}}) {
      INFO(text_of(layout) << ", " << what);
      const auto found = error_of(call, changed(call == TrainerCall::kEvaluate, change), layout);
      CHECK(found.code == ExitCode::kFailed);
      CHECK(found.what == what);
      CHECK(holds<FailedError>(found));
      CHECK((torchs ? holds<c10::Error>(found) : holds<Mishap>(found)));
    }
  }
}

TEST_CASE("what a source of rows throws is a FailedError with replica and step") {
  struct Broken : BatchSource {
    int64_t size() const override { return 4; }
    BatchSpec spec() const override { return RowSource(4).spec(); }
    void gather(const torch::Tensor&, int64_t, Batch&) const override { throw Mishap("the disk"); }
  };
  const SourceFactory broken = [](torch::Device) { return std::make_shared<Broken>(); };
  TrainerOptions options;
  options.devices = {torch::kCPU};
  Trainer trainer(two_layers(), broken, rows_on_device(4), options);
  CHECK(error_of([&] { trainer.step(first_rows(4)); }).what ==
        "rank 0 (cpu): in the gather of step 1: the disk");
  Trainer tester(two_layers(), rows_on_device(4), broken, options);
  CHECK(error_of([&] { tester.evaluate(); }).what ==
        "rank 0 (cpu): in the evaluation of rows 0 to 3: the disk");
}

TEST_CASE("a source that gives other rows than it was asked for is told with replica and step") {
  struct Short : BatchSource {
    explicit Short(std::function<void(Batch&)> change) : change_(std::move(change)) {}
    int64_t size() const override { return rows_.size(); }
    BatchSpec spec() const override { return rows_.spec(); }
    void gather(const torch::Tensor& rows, int64_t epoch, Batch& into) const override {
      rows_.gather(rows, epoch, into);
      change_(into);
    }
    RowSource rows_{10};
    std::function<void(Batch&)> change_;
  };
  struct Case {
    const char* what;
    std::function<void(Batch&)> change;
  };
  const Case cases[] = {
      {"the source was asked for ROWS rows, and gave 4 in input",
       [](auto& into) { into = into.narrow(0, 4); }},
      {"the source was asked for ROWS rows, and gave 0 in target",
       [](auto& into) { into[1] = into[1].narrow(0, 0, 0); }},
      {"the source was asked for ROWS rows, and gave none in input", [](auto& into) { into[0].reset(); }},
      {"the source was asked for ROWS rows, and gave one number in target",
       [](auto& into) { into[1] = into[1].sum(); }},
      {"the source gave 0 tensors, its spec has 2", [](auto& into) { into = {}; }},
      {"the source gave target as Int [ROWS], its spec has target target Long [n]",
       [](auto& into) { into[1] = into[1].to(torch::kInt32); }},
      {"the source gave input as Float [ROWS, 784], its spec has input Float [n, 1, 28, 28]",
       [](auto& into) { into[0] = into[0].flatten(1); }},
  };
  for (const auto& [what, change] : cases) {
    const SourceFactory given = [&](torch::Device) { return std::make_shared<Short>(change); };
    TrainerOptions options;
    options.devices = {torch::kCPU, torch::kCPU};
    Trainer trainer(two_layers(), given, rows_on_device(10), options);
    const auto for_rows = [what = what](int rows) {
      std::string text = what;
      if (const auto at = text.find("ROWS"); at != text.npos) text.replace(at, 4, std::to_string(rows));
      return text;
    };
    CHECK_THAT(error_of([&] { trainer.step(first_rows(10)); }).what,
               ContainsSubstring("(cpu): in the gather of step 1: " + for_rows(5)));
    Trainer tester(two_layers(), rows_on_device(10), given, options);
    CHECK(error_of([&] { tester.evaluate(); }).what ==
          "rank 0 (cpu): in the evaluation of rows 0 to 9: " + for_rows(10));
  }
}

TEST_CASE("the text of an error names the step, counted from 1 over the trainer's life") {
  auto calls = std::make_shared<std::atomic<int>>(0);
  const Change third = [=](const Batch& rows, const Loss& loss) {
    if (++*calls == 3) throw Mishap("enough");
    return loss(rows);
  };
  TrainerOptions options;
  options.devices = {torch::kCPU};
  Trainer trainer(changed(false, third), rows_on_device(10), rows_on_device(10), options);
  trainer.step(first_rows(4));
  trainer.leave_out_step();
  trainer.step(first_rows(4));
  CHECK(error_of([&] { trainer.step(first_rows(4)); }).what ==
        "rank 0 (cpu): in the forward pass of step 4: enough");
}

TEST_CASE("errors of lockstep, of memory and of the system's threads that a model throws stay as they are") {
  struct OwnError : DataError {
    using DataError::DataError;
  };
  const auto thrown = [](const std::function<void()>& action) {
    const Change throws = [action](const Batch& rows, const Loss& loss) {
      action();
      return loss(rows);
    };
    return error_of(TrainerCall::kStep, changed(false, throws));
  };
  const auto own = thrown([] { throw OwnError("mine", "mend it"); });
  CHECK(own.what == "mine");
  CHECK(holds<OwnError>(own));
  CHECK(thrown([] { throw OutputError("full"); }).what == "full");
  CHECK(thrown([] { throw std::bad_alloc(); }).code == ExitCode::kDone);
  CHECK(holds<std::bad_alloc>(thrown([] { throw std::bad_alloc(); })));
  CHECK(holds<c10::OutOfMemoryError>(thrown([] {
    throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "CUDA out of memory");
  })));
  // As torch's allocator throws it. (A sanitizer's allocator ends the program instead.)
  const auto too_large = thrown([] {
    throw c10::Error(
        {__func__, __FILE__, __LINE__},
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory");
  });
  CHECK(too_large.code == ExitCode::kDone);
  CHECK(holds<c10::Error>(too_large));
  const auto no_thread = std::make_error_code(std::errc::resource_unavailable_try_again);
  CHECK(thrown([=] { throw std::system_error(no_thread); }).code == ExitCode::kDone);
  const auto other = thrown([] { throw std::system_error(std::make_error_code(std::errc::no_such_device)); });
  CHECK(other.code == ExitCode::kFailed);
  const auto data = thrown([] { throw DataError("damaged", "repair it"); });
  CHECK(data.what == "rank 0 (cpu): in the forward pass of step 1: damaged");
  CHECK(data.hint == "repair it");
}

// It is the same exception on all replicas, whichever of them is asked first.
TEST_CASE("an error of a bucket hook stays as it is, on the replicas that wait for it, too") {
  const int failing = GENERATE(0, 1);
  TrainerOptions options;
  options.devices = {torch::kCPU, torch::kCPU};
  options.replica.sync.hook = [failing](Endpoint& endpoint, const GradientBucket& bucket) {
    if (endpoint.rank() == failing) throw Mishap("my hook");
    return endpoint.allreduce_gradients(bucket.gradients);
  };
  Trainer trainer(two_layers(), rows_on_device(10), rows_on_device(10), options);
  const auto found = error_of([&] { trainer.step(first_rows(10)); });
  CHECK(found.code == ExitCode::kDone);
  CHECK(holds<Mishap>(found));
}

TEST_CASE("a label that is no class is told with its replica, in training and evaluation") {
  auto rows = RowSource(10).all();
  rows[1] = rows[1].clone();
  rows[1][9] = GENERATE(-100, 10);
  const auto label = rows.target()[9].item<int64_t>();
  const auto wrong = resident_rows(rows);
  for (const auto& layout : {Layout{2}, Layout{1, 1}}) {
    const auto found = in_processes(layout, {}, [&](int, const TrainerOptions& own) {
      std::vector<Found> errors;
      for (const auto call : {TrainerCall::kStep, TrainerCall::kEvaluate}) {
        Trainer trainer(two_layers(), wrong, wrong, own);
        errors.push_back(error_of(
            [&] { call == TrainerCall::kStep ? trainer.step(first_rows(10)) : void(trainer.evaluate()); }));
      }
      return errors;
    });
    const auto check = [&](const Found& error, const char* row) {
      CHECK(error.code == ExitCode::kData);
      CHECK(error.what == fmt::format("{} has label {}, but the logits have 10 classes", row, label));
      CHECK_FALSE(error.hint.empty());
    };
    check(found.back().front(), "rank 1 (cpu): in the forward pass of step 1: row 4 of 5");
    check(found.front().back(), "rank 0 (cpu): in the evaluation of rows 0 to 9: row 9 of 10");
  }
}

TEST_CASE("a batch norm with one row on a replica is told with its replica, and the hint says what to do") {
  struct Normed : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& X) { return outer(norm(X.flatten(1))); }
    torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(784));
    torch::nn::Linear outer = register_module("outer", torch::nn::Linear(784, 10));
  };
  TrainerOptions options;
  options.devices = {torch::kCPU, torch::kCPU};
  Trainer trainer(model_factory<Normed>(), rows_on_device(10), rows_on_device(10), options);
  trainer.step(first_rows(4));
  const auto found = error_of([&] { trainer.step(first_rows(3)); });  // two rows and one
  CHECK(found.code == ExitCode::kFailed);
  CHECK_THAT(found.what, Catch::Matchers::StartsWith(
                             "rank 1 (cpu): in the forward pass of step 2: Expected more than 1 value "
                             "per channel when training, got input size"));
  CHECK_THAT(found.what, !ContainsSubstring("Exception raised from"));
  CHECK_THAT(found.hint, ContainsSubstring("two rows"));
}

TEST_CASE("after an error in an evaluation the model's parts train as before") {
  const auto factory = changed(true, [](const Batch&, const Loss&) -> Outcome { throw Mishap("mine"); });
  TrainerOptions options;
  options.devices = {torch::kCPU};
  Trainer trainer(factory, rows_on_device(10), rows_on_device(10), options);
  CHECK_THROWS(trainer.evaluate());
  CHECK(trainer.model(0).module->is_training());
}
