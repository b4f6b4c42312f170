// BnPolicy::kSync: a step of any number of replicas is the one that torch computes on the whole batch.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <lockstep/models/resnet18.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/parallel/batch_norm/synced_norms.h>
#include <lockstep/tests/parallel/collectives/gloo/joined.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

ModelFactory residual(int64_t width = 4, torch::ScalarType type = torch::kFloat64) {
  ResNet18Options options;
  options.width = width;
  options.dtype = type;
  options.initialization = Initialization::kTorch;
  return model_factory<ResNet18Impl>(options);
}

// By name: minus the gradients of parameters, as a step with a rate of 1 leaves them, and buffers.
using Tensors = std::vector<NamedTensor>;

Tensors start_of(const ModelFactory& factory) {
  Tensors tensors;
  const auto model = factory();
  for (const auto& item : model.module->named_parameters())
    tensors.push_back({item.key(), item.value().detach()});
  return tensors;
}

// The results of torch for the whole batch, in one module, with these numbers of rows per micro-batch.
struct Expected {
  Tensors gradients;
  Tensors buffers;
};

Expected whole_batch(const ModelFactory& factory, const Rows& batch, int micro_batches = 1) {
  const RowSource rows(32);
  const auto model = factory();
  model.module->to(torch::kFloat64);
  for (auto& buffer : model.module->named_buffers()) {  // which to() has converted, too
    if (buffer.key().ends_with("tracked")) buffer.value().set_data(buffer.value().to(torch::kInt64));
  }
  const auto n = static_cast<int64_t>(batch.size());
  auto next = batch.begin();
  for (const auto size : shard_sizes(n, micro_batches)) {
    if (size == 0) continue;
    const auto part = rows.batch(Rows(next, next + size));
    next += size;
    (model.loss_sum(in_precision(part, Precision::kFp64)).loss / n).backward();
  }
  Expected expected;
  for (const auto& item : model.module->named_parameters())
    expected.gradients.push_back({item.key(), item.value().grad()});
  for (const auto& item : model.module->named_buffers())
    expected.buffers.push_back({item.key(), item.value()});
  return expected;
}

const torch::Tensor& named(const Tensors& tensors, const std::string& name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& item) { return item.name == name; });
  if (found == tensors.end()) throw std::logic_error("no tensor " + name);
  return found->tensor;
}

// The largest max|d| / max|g| over the parameters, and max|d| where the true gradient is 0: of biases before
// a norm, whose gradients are rounding alone.
double gradient_error(const ModelFactory& factory, const Tensors& after, const Expected& expected) {
  double largest = 0;
  for (const auto& [name, before] : start_of(factory)) {
    const auto found = before.to(torch::kFloat64) - named(after, name);
    const auto& gradient = named(expected.gradients, name);
    const double scale = max_abs(gradient) < 1e-12 ? 1 : max_abs(gradient);
    largest = std::max(largest, max_difference(found, gradient) / scale);
  }
  return largest;
}

double buffer_error(const Tensors& after, const Expected& expected) {
  double largest = 0;
  for (const auto& [name, buffer] : expected.buffers) {
    INFO(name);
    CHECK(named(after, name).is_floating_point() == buffer.is_floating_point());
    largest = std::max(largest, max_difference(named(after, name), buffer) / max_abs(buffer));
  }
  return largest;
}

void check_step(const ModelFactory& factory, const TrainerOptions& options, const Rows& batch) {
  INFO(options.devices.size() << " replicas, " << batch.size() << " rows, " << options.accumulate
                              << " micro-batches, split of " << options.split.size());
  const auto after = stepped(factory, options, batch);
  const auto expected = whole_batch(factory, batch, options.accumulate);
  CHECK(gradient_error(factory, after, expected) <= 1e-10);
  CHECK(buffer_error(after, expected) <= 1e-12);
}

}  // namespace

TEST_CASE(
    "with bn sync a step of 1 to 4 replicas is torch's of the whole batch, uneven and empty shards too") {
  const int world = GENERATE(1, 2, 3, 4);
  for (const int64_t rows : {16, 9, 3}) check_step(norms(), options_of(world), first_rows(rows));
  auto options = options_of(world);
  options.split = {1, 5, 0, 2};
  options.split.resize(static_cast<size_t>(world));
  check_step(norms(), options, {31, 4, 15, 9, 26, 5, 3, 7, 2});
}

TEST_CASE("with bn sync micro-batches hold the same rows for any number of replicas") {
  const int world = GENERATE(1, 2, 3, 4);
  auto options = options_of(world);
  options.accumulate = 3;
  for (const int64_t rows : {16, 7}) check_step(norms(), options, first_rows(rows));
}

TEST_CASE(
    "with bn sync ResNet-18 takes the step of the whole batch, and with the other policies it does not") {
  const auto batch = first_rows(GENERATE(7, 3));
  const auto expected = whole_batch(residual(), batch);
  for (const int world : {2, 4}) {
    const auto after = stepped(residual(), options_of(world), batch);
    CHECK(gradient_error(residual(), after, expected) <= 1e-10);
    CHECK(buffer_error(after, expected) <= 1e-12);
  }
  for (const auto policy : {BnPolicy::kRoot, BnPolicy::kAverage}) {
    const auto after = stepped(residual(), options_of(2, policy), batch);
    CHECK(gradient_error(residual(), after, expected) > 1e-3);
    CHECK(buffer_error(after, expected) > 1e-3);
  }
}

// A replica without rows computes by torch's operations, and its running statistics have the others' bits. In
// bf16 rounding alone changes a gradient by half.
TEST_CASE("with bn sync lockstep's kernels take the step of the whole batch, too") {
  const auto precision = GENERATE(Precision::kFp32, Precision::kBf16);
  const auto batch = first_rows(GENERATE(7, 3));
  const auto factory = residual(16, torch::kFloat32);
  const auto expected = whole_batch(residual(16), batch);
  const auto step = [&](TrainerOptions options) {
    options.replica.precision = precision;
    return stepped(factory, options, batch);
  };
  const bool fp32 = precision == Precision::kFp32;
  for (const int world : {2, 4}) {
    INFO(world << " replicas, " << batch.size() << " rows, " << name_of(kPrecisionNames, precision));
    const auto after = step(options_of(world));
    if (fp32) CHECK(gradient_error(factory, after, expected) <= 1e-4);
    CHECK(buffer_error(after, expected) <= (fp32 ? 1e-5 : .02));
    CHECK(named(after, "0.bias").equal(named(start_of(factory), "0.bias")));  // which the kernels leave out
  }
  const auto alone = step(options_of(2, BnPolicy::kRoot));
  if (fp32) CHECK(gradient_error(factory, alone, expected) > .1);
  CHECK(buffer_error(alone, expected) > .05);
}

TEST_CASE("with bn sync replicas in several processes take the step of the whole batch") {
  const auto batch = first_rows(9);
  const auto expected = whole_batch(norms(), batch);
  for (const auto& layout : std::vector<Layout>{{1, 1}, {2, 1}, {1, 3}}) {
    const auto found = in_processes(
        layout, options_of(1), [&](int, const TrainerOptions& own) { return stepped(norms(), own, batch); });
    for (const auto& after : found) {
      INFO(text_of(layout));
      CHECK(gradient_error(norms(), after, expected) <= 1e-10);
      CHECK(buffer_error(after, expected) <= 1e-12);
    }
  }
}

TEST_CASE("with bn sync two processes take the step of the whole batch over Gloo") {
  const auto batch = first_rows(5);
  const auto expected = whole_batch(norms(), batch);
  std::vector<Tensors> found(2);
  for (const auto& error : run_worlds(worlds_of(2), [&](int process, ProcessGroup&group) {
         auto options = options_of(1);
         options.process_group = std::shared_ptr<ProcessGroup>(&group, [](ProcessGroup*) {});
         found[static_cast<size_t>(process)] = stepped(norms(), options, batch);
       })) {
    if (error) std::rethrow_exception(error);
  }
  for (const auto& after : found) {
    CHECK(gradient_error(norms(), after, expected) <= 1e-10);
    CHECK(buffer_error(after, expected) <= 1e-12);
  }
}
