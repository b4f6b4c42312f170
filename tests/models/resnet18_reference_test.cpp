// The chapters' ResNet-18 against values that Python's torch computed: tests/reference/resnet18_reference.py.
#include <lockstep/tests/catch.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <lockstep/models/costs.h>
#include <lockstep/models/resnet18.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/models/resnet18_cases.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/reference.h>

using namespace lockstep;
using namespace lockstep::testing;
using nlohmann::json;

namespace {

// The batches of resnet18_step.json.
Batch reference_batch(torch::IntArrayRef shape, int64_t classes) {
  const auto i = torch::arange(c10::multiply_integers(shape), torch::kFloat64);
  return {((i * 37).remainder(256) / 255).view(shape), torch::arange(shape[0]).mul(3).remainder(classes)};
}

torch::Tensor values(const json& numbers) {
  std::vector<double> flat;
  for (const auto& number : numbers.flatten()) flat.push_back(number.get<double>());
  return torch::tensor(flat, torch::kFloat64);
}

// Elements of a in row-major order, at the places that a reference names.
torch::Tensor elements(const torch::Tensor& a, const json& at) {
  return a.detach().reshape(-1).index_select(0, torch::tensor(at.get<std::vector<int64_t>>()));
}

// A bias that a batch normalisation removes: its true gradient is 0.
bool without_effect(const std::string& name) {
  return name == "0.bias" || name.ends_with("conv1.bias") || name.ends_with("conv2.bias");
}

void check_gradients(const torch::nn::Module& net, const json& expected, bool batch_norm) {
  const auto params = net.named_parameters();
  REQUIRE(expected.size() == params.size());
  double weights_largest = 0;  // in the layer of a bias
  for (size_t i = 0; i < params.size(); ++i) {
    const auto& name = params[i].key();
    INFO(name);
    REQUIRE(expected[i].at("name") == name);
    const auto grad = params[i].value().grad();
    auto scale = expected[i].at("grad_abs_max").get<double>();
    if (name.ends_with("weight")) weights_largest = scale;
    if (batch_norm && without_effect(name)) scale = weights_largest;
    CHECK(std::abs(max_abs(grad) - expected[i].at("grad_abs_max").get<double>()) <= 1e-9 * scale);
    CHECK(max_abs(elements(grad, expected[i].at("at")) - values(expected[i].at("grad"))) <= 1e-9 * scale);
  }
}

}  // namespace

TEST_CASE("names, shapes and initial weights are bit for bit those of the chapters' Python network") {
  const auto python = reference("resnet18_initial.json");
  ResNet18Options options;
  options.seed = python.at("seed").get<uint64_t>();
  ResNet18 net(options);

  const auto params = net->named_parameters();
  REQUIRE(python.at("parameters").size() == params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    const auto& expected = python.at("parameters")[i];
    INFO(params[i].key());
    CHECK(params[i].key() == expected.at("name").get<std::string>());
    CHECK(params[i].value().sizes() == expected.at("shape").get<std::vector<int64_t>>());
    CHECK(sha256_of({params[i].value()}) == expected.at("sha256").get<std::string>());
  }
  const auto buffers = net->named_buffers();
  REQUIRE(python.at("buffers").size() == buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto& expected = python.at("buffers")[i];
    INFO(buffers[i].key());
    CHECK(buffers[i].key() == expected.at("name").get<std::string>());
    CHECK(buffers[i].value().sizes() == expected.at("shape").get<std::vector<int64_t>>());
    const bool counter = expected.at("dtype") == "int64";
    CHECK(buffers[i].value().scalar_type() == (counter ? torch::kInt64 : torch::kFloat32));
  }
}

TEST_CASE("other seeds and initializations are bit for bit Python's too, and differ") {
  const auto python = reference("resnet18_initial.json");
  std::vector<std::string> seen;
  for (const auto& start : python.at("starts")) {
    ResNet18Options options;
    options.seed = start.at("seed").get<uint64_t>();
    options.initialization = value_of(kInitializationNames, start.at("start").get<std::string>());
    INFO(start);
    seen.push_back(sha256_of(ResNet18(options)->parameters()));
    CHECK(seen.back() == start.at("sha256").get<std::string>());
  }
  REQUIRE(seen.size() == 3);
  CHECK((seen[0] != seen[1] && seen[1] != seen[2] && seen[0] != seen[2]));
}

TEST_CASE("one step of training and an evaluation are those of Python's torch") {
  const auto python = reference("resnet18_step.json").at("chapter");
  ResNet18Options options;
  options.seed = python.at("seed").get<uint64_t>();
  options.dtype = torch::kFloat64;
  ResNet18 net(options);
  const auto rows = python.at("rows").get<int64_t>();
  const auto batch = reference_batch({rows, 1, 28, 28}, 10);

  const auto logits = net->forward(batch.input());
  const auto expected_logits = values(python.at("logits")).view({rows, 10});
  CHECK(max_abs(logits - expected_logits) <= 1e-10 * max_abs(expected_logits));
  const auto loss = classification_outcome(logits, batch.target()).loss;
  CHECK(loss.item<double>() == Approx(python.at("loss_sum").get<double>()).epsilon(1e-12));
  (loss / rows).backward();
  check_gradients(*net, python.at("parameters"), /*batch_norm=*/true);

  const torch::NoGradGuard no_grad;
  const auto params = net->named_parameters();
  for (size_t i = 0; i < params.size(); ++i) {
    INFO(params[i].key());
    const auto& expected = python.at("parameters")[i];
    params[i].value().sub_(params[i].value().grad(), python.at("lr").get<double>());
    const auto updated = values(expected.at("updated"));
    CHECK(max_abs(elements(params[i].value(), expected.at("at")) - updated) <= 1e-9 * max_abs(updated));
  }
  const auto buffers = net->named_buffers();
  for (size_t i = 0; i < buffers.size(); ++i) {
    const auto& expected = python.at("buffers")[i];
    INFO(buffers[i].key());
    const auto scale = max_abs(values(expected.at("values")));  // the largest element is one of them
    const auto sum = buffers[i].value().sum().item<double>();
    const auto size = static_cast<double>(buffers[i].value().numel());
    CHECK(std::abs(sum - expected.at("sum").get<double>()) <= 1e-10 * scale * size);
    CHECK(max_abs(elements(buffers[i].value(), expected.at("at")) - values(expected.at("values"))) <=
          1e-10 * scale);
  }
  net->eval();
  const auto expected = values(python.at("evaluated")).view({rows, 10});
  CHECK(max_abs(net->forward(batch.input()) - expected) <= 1e-9 * max_abs(expected));
  CHECK(max_abs(logits - expected) > 1e-3 * max_abs(expected));  // the step changed something
}

TEST_CASE("without batch normalisation, with other sizes, it is Python's network too") {
  const auto python = reference("resnet18_step.json").at("plain");
  const auto number = [&](const char* name) { return python.at(name).get<int64_t>(); };
  ResNet18Options options;
  options.channels = number("channels");
  options.classes = number("classes");
  options.width = number("stage_width");
  options.batch_norm = false;
  options.seed = python.at("seed").get<uint64_t>();
  options.dtype = torch::kFloat64;
  options.initialization = Initialization::kTorch;
  ResNet18 net(options);
  CHECK(net->buffers().empty());

  const auto batch =
      reference_batch({number("rows"), options.channels, number("height"), number("width")}, options.classes);
  const auto logits = net->forward(batch.input());
  const auto expected = values(python.at("logits")).view({number("rows"), options.classes});
  CHECK(max_abs(logits - expected) <= 1e-12 * max_abs(expected));
  const auto loss = classification_outcome(logits, batch.target()).loss;
  CHECK(loss.item<double>() == Approx(python.at("loss_sum").get<double>()).epsilon(1e-12));
  (loss / number("rows")).backward();
  check_gradients(*net, python.at("parameters"), /*batch_norm=*/false);
}

TEST_CASE("activations per row are those that autograd saves, and four gradients of the first stage") {
  const auto python = reference("resnet18_step.json");
  CHECK(resnet18_costs({}, torch::kCPU).activations ==
        python.at("chapter").at("saved_per_row").get<int64_t>() + 4 * 64 * 28 * 28);
  const auto& plain = python.at("plain");
  const auto number = [&](const char* name) { return plain.at(name).get<int64_t>(); };
  ResNet18Options options;
  options.channels = number("channels");
  options.classes = number("classes");
  options.width = number("stage_width");
  options.batch_norm = false;
  REQUIRE((number("height") == 13 && number("width") == 10 && options.width == 8));
  CHECK(resnet18_costs(options, torch::kCPU, /*threads=*/1, 13, 10).activations ==
        number("saved_per_row") + 4 * 8 * 13 * 10);
}
